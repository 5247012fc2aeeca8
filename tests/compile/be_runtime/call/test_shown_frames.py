"""Frames of errors of builds and of calls, in each of JAX's transformations: the user's alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime import CompiledModule, frames

PACKAGE = str(Path(be_runtime.__file__).parent)
X = np.ones(3, np.float32)
INTS = np.ones(3, np.int32)


def callback(*_: Any, **_keywords: Any) -> Any:
    raise ValueError("mine")


def given_rule(m: CompiledModule) -> Any:
    m.cube.defvjp(None, callback)
    return m.cube


CALLS: dict[str, Callable[[CompiledModule], Any]] = {
    "eager": lambda m: m.adds(INTS, X),
    "jit": lambda m: jax.jit(m.adds)(INTS, X),
    "jit of a function": lambda m: jax.jit(lambda x: m.adds(x + 1, X))(INTS),
    "attribute": lambda m: m.scaled(X, by="a"),
    "attribute inside jit": lambda m: jax.jit(lambda x: m.scaled(x, bye=1))(X),
    "vmap": lambda m: jax.vmap(lambda x: m.twice(x, outs=X))(np.ones((2, 3), np.float32)),
    "grad": lambda m: jax.grad(lambda x: m.twice(x).sum())(X),
    "callback": lambda m: m.twice(X, outs=callback),
    "callback of grad": lambda m: jax.grad(lambda x: given_rule(m)(x).sum())(X),
    "no function": lambda m: m.h,
    "no item": lambda m: m["h"],
    "option": lambda m: m.twice.with_options(vmap_method="x"),
    "rule": lambda m: m.twice.defvjp("a", "b"),
    "compile error": lambda _: be_runtime.load_cpp_inline("bad_frames", "// @BE f\nvoid f(BE::Tensor y) { oops; }"),
}


def caught(call: Callable[[CompiledModule], Any], m: CompiledModule) -> tuple[int, str]:
    """The package's frames in an error, and the function of the last frame."""
    with pytest.raises(Exception) as found:
        call(m)
    text = "".join(traceback.format_exception(found.value))
    return text.count(f'File "{PACKAGE}'), traceback.extract_tb(found.value.__traceback__)[-1].name


@pytest.mark.parametrize("way", CALLS)
def test_an_error_ends_at_the_users_line(way: str, m: CompiledModule) -> None:
    assert caught(CALLS[way], m) == (0, "callback" if "callback" in way else "<lambda>")
    before = frames.filtering()
    jax.config.update("jax_traceback_filtering", "off")
    try:
        assert caught(CALLS[way], m)[0] > 0
    finally:
        jax.config.update("jax_traceback_filtering", before)


def test_checked_calls_too() -> None:
    source = (
        '#include "brainevent/common.h"\n// @BE adds arg[n]:float32 ret\nvoid adds(const BE::Tensor, BE::Tensor) {}'
    )
    m = be_runtime.load_cpp_inline("checked_frames", source)
    with be_runtime.debug(on_finding="collect"):
        assert caught(CALLS["eager"], m) == (0, "<lambda>")
