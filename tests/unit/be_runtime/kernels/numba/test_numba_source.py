"""What is known of a Numba kernel without Numba."""

from __future__ import annotations

from typing import Any

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.kernels.numba.numba_source import (
    batched_source,
    check_count,
    direct_writes,
    entry_in_ptx,
    free_axis,
    missing_functions,
)

cuda: Any = None
stwt: Any = None


def counts(x: Any, y: Any, out: Any) -> None:
    i = cuda.grid(1)
    value = x[i]
    cuda.atomic.add(out, i, value)
    if value > 0:
        cuda.atomic.max(y, (i, 0), 1)


def stores(x: Any, y: Any, out: Any) -> None:
    value = cuda.ldcs(x, 0)
    cuda.stcs(out[1:], 0, value)
    stwt(y, 0, value)


def assigns(x: Any, out: Any) -> None:
    out[0] = x[0]


def test_what_an_operation_writes_is_named():
    assert direct_writes(counts) == {"out": "an atomic operation", "y": "an atomic operation"}
    assert direct_writes(stores) == {"out": "a cuda.stcs", "y": "a cuda.stwt"}
    assert direct_writes(assigns) == {}


def test_a_kernel_takes_inputs_then_outputs():
    assert check_count(counts, 2, 1) == ("x", "y", "out")
    with pytest.raises(ArgumentError, match=r"counts\(x, y, out\) takes 3 arrays, but the call has 1 inputs and 1"):
        check_count(counts, 1, 1)


@pytest.mark.parametrize("function", [lambda *arrays: None, lambda x, out=None: None, lambda x, *, out: None])
def test_a_kernel_has_named_arrays_alone(function: Any):
    with pytest.raises(ArgumentError, match="the arrays of a call, each named"):
        check_count(function, 1, 1)


PTX = """
.extern .func  (.param .b32 func_retval0) vprintf
(
);
.extern .func  (.param .b64 func_retval0) cudaCGGetIntrinsicHandle
(
);
.extern .func numba_helper
();
.extern .shared .align 16 .b8 shared[];
.visible .entry _ZN4main5scale$E(
"""


def test_ptx_says_what_it_lacks_and_what_it_has():
    assert missing_functions(PTX) == ("cudaCGGetIntrinsicHandle", "numba_helper")
    assert entry_in_ptx(PTX) == "_ZN4main5scale$E"


@pytest.mark.parametrize(
    ("registers", "axis"),
    [((), 2), (("%ctaid.x", "%nctaid.x"), 2), (("%ctaid.z",), 1), (("%nctaid.z",), 1), (("%ctaid.z", "%ctaid.y"), 0)],
)
def test_free_axis(registers: tuple[str, ...], axis: int):
    assert free_axis("\n".join(f"mov.u32 %r1, {register};" for register in registers)) == axis


@pytest.mark.parametrize("axis", [1, 2])
def test_batched_source_takes_slices(axis: int):
    called: list[Any] = []

    class Block:
        y, z = 2, 3

    class Cuda:
        blockIdx = Block  # noqa: N815 - its name in CUDA

    class Array:
        def __init__(self, size: int) -> None:
            self.shape = (size,)

        def __getitem__(self, index: int) -> int:
            return index

    namespace: dict[str, Any] = {"cuda": Cuda, "kernel": lambda *slices: called.append(slices)}
    exec(batched_source("scale", 2, axis), namespace)  # noqa: S102 - what is tested
    namespace["scale_batched"](Array(1), Array(5))
    assert called == [(0, axis + 1)]
