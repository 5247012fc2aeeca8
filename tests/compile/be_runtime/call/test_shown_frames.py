"""Frames of errors of builds and of calls, in each of JAX's transformations: the user's alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import CompiledModule, frames

PACKAGE = str(Path(be_runtime.__file__).parent)
SOURCE = """
#include "brainevent/common.h"
// @BE f arg[n]:float32 ret[n]:float32 attr.k:int32=1
void f(const BE::Tensor x, BE::Tensor y, int k) { y.data_ptr<float>()[0] = k; }
// @BE g arg[n]:float32 ret:float32
void g(const BE::Tensor x, BE::Tensor y) {}
"""
X = np.ones(3, np.float32)
INTS = np.ones(3, np.int32)
OUT = jax.ShapeDtypeStruct((3,), jnp.float32)


def callback(*_: Any, **_keywords: Any) -> Any:
    raise ValueError("mine")


def given_rule(m: CompiledModule) -> Any:
    function = m.f.with_options()
    function.defvjp(None, callback)
    return function


CALLS: dict[str, Callable[[CompiledModule], Any]] = {
    "eager": lambda m: m.f(INTS),
    "jit": lambda m: jax.jit(m.f)(INTS),
    "jit of a function": lambda m: jax.jit(lambda x: m.f(x + 1))(INTS),
    "attribute": lambda m: m.f(X, k="a"),
    "attribute inside jit": lambda m: jax.jit(lambda x: m.f(x, kk=1))(X),
    "vmap": lambda m: jax.vmap(lambda x: m.g(x, outs=OUT))(np.ones((2, 3), np.float32)),
    "grad": lambda m: jax.grad(lambda x: m.f(x).sum())(X),
    "callback": lambda m: m.g(X, outs=callback),
    "callback of grad": lambda m: jax.grad(lambda x: given_rule(m)(x).sum())(X),
    "no function": lambda m: m.h,
    "no item": lambda m: m["h"],
    "option": lambda m: m.f.with_options(vmap_method="x"),
    "rule": lambda m: m.f.defvjp("a", "b"),
    "compile error": lambda _: be_runtime.load_cpp_inline("bad_frames", SOURCE.replace("{}", "{ oops; }")),
}


@pytest.fixture(scope="module", name="module")
def _module() -> CompiledModule:
    return be_runtime.load_cpp_inline("shown_frames", SOURCE)


def caught(call: Callable[[CompiledModule], Any], module: CompiledModule) -> tuple[int, str]:
    """The package's frames in an error, and the function of the last frame."""
    with pytest.raises(Exception) as found:
        call(module)
    text = "".join(traceback.format_exception(found.value))
    return text.count(f'File "{PACKAGE}'), traceback.extract_tb(found.value.__traceback__)[-1].name


@pytest.mark.parametrize("way", CALLS)
def test_an_error_ends_at_the_users_line(way: str, module: CompiledModule) -> None:
    assert caught(CALLS[way], module) == (0, "callback" if "callback" in way else "<lambda>")
    before = frames.filtering()
    jax.config.update("jax_traceback_filtering", "off")
    try:
        assert caught(CALLS[way], module)[0] > 0
    finally:
        jax.config.update("jax_traceback_filtering", before)


def test_checked_calls_too(module: CompiledModule) -> None:
    with be_runtime.debug(on_finding="collect"):
        assert caught(CALLS["eager"], module) == (0, "<lambda>")
