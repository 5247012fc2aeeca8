"""The process of a checked program: ``TOOL RECORD script|module NAME [ARGUMENT ...]``.

The process runs the program in checked mode, and writes a record for its parent.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import resource
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.checks import Finding, parse_checks
from be_runtime.debugging.sanitizers import SANITIZED
from be_runtime.errors import FindingError, shown_path
from be_runtime.load.checked_mode import Debugging
from be_runtime.load.process import PROCESS
from be_runtime.store.index import IMAGES

_IMAGE = re.compile(rf"/{IMAGES}/[0-9a-f]{{64}}\.so$")
"""The end of the path of a compiled module."""

_STARTERS = (__file__, runpy.__file__, "<frozen runpy>")
_INNER = tuple(
    f"/{folder}/{package}/" for folder in ("site-packages", "dist-packages") for package in ("jax", "jaxlib")
)
"""Parts of the paths of JAX's files."""

_LARGEST_STACK = 1 << 30
"""The limit, in bytes, for a stack without a limit, since an endless recursion would take all memory."""


class End(NamedTuple):
    """The end of a program.

    Parameters
    ----------
    code : int
        Exit code.
    error : str
        The error that ended the program, in one line.
    place : str
        The innermost line of the program's own files in the error's traceback.
    findings : tuple of Finding
        The findings of the error, for example from a process that the program started.
    """

    code: int
    error: str = ""
    place: str = ""
    findings: tuple[Finding, ...] = ()


def main(argv: Sequence[str]) -> int:
    """Run a program, write its record, and return its exit code."""
    tool, record, kind, name, *arguments = argv
    process = os.getpid()
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_STACK, (_LARGEST_STACK, hard))
    sys.argv = [name, *arguments]
    sys.path[0] = str(Path(name).resolve().parent) if kind == "script" else str(Path.cwd())
    with contextlib.ExitStack() as stack:
        if tool not in SANITIZED:  # their own handlers print more
            faulthandler.enable(stack.enter_context(Path(f"{record}.dump").open("w", encoding="utf-8")))
        found = stack.enter_context(_checked(tool, Path(f"{record}.calls")))
        end = _run(kind, name)
        _wait()
        outcome = {
            **end._asdict(),
            "targets": {platform: PROCESS.registry.names(platform) for platform in ("cpu", "CUDA")},
            "libraries": _libraries(),
            "findings": [each._asdict() for each in (*found, *end.findings)],
            "notes": found.notes,
            "calls": {kernel: [*lines] for kernel, lines in found.calls.items()},
        }
    if os.getpid() == process:  # a forked child may end here too
        Path(record).write_text(json.dumps(outcome), encoding="utf-8")
    return end.code


def _checked(tool: str, calls: Path) -> Debugging:
    """Turn on checked mode. Its guards also serve sanitizers: each array of a kernel is an allocation of its own.

    ``BE_DEBUG`` is for processes that the program starts, so it is turned off here.
    """
    PROCESS.settings()
    PROCESS.debug(None)
    checking = PROCESS.debug(parse_checks("all" if tool == "guard" else "guards", "collect"))
    checking.leave_breadcrumbs(calls)
    return checking


def _run(kind: str, name: str) -> End:
    """Run the program; print its error without the frames of this file."""
    try:
        if kind == "module":
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return End(end.code or 0)
        sys.stderr.write(f"{end.code}\n")
        return End(1, str(end.code))
    except BaseException as error:  # noqa: BLE001 - as Python does
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in _STARTERS:
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
        own = [frame for frame in traceback.extract_tb(trace) if is_own(frame.filename)]
        place = f"{shown_path(own[-1].filename)}:{own[-1].lineno} in {own[-1].name}" if own else ""
        findings = error.findings if isinstance(error, FindingError) else ()
        return End(1, _line(error), place, findings)
    return End(0)


def _line(error: BaseException) -> str:
    """Return an error in one line; Python's text of a syntax error begins with the place."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[0]


def is_own(file: str) -> bool:
    """Return whether a file belongs to the program, and not to JAX, this package or Python."""
    ours = file.startswith(f"{Path(__file__).parents[1]}/")
    return not ours and file not in _STARTERS and not any(part in file for part in _INNER)


def _wait() -> None:
    """Wait for the devices to end their work."""
    jax = sys.modules.get("jax")
    if jax is not None:
        with contextlib.suppress(Exception):  # an error of work that the program did not wait for
            jax.effects_barrier()


def _libraries() -> list[str]:
    """Return the paths of the libraries of modules that this process has loaded."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    mapped = {line.split(maxsplit=5)[-1] for line in maps}
    return sorted(path for path in mapped if _IMAGE.search(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
