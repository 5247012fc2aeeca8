"""Tracebacks of public functions, without the frames of the packages and of JAX, as JAX removes its own."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from be_runtime.errors import BeRuntimeError
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.local_system import LocalSystem

P = ParamSpec("P")
R = TypeVar("R")

_ABOVE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100 - pathlib takes longer
_OURS = tuple(os.path.join(_ABOVE, package, "") for package in ("be_runtime", "be_toolchain"))  # noqa: PTH118
_NOTE = "be_runtime has removed its frames from the traceback; JAX_TRACEBACK_FILTERING=off shows them."


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function, so that tracebacks of its errors end at the user's line, see `hide_frames`."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return called


def hide_frames(error: BaseException) -> None:
    """Remove the frames of the packages and of JAX from an error, and from its causes that these frames caught.

    Other frames remain, such as an author's function that the package called. A ``raise`` afterwards adds no frame of
    its own function. If JAX's option ``jax_traceback_filtering`` is "off", all frames remain.
    """
    if filtering() == "off":
        return
    within = error.__traceback__
    while within is not None and within.tb_next is not None:
        within = within.tb_next
    is_ours = within is not None and within.tb_frame.f_code.co_filename.startswith(_OURS)
    notes = getattr(error, "__notes__", [])
    if is_ours and not isinstance(error, BeRuntimeError | ToolchainError) and _NOTE not in notes:
        error.add_note(_NOTE)
    jax = getattr(sys.modules.get("jax"), "__file__", None)
    theirs = (os.path.join(os.path.dirname(jax), ""),) if jax else ()  # noqa: PTH118, PTH120
    hidden = (*_OURS, *theirs, contextlib.__file__, functools.__file__)  # the last two call decorated functions
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = _shown(each.__traceback__, hidden)
        before = each.__cause__ or each.__context__
        if before is None or not _began_in(before, hidden):  # the user's code was handling it
            return
        if each.__cause__ is None and _shown(before.__traceback__, hidden) is None:
            each.__suppress_context__ = True
            return
        each = before


def filtering() -> str:
    """Return JAX's option for tracebacks, without an import of JAX."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return getattr(config, "jax_traceback_filtering", None) or LocalSystem().environ.get(
        "JAX_TRACEBACK_FILTERING", "auto"
    )


def _began_in(error: BaseException, hidden: tuple[str, ...]) -> bool:
    """Return whether a hidden frame caught an error."""
    traceback = error.__traceback__
    return traceback is None or traceback.tb_frame.f_code.co_filename.startswith(hidden)


def _shown(traceback: TracebackType | None, hidden: tuple[str, ...]) -> TracebackType | None:
    """Return a traceback without hidden frames."""
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(hidden):
            kept.append(traceback)
        traceback = traceback.tb_next
    shown = None
    for each in reversed(kept):
        shown = TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return shown
