"""``python -m benchmarks``: measure, print the table, write JSON and a picture."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from be_runtime import BeRuntimeError

from . import plot
from .bench import Bench, prepare
from .figure import LeftOut, Outcome, Unavailable
from .machine import git_commit, machine_facts
from .report import as_json, compact, table
from .rows import load_row, row_names

EVERY_ROW = ""
FAILED = "it failed; standard error says why"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        1 when a row failed. A missed goal is a result, no failure.
    """
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="be-bench-") as scratch:
        bench = prepare(Path(scratch), repeat=options.repeat.get(EVERY_ROW), quick=options.quick)
        machine = machine_facts(bench)
        run = {
            "commit": options.commit or git_commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "quick": options.quick,
            "repeat": options.repeat or None,
        }
        outcomes: list[Outcome] = []

        def save(begun: Outcome) -> None:
            """A run that is stopped has what it measured."""
            if options.out is not None:
                found = as_json([*outcomes, begun], machine=machine, run=run)
                options.out.write_text(compact(found, "figures"), encoding="utf-8")

        for name in options.rows:
            repeat = options.repeat.get(name, bench.repeat)
            outcomes.append(measure_row(name, replace(bench, repeat=repeat), save))
    print(table(outcomes))
    if options.plot is not None:
        _draw(outcomes, machine, options.plot)
    return int(any(outcome.skipped == FAILED for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure how fast the toolchain is.")
    names = ",".join(row_names())
    parser.add_argument("--rows", type=_rows, default=row_names(), help=f"some of {names}, with commas between")
    parser.add_argument("--out", type=Path, help="write every sample and the machine's facts to this JSON file")
    parser.add_argument("--plot", type=Path, help="draw the figures into this file; needs matplotlib")
    parser.add_argument(
        "--repeat", type=_repeat, default={}, help="rounds of every row instead of its own number, or 7,calls=30"
    )
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that everything works")
    parser.add_argument("--commit", help="what to record as the commit where git can't tell")
    return parser


def _rows(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [name for name in chosen if name not in row_names()]
    if unknown:
        raise argparse.ArgumentTypeError(f"no row {', '.join(unknown)}; there are {', '.join(row_names())}")
    return chosen


def _repeat(text: str) -> dict[str, int]:
    """Rounds by row; those of all others under `EVERY_ROW`."""
    found = {}
    for part in text.split(","):
        name, _, count = part.rpartition("=")
        found[_rows(name)[0] if name else EVERY_ROW] = _count(count)
    return found


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def measure_row(name: str, bench: Bench, save: Callable[[Outcome], None]) -> Outcome:
    """One row, saved as far as it is done; a failure of it is reported and does not stop the others."""
    start = time.perf_counter()
    outcome = Outcome(row=name)
    try:
        for found in load_row(name).measure(bench):
            if isinstance(found, LeftOut):
                outcome = replace(outcome, parts=(*outcome.parts, found))
            else:
                outcome = replace(outcome, figures=(*outcome.figures, found))
            save(outcome)
    except Unavailable as reason:
        outcome = replace(outcome, skipped=str(reason))
    except (BeRuntimeError, OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
        _say(f"{name} failed: {error}")
        outcome = replace(outcome, skipped=FAILED)
    save(outcome)
    _say(f"{name}: {time.perf_counter() - start:.0f} s")
    return outcome


def _draw(outcomes: Sequence[Outcome], machine: dict[str, str | int | None], path: Path) -> None:
    try:
        plot.draw(outcomes, machine, path)
    except Unavailable as reason:
        _say(f"no picture: {reason}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
