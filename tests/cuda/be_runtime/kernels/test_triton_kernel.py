"""Triton kernels, compiled and lowered without a device."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, triton_kernel
from tests.support.kernel_calls import attributes, kernel_calls
from tests.support.requirements import OPTIONAL

triton: Any = pytest.importorskip("triton", reason=f"{OPTIONAL}triton", exc_type=ImportError)
import triton.language as tl  # noqa: E402


@triton.jit
def add(x, y, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + scale * tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def described(x, out, n, BLOCK: tl.constexpr):
    """A tensor descriptor made on the device: Triton wants global scratch memory for it."""
    d = tl.make_tensor_descriptor(x, shape=[n], strides=[1], block_shape=[BLOCK])
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), d.load([tl.program_id(0) * BLOCK]))


ADD = "arg[n] arg[n] ret[n] attr.scale:float32"
X = np.zeros(4000, np.float32)


@pytest.fixture(autouse=True)
def _fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # else Triton 3.9 warns


def function(kernel: Any = add, signature: str = ADD, **options: Any) -> Any:
    return triton_kernel(kernel, signature, **{"grid": "ceil(n/BLOCK)", "BLOCK": 1024} | options)


def test_a_call_for_cuda_has_the_arrays_the_axis_the_scalar_and_two_null_pointers():
    call = function()
    (equation,) = kernel_calls(lambda x: call(x, x, scale=2), X)
    given = attributes(equation)
    assert given["launch"].tolist() == [4, 1, 1, 128, 1, 1, 0, 1, 1, 1, 0, 0]
    two = int(np.float32(2).view(np.int32))
    wanted = [[0, 0], [0, 1], [0, 2], [2, 4000], [2, two], [2, 0], [2, 0]]
    assert given["params"].reshape(-1, 4)[:, :2].tolist() == wanted
    text = jax.jit(lambda x: call(x, x, scale=2)).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call @be_runtime.launch(" in text
    assert f'kernel = "{given["kernel"]}"' in text


def test_another_dtype_or_constant_is_another_kernel():
    def id_of(x: Any, **options: Any) -> Any:
        (equation,) = kernel_calls(lambda x: function(**options)(x, x, scale=2), x)
        return attributes(equation)["kernel"]

    assert id_of(X) == id_of(X)
    assert len({id_of(X), id_of(X.astype(np.float16)), id_of(X, BLOCK=512), id_of(X[:17]), id_of(X, num_warps=8)}) == 5


def test_memory_that_triton_wants_is_from_xla():
    call = function(described, "arg[n]:float32 ret[n]", BLOCK=128)
    x = np.zeros(512, np.float32)
    (equation,) = kernel_calls(call, x)
    assert [str(var.aval) for var in equation.outvars] == ["float32[512]", "uint8[512]"]
    assert attributes(equation)["params"].reshape(-1, 4)[3].tolist() == [0, 2, 1, 8]


def test_vmap_is_one_call():
    call = function(signature="arg[... n] arg[... n] ret[... n] attr.scale:float32")
    (equation,) = kernel_calls(jax.vmap(lambda x: call(x, x, scale=2)), np.stack([X, X]))
    assert [str(var.aval) for var in equation.outvars] == ["float32[2,4000]"]


def test_what_does_not_fit_is_refused():
    for options, message in (
        (
            {"signature": "arg[n] ret[n] attr.scale:float32"},
            "add takes x, y, out, n, scale, and n by axes, but .* 3 tok",
        ),
        ({"signature": "arg[n] arg[n] ret[n] attr.by:float32"}, "attr.by is in the place of the parameter scale"),
        ({"SIZE": 3}, "add has no constant SIZE; its constants are: BLOCK"),
        ({"kernel": len}, "must be decorated with @triton.jit"),
        ({"kernel": triton.autotune([triton.Config({"BLOCK": 64})], key=[])(add)}, "(?s)@triton.autotune.*autotune"),
    ):
        with pytest.raises(ArgumentError, match=message):
            function(**options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="needs the constant BLOCK"):
        triton_kernel(add, ADD, grid=1)
