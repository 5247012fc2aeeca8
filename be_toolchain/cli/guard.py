"""The frame of a command line: it handles closed streams, broken pipes, Ctrl-C and internal errors."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable

from be_toolchain.terminal import INTERNAL, INTERRUPTED_BY_USER, NOT_WRITTEN, READER_GONE, say, say_error


def guarded(run: Callable[[], int], package: str) -> int:
    """Run a command, and return its exit code.

    Parameters
    ----------
    run : callable
        The command. Its usage errors raise SystemExit, as argparse does.
    package : str
        The package that the message about an internal error names.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the stream was closed before Python started
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115, PTH123 - open until the end
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")  # a path that is not UTF-8 is printed as it is
    try:
        try:
            return _run(run, package)
        finally:
            sys.stdout.flush()  # argparse raises SystemExit after it has printed its help
    except OSError as error:
        if not _is_about_output(error):
            raise
        silence = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(silence, stream.fileno())  # otherwise Python's own flush at exit fails
        if isinstance(error, BrokenPipeError):
            return READER_GONE
        say_error(f"can't write: {error}")
        return NOT_WRITTEN
    except KeyboardInterrupt:
        say("interrupted", file=sys.stderr)
        return INTERRUPTED_BY_USER


def _run(run: Callable[[], int], package: str) -> int:
    """Run the command, and report an internal error; errors of the output are left to the caller."""
    try:
        return run()
    except Exception as error:
        if isinstance(error, OSError) and _is_about_output(error):
            raise
        # An internal error has an exit code of its own, so that it does not look like a verdict on the machine.
        import traceback

        say(traceback.format_exc(), sys.stderr)
        say(f"internal error of {package}: report the lines above", file=sys.stderr)
        return INTERNAL


def _is_about_output(error: OSError) -> bool:
    """Return whether the reader is gone or the disk is full, which are not internal errors."""
    return error.errno in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT)
