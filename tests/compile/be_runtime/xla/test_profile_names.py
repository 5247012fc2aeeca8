"""Kernels in XLA's metadata and in profiles: each call has the names of module and function, and its caller's line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from tests.support.profiles import line_of, profile

SOURCE = r"""
#include "brainevent/common.h"
// @BE cube arg[...] ret[...]
void cube(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<float>() = *x.data_ptr<float>(); }
// @BE back arg[n] arg[n] ret[n]
void back(const BE::Tensor x, const BE::Tensor dy, BE::Tensor dx) { *dx.data_ptr<float>() = *dy.data_ptr<float>(); }
"""
X = jnp.arange(3.0)


@pytest.fixture(scope="module")
def cube() -> Any:
    cube = be_runtime.load_cpp_inline("named", SOURCE).cube
    cube.defvjp(None, "back")
    return cube


def _names(function: Callable[..., Any], *arrays: Any) -> list[str]:
    """The names of the kernels that the compiled program calls."""
    text = jax.jit(function).lower(*arrays).compile().as_text() or ""
    found = [re.search(r'op_name="([^"]*)"', line) for line in text.splitlines() if "custom-call(" in line]
    return sorted(match[1].rpartition("/")[2] for match in found if match)


def test_each_call_is_named_and_has_the_line_of_its_caller(cube: Any):
    def model(x: jax.Array) -> Any:
        y = cube(x)
        with jax.named_scope("mine"):
            return cube(3 * y)

    text = jax.jit(model).lower(X).as_text(debug_info=True)
    found = {match[1]: match[2] for match in re.finditer(r'loc\("(jit\(model\)[^"]*named\.cube)"\(#(loc\d+)\)', text)}
    assert len(found) == 2
    assert sum("mine/" in name for name in found) == 1
    lines = {line_of(model, "cube(x)"), line_of(model, "cube(3 * y)")}
    assert {_line(text, place) for place in found.values()} == lines


def _line(text: str, place: str) -> int:
    """The innermost line of a location: call sites and names lead to it."""
    (shown,) = re.findall(rf"^#{place} = loc\((.*)\)$", text, re.MULTILINE)
    file = re.match(r'"[^"]*\.py":(\d+):', shown)
    return int(file[1]) if file else _line(text, re.findall(r"#(loc\d+)", shown)[0])


def test_every_transformation_keeps_the_name(cube: Any):
    def loss(x: Any) -> Any:
        return cube(x).sum()

    assert _names(jax.vmap(cube), jnp.ones((2, 3))) == ["named.cube"]
    assert _names(cube.with_options(ordered=True), X) == ["named.cube"]
    assert _names(jax.grad(loss), X) == ["named.back"]
    assert _names(jax.value_and_grad(loss), X) == ["named.back", "named.cube"]
    assert _names(lambda x: jax.lax.map(cube, x), jnp.ones((2, 3))) == ["named.cube"]


def test_a_trace_of_the_profiler_shows_the_function_and_the_file_of_its_caller(cube: Any, tmp_path: Path):
    def step(x: jax.Array) -> Any:
        return cube(x) + 1

    compiled = jax.jit(step)
    compiled(X)
    found = profile(lambda: compiled(X), tmp_path)
    if not found.operations():
        pytest.skip("this JAX traces no operations of the CPU")
    assert b"/named.cube" in found.programs
    assert Path(__file__).name.encode() in found.programs
    if jax.__version_info__ >= (0, 8):  # older releases name operations by their kind
        assert any(name.startswith("named_cube") for name in found.operations())
