"""Raw and Numba kernels with a signature, as far as they get without a device: traced, compiled and lowered."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, cuda_kernel, numba_cuda_kernel
from tests.support.kernel_calls import attributes, kernel_calls

SOURCE = """
__global__ void rows(const float* x, float* y, float* room, int n, float by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { room[i] = x[i]; y[i] = by * room[i]; }
}
"""
X = np.zeros(300, np.float32)
SIGNATURE = "arg[... k] ret[... k] scratch[4*k] attr.by=2"


def rows(**options: Any) -> Any:
    defaults: dict[str, Any] = {"signature": SIGNATURE, "grid": "ceil(k/256)", "block": 256}
    return cuda_kernel(SOURCE, "rows", **defaults | options)


def numba_rows(**options: Any) -> Any:
    cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda

    @cuda.jit
    def rows(x, y, room):
        i = cuda.grid(1)
        if i < y.size:
            room[i] = i % 2
            y[i] = room[i] * x[i]

    return numba_cuda_kernel(rows, **{"signature": "arg[k] ret[k] scratch[4*k]", "launch_dims": "k"} | options)


def traced(function: Any, *arrays: Any, **scalars: Any) -> tuple[Any, dict[str, Any]]:
    """The types of the operation's results, and its attributes."""
    (call,) = kernel_calls(lambda *given: function(*given, **scalars), *arrays)
    return [str(var.aval) for var in call.outvars], attributes(call)


def test_a_raw_call_is_what_its_signature_says():
    results, given = traced(rows(), X, n=300)
    assert results == ["float32[300]", "uint8[1280]"], "scratch memory of a batch begins at multiples of 256"
    assert given["launch"].tolist() == [2, 1, 1, 256, 1, 1, 0, 1, 1, 1, 0, 0]
    two = int(np.float32(2).view(np.int32))
    assert given["params"].reshape(-1, 4)[:, :2].tolist() == [[0, 0], [0, 1], [0, 2], [2, 300], [2, two]]
    np.testing.assert_array_equal(traced(rows(), X, n=300, by=2.0)[1]["params"], given["params"])


COUNTED = """
__global__ void counted(const float* x, float* y, unsigned char n, long long k, float m) { y[0] = x[0] * n * k * m; }
"""


def counted(signature: str, **options: Any) -> Any:
    return cuda_kernel(COUNTED, "counted", **{"signature": signature, "grid": 1, "block": 1, **options})


def test_a_scalar_with_the_name_of_an_axis_is_its_extent():
    x = np.zeros((3, 4), np.float32)
    call = counted("arg[n k] ret[n] parallel[n]")
    numbers = traced(call, x, m=0)[1]["params"].reshape(-1, 4)[:, :2].tolist()
    assert numbers == [[0, 0], [0, 1], [2, 3], [2, 4], [2, 0]]
    assert traced(call, x, m=0, n=3, k=4)[1]["params"].reshape(-1, 4)[:, :2].tolist() == numbers
    (equation,) = kernel_calls(lambda x: call(x, m=0), x)
    (_, launch), (_, params) = equation.params["call"].split.computed
    assert (launch[0], params[2 * 4 + 1], params[3 * 4 + 1]) == ("1", "n", "k"), "each device has an extent of its own"
    (equation,) = kernel_calls(lambda x: call(x, m=0, n=2, k=4), x)
    (_, _), (_, params) = equation.params["call"].split.computed
    assert (params[2 * 4 + 1], params[3 * 4 + 1]) == ("2", "k"), "a count of the caller's own is everywhere the same"
    tall = np.zeros((256, 1), np.float32)
    assert traced(call, tall, m=0, n=2)[1]["params"].reshape(-1, 4)[2, 1] == 2, "the extent may be too large"
    needs_n, needs_m = counted("arg[n k] ret[1]", grid="attr.n"), counted("arg[n m] ret[1] attr.k=1")
    refused: list[tuple[Any, Any, dict[str, Any], str]] = [
        (call, tall, {"m": 0}, "axis n is 256, too large for unsigned char"),
        (call, x, {}, "needs the attribute 'm'"),
        (needs_n, x, {"m": 0}, "needs the attribute 'n'"),
        (needs_m, x, {"n": 3}, "needs the attribute 'm'"),
    ]
    for function, array, scalars, message in refused:
        with pytest.raises(ArgumentError, match=message):
            traced(function, array, **scalars)
    assert traced(needs_m, x, m=0)[1]["params"].reshape(-1, 4)[2:4, 1].tolist() == [3, 1]


def test_a_numba_call_is_what_its_signature_says():
    results, given = traced(numba_rows(), X)
    assert results == ["float32[300]", "uint8[1200]"]
    assert given["launch"][:6].tolist() == [2, 1, 1, 256, 1, 1]


@pytest.mark.parametrize("options", [{"extra_include_paths": ["headers"]}, {"extra_cuda_cflags": ["-Iheaders"]}])
def test_relative_folders_are_those_of_where_the_function_was_made(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "factor.h").write_text("#define FACTOR 2\n")
    monkeypatch.chdir(tmp_path)
    source = f'#include "factor.h"\n{SOURCE.replace("by * room", "FACTOR * room")}'
    function = cuda_kernel(source, "rows", signature=SIGNATURE, grid=1, block=1, **options)
    monkeypatch.chdir("/")
    assert traced(function, X, n=300)[0] == ["float32[300]", "uint8[1280]"]


def test_leading_axes_are_a_batch():
    (call,) = kernel_calls(jax.vmap(lambda x: rows()(x, n=300)), np.stack([X] * 3))
    assert [str(var.aval) for var in call.outvars] == ["float32[3,300]", "uint8[3,1280]"]


@pytest.mark.parametrize("make", [rows, numba_rows])
def test_effects_and_layouts_are_in_the_program(make: Any):
    scalars = {"n": 300} if make is rows else {}

    def lowered(**options: Any) -> str:
        function = make(**options)
        program = jax.jit(lambda x: function(x, **scalars))
        return str(program.trace(X).lower(lowering_platforms=("cuda",)).as_text())

    plain, kept, ordered = lowered(), lowered(has_side_effect=True), lowered(ordered=True)
    assert "has_side_effect" not in plain
    assert "has_side_effect = true" in kept
    assert ("token" in kept, "token" in ordered) == (False, True)
    assert "@be_runtime.launch(%arg1, %arg0)" in ordered
    wide = np.zeros((2, 300), np.float32)
    turned = rows(signature="arg[m k] ret[m k] scratch[4*k]", input_layouts=[(1, 0)])
    program = jax.jit(lambda x: turned(x, n=300, by=1)).trace(wide).lower(lowering_platforms=("cuda",))
    assert "operand_layouts = [dense<[0, 1]>" in program.as_text()
