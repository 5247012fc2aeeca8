"""Tiers: a test's folder says what it costs, and this file says what each tier needs.

A missing requirement skips with its reason. `BE_REQUIRE_TIERS=compile,cuda` promises tiers: there a skip is a failure,
but for tests that ask for an extra program by `@pytest.mark.needs("clang++")`.
Tests marked `full` run with `BE_FULL=1` only, which `make test-full` sets; docs/contributing.md lists what they check.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support import faults, requirements

ROOT = Path(__file__).resolve().parent.parent
TIERS = ("unit", "compile", "faults", "cuda", "gpu", "packaging")
PROMISED = frozenset(filter(None, os.environ.get("BE_REQUIRE_TIERS", "").split(",")))
LEFT_OUT = pytest.StashKey[int]()
collect_ignore = [] if importlib.util.find_spec("triton") else ["support/triton_kernels.py"]

NUMBA_DOCTESTS = frozenset({"be_runtime/kernels/numba/cpu.py"})
COMPILING_DOCTESTS = frozenset(
    {
        "be_runtime/api/both.py",
        "be_runtime/api/cpp.py",
        "be_runtime/call/function.py",
        "be_runtime/load/module.py",
        "be_runtime/numpy.py",
        *NUMBA_DOCTESTS,
    }
)

if "jax" not in sys.modules:  # a tier's conftest, which imports it, is loaded before pytest_configure runs
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2".strip()
    # Several test processes share one device.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

NEEDS_FULL = ("recipe/", "docker/", "pyproject.toml", "MANIFEST.in")
"""Files whose changes only `make test-full` checks from end to end; so do changes of package data."""

_IMPORTS = {"numba_kernels.py": "numba_cuda_mlir", "cpu_handler.py": "numba", "warp_kernels.py": "warp"}
_ABSENT = {name for name, package in _IMPORTS.items() if importlib.util.find_spec(package) is None}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore modules whose packages are absent: pytest imports every module to look for doctests."""
    return True if collection_path.name in _ABSENT else None


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests out of the user's cache."""
    unknown = PROMISED.difference(TIERS)
    if unknown:
        message = f"BE_REQUIRE_TIERS names unknown tiers: {', '.join(sorted(unknown))}; there are {', '.join(TIERS)}"
        raise pytest.UsageError(message)
    if "BE_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="be-tests-")
        os.environ["BE_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background jobs ignore interrupts, and so does all that they start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PIP_CERT" in os.environ:
        os.environ.setdefault("SSL_CERT_FILE", os.environ["PIP_CERT"])  # what uv calls the same certificates


def _tier(path: Path) -> str | None:
    """The tier of a test file: its first folder below tests/, else unit, but for doctests that compile."""
    if not path.is_relative_to(ROOT):
        return None
    relative = path.relative_to(ROOT)
    if relative.parts[0] == "tests" and len(relative.parts) > 2:
        return relative.parts[1] if relative.parts[1] in TIERS else None
    return "compile" if relative.as_posix() in COMPILING_DOCTESTS else "unit"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and skip it when the tier's requirement, or the test's own, is missing."""
    if os.environ.get("BE_FULL", "0") == "0":
        longer = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=longer)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.stash[LEFT_OUT] = len(longer)
    for item in items:
        tier = _tier(item.path)
        if tier is not None:
            item.add_marker(getattr(pytest.mark, tier))
            reason = requirements.missing(tier)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"tier {tier}: {reason}"))
        is_numba = any(item.path == ROOT / name for name in NUMBA_DOCTESTS)
        if is_numba and importlib.util.find_spec("numba") is None:
            item.add_marker(pytest.mark.skip(reason="numba is not installed"))
        absent = [p for mark in item.iter_markers("needs") for p in mark.args if shutil.which(p) is None]
        if absent:
            item.add_marker(pytest.mark.skip(reason=requirements.OPTIONAL + ", ".join(absent)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the number of tests that a worker of xdist left out to the process that prints it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the number that `pytest_sessionfinish` hands over; each worker has the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def _last_commit_needs_full() -> list[str]:
    """Return the files of the last commit that `NEEDS_FULL` names, and those that are package data."""
    command = ["git", "-C", str(ROOT), "show", "--format=", "--name-only", "HEAD"]
    try:
        changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []  # an unpacked sdist
    data = [name for name in changed if name.startswith("be_") and not name.endswith(".py")]
    return [*(name for name in changed if name.startswith(NEEDS_FULL)), *data]


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a report says skipped."""
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
Hook = Generator[None, Report, Report]


def _promised(report: Report, path: Path) -> Report:
    """Turn a skip in a promised tier into a failure."""
    expected = hasattr(report, "wasxfail") or requirements.OPTIONAL in _reason(report)
    if report.skipped and not expected and _tier(path) in PROMISED:
        report.outcome = "failed"
        report.longrepr = f"skipped, but BE_REQUIRE_TIERS promises this tier: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Hook[pytest.TestReport]:
    """Judge the report of a test."""
    return _promised((yield), item.path)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Hook[pytest.CollectReport]:
    """Judge that of a module, which may skip as a whole."""
    return _promised((yield), collector.path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print why tests were skipped, what the tier of faults tried (handed over at tear-down), and what was left out.

    Pytest's own list follows, which has failures and errors alone: they stand at the very end.
    """
    reasons = Counter(_reason(each).removeprefix("Skipped: ") for each in terminalreporter.stats.get("skipped", ()))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")
    reports = (each for kind in terminalreporter.stats.values() for each in kind)
    ends = [each for each in reports if getattr(each, "when", "") == "teardown"]
    rows = [row for each in ends for name, row in each.user_properties if name == faults.PROPERTY]
    for line in faults.summary(rows):
        terminalreporter.write_line(line)
    left_out = config.stash.get(LEFT_OUT, 0)
    if left_out:
        said = "make test-full runs them, docs/contributing.md lists them"
        terminalreporter.write_line(f"left out {left_out} tests; {said}")
        changed = _last_commit_needs_full()
        if changed:
            terminalreporter.write_line(f"run make test-full: the last commit changes {', '.join(changed)}", red=True)


@pytest.fixture(autouse=True)
def usual_cache() -> Generator[None]:
    """The cache folder that a test chooses is not the next test's."""
    yield
    if "be_runtime" in sys.modules:
        sys.modules["be_runtime"].set_cache_dir(None)


@pytest.fixture
def tmp_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own, for this process and those that it starts."""
    import be_runtime

    folder = tmp_path / "cache"
    monkeypatch.setenv("BE_CACHE_DIR", str(folder))
    be_runtime.set_cache_dir(folder)
    return folder
