"""Calls of entry points and kernels while JAX traces a program."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax

from be_runtime.errors import shown_path
from be_runtime.xla import jax_internals
from be_runtime.xla.arrays import ArraySpec
from be_runtime.xla.kernel_call.call_primitive import KernelCall, kernel_call


def bind(operands: Sequence[Any], *, results: Sequence[ArraySpec], **fields: Any) -> Sequence[Any]:
    """Call a target, while a program is traced.

    Parameters
    ----------
    operands : sequence of array
    results : sequence of ArraySpec
    **fields
        The other fields of `KernelCall`.
    """
    structs = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype.name) for each in results)
    bound: Sequence[Any] = kernel_call.bind(
        *jax_internals.vary_alike(*operands), call=KernelCall(results=structs, **fields)
    )
    return bound


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call with arrays of some types; within another program it leaves no trace."""
    return jax.jit(function, inline=True)


def caller() -> str:
    """Return the line of an author's code that the call being traced comes from, as ``train.py:33 in step``."""
    found = jax_internals.user_line()
    if found is None:
        return ""
    file, line, function = found
    return f"{_cell(file) or shown_path(file)}:{line}" + (f" in {function}" if function else "")


def _cell(file: str) -> str:
    """Return the cell of a notebook that IPython runs as a file, as ``Cell In[3]``; empty for any other file."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = None if shell is None else shell.compile.format_code_name(file)
    return "" if named is None else " ".join(named)


@functools.cache
def _mode() -> Callable[[Hashable], contextlib.AbstractContextManager[None]]:
    """Make the context whose value is part of what JAX knows its programs by; there is none before JAX 0.8."""
    if hasattr(jax, "make_user_context"):
        made: Callable[[Hashable], contextlib.AbstractContextManager[None]] = jax.make_user_context(default_value=None)
        return made
    return _forgetting


@contextlib.contextmanager
def _forgetting(_value: Hashable) -> Iterator[None]:
    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


def traced_anew(value: Hashable) -> contextlib.AbstractContextManager[None]:
    """Let this thread use programs meanwhile that were traced with an equal value, and no others."""
    return _mode()(value)
