"""Measure the gallery: every page is run, and the samples of its benchmarks are kept."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.bench import prepare
from benchmarks.machine import git_commit, machine_facts

from . import page_path
from .page import FIGURE, Run


def measure(
    names: Sequence[str], parameters: str, commit: str | None, save: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run pages one after the other, and give back what they measured; a page that fails is left out.

    Parameters
    ----------
    names : sequence of str
    parameters : str
        Statements that run behind each page's cell of parameters.
    commit : str, optional
        By default it is asked of git.
    save : callable
        Gets what is measured after each page: a run that is stopped keeps it.
    """
    with tempfile.TemporaryDirectory(prefix="be-gallery-") as scratch:
        machine = machine_facts(prepare(Path(scratch), repeat=None, quick=False))
    runs = {name: Run(page_path(name), parameters, without=(FIGURE,)) for name in names}
    with ThreadPoolExecutor() as pool:  # compilers run beside each other
        list(pool.map(_compile, runs.values()))
    pages: dict[str, Any] = {}
    found = {"format": 1, "commit": commit or git_commit(), "machine": machine, "pages": pages}
    for name in names:
        start = time.perf_counter()
        try:
            pages[name] = {"operations": operations(runs.pop(name).until()["result"])}
        except Exception:  # noqa: BLE001 - the other pages are still measured
            traceback.print_exc()
            continue
        pages[name]["seconds"] = time.perf_counter() - start
        print(f"{name}: {pages[name]['seconds']:.1f} s", file=sys.stderr, flush=True)
        save(found)
    return found


def _compile(run: Run) -> None:
    """Run a page up to its kernels; a failure is that of the page, later."""
    try:
        run.until("kernels")
    except Exception:  # noqa: BLE001 - said here, and the rest of the page fails for want of its names
        traceback.print_exc()


def operations(result: Any) -> list[dict[str, Any]]:
    """A `BenchmarkResult`, or several, as JSON has them."""
    results: Iterable[Any] = result if isinstance(result[0], tuple) else (result,)
    return [{"name": each.name, "records": [record._asdict() for record in each.records]} for each in results]
