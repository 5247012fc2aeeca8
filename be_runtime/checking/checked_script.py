"""The process of a program that is checked: ``TOOL RECORD script|module NAME [ARGUMENT ...]``.

It runs the program as Python does, and leaves a record for the process that started it. Under the guard, checked mode
is on, and collects.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from be_runtime.control import debug

_INNER = tuple(f"/{package}/" for package in ("be_runtime", "jax", "jaxlib"))
"""Parts of the paths of files that are not the program's."""


class End(NamedTuple):
    """The end of a program.

    Parameters
    ----------
    code : int
        Exit code.
    error : str
        The error that ended it, in a line.
    place : str
        The last line of the program's own that the error came through.
    """

    code: int
    error: str = ""
    place: str = ""


def main(argv: Sequence[str]) -> int:
    """Run a program, write its record, and return its exit code."""
    tool, record, kind, name, *arguments = argv
    sys.argv = [name, *arguments]
    sys.path[0] = str(Path(name).resolve().parent) if kind == "script" else str(Path.cwd())
    checking: Any = debug(on_finding="collect") if tool == "guard" else contextlib.nullcontext()
    with checking as found:
        end = _run(lambda: _run_program(kind, name))
        _wait()
        findings = [] if found is None else [each._asdict() for each in found]
        notes = () if found is None else found.notes
    outcome = {"findings": findings, "notes": notes, "targets": _targets(), **end._asdict()}
    Path(record).write_text(json.dumps(outcome), encoding="utf-8")
    return end.code


def _run_program(kind: str, name: str) -> None:
    if kind == "module":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")


def _run(program: Callable[[], None]) -> End:
    """Run the program; print its error without frames of ours."""
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return End(end.code or 0)
        sys.stderr.write(f"{end.code}\n")
        return End(1, str(end.code))
    except BaseException as error:  # noqa: BLE001 - as Python does
        trace = error.__traceback__
        while trace is not None and _is_starter(trace):
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace or error.__traceback__)
        own = [frame for frame in traceback.extract_tb(trace) if not any(part in frame.filename for part in _INNER)]
        place = f"{_shown(own[-1].filename)}:{own[-1].lineno} in {own[-1].name}" if own else ""
        return End(1, "".join(traceback.format_exception_only(error)).strip().splitlines()[0], place)
    return End(0)


def _is_starter(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>")


def _shown(file: str) -> str:
    return file.removeprefix(f"{Path.cwd()}/")


def _wait() -> None:
    """Wait for work that the program left to the devices."""
    jax = sys.modules.get("jax")
    if jax is not None:
        with contextlib.suppress(Exception):  # an error of the program, which it did not wait for
            jax.effects_barrier()


def _targets() -> dict[str, tuple[str, ...]]:
    """Return the names of the targets on each platform."""
    from be_runtime.load.process import PROCESS

    return {platform: PROCESS.registry.names(platform) for platform in ("cpu", "CUDA")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
