"""What is known of a Numba kernel without Numba, and what is advised about one that Numba refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.kernels.numba import numba_source
from be_runtime.kernels.numba.cpu.signature import check_count, signature_of
from be_runtime.kernels.numba.gpu.ptx_words import check_words
from be_runtime.kernels.numba.numba_hints import augmented, hints
from be_runtime.kernels.numba.numba_source import direct_writes
from be_runtime.xla.arrays import ArraySpec
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

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


def adds(x: Any, y: Any, out: Any) -> None:
    x += y
    out[0] **= 2


def adds_to_output(x: Any, y: Any, out: Any) -> None:
    out *= "s"


def adds_to_view(x: Any, y: Any, out: Any) -> None:
    view = x[1:]
    view |= y


def assigns(x: Any, y: Any, out: Any) -> None:
    out[0] = x[0] + y[0]


def takes_any(*arrays: Any) -> None:
    pass


def with_default(x: Any, out: Any, count: int = 3) -> None:
    pass


def test_what_operations_and_operators_write_is_named():
    assert direct_writes(counts) == {"out": "an atomic operation", "y": "an atomic operation"}
    assert direct_writes(stores) == {"out": "a cuda.stcs", "y": "a cuda.stwt"}
    assert direct_writes(assigns) == {}
    assert [augmented(each) for each in (adds, adds_to_view, assigns)] == [{"x": "+="}, {"view": "|="}, {}]


OPERATOR = "'NoneType' object has no attribute 'args'"
NUMBER = "No implementation of function Function(<class 'range'>) ... range(readonly array(int32, 0d, C))"
WRITE = "setitem(readonly array(int32, 0d, C), Tuple(), int64)"
X, N, HALF = (
    ArraySpec(BY_NAME[name], shape) for name, shape in (("float32", (3, 4)), ("int64", ()), ("bfloat16", (2,)))
)


def test_what_is_said_of_refused_kernels():
    """An operator is blamed on what it writes, and a write comes before a number."""
    functions = (adds, adds_to_output, adds_to_view, assigns, takes_any)
    rows = [f"{each.__name__}: {hints(each, [1, 1], [1], OPERATOR)}" for each in functions]
    rows += [f"numbers: {hints(each, [0, 1], [0], NUMBER)}" for each in (adds, takes_any)]
    rows.append(f"a write of a number: {hints(adds, [0, 1], [1], WRITE)}")
    for inputs in range(4):
        rows.append(f"{inputs} inputs: {answer(check_count, adds, 'f', signature_of([X] * inputs, [X]))}")
        signature = signature_of([X] * inputs, [X])
        rows.append(f"{inputs} inputs, the stream: {answer(check_count, adds, 'f', signature, ('the stream',))}")
    rows += [
        f"any number: {answer(check_count, each, 'f', signature_of([X], [X]))}" for each in (takes_any, with_default)
    ]
    rows.append(
        f"two on a GPU: {answer(numba_source.check_count, adds, 2, 1)} {answer(numba_source.check_count, adds, 1, 1)}"
    )
    rows += [answer(signature_of, *each, ("bfloat16",)) for each in (([X, N], [X]), ([X, HALF], [X]), ([X], [X, HALF]))]
    check_golden(Path(__file__).parent / "golden" / "refused.txt", "\n".join(rows) + "\n")


def test_only_dtypes_and_ranks_count():
    other = X._replace(shape=(7, 1))
    assert signature_of([X, N], [X]) == signature_of([other, N], [other])


@pytest.mark.parametrize("function", [lambda *arrays: None, lambda x, out=None: None, lambda x, *, out: None])
def test_a_kernel_on_a_gpu_has_named_arrays_alone(function: Any):
    with pytest.raises(ArgumentError, match="the arrays of a call, each named"):
        numba_source.check_count(function, 1, 1)


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


def test_ptx_says_what_it_lacks_what_it_has_and_which_axis_is_free():
    assert numba_source.missing_functions(PTX) == ("cudaCGGetIntrinsicHandle", "numba_helper")
    assert numba_source.entry_in_ptx(PTX) == "_ZN4main5scale$E"
    for registers, axis in (
        ("", 2),
        ("%ctaid.x %nctaid.x", 2),
        ("%ctaid.z", 1),
        ("%nctaid.z", 1),
        ("%ctaid.z %ctaid.y", 0),
    ):
        assert numba_source.free_axis("\n".join(f"mov.u32 %r1, {each};" for each in registers.split())) == axis


@pytest.mark.parametrize("axis", [1, 2])
def test_batched_source_takes_slices(axis: int):
    called: list[Any] = []
    block = SimpleNamespace(blockIdx=SimpleNamespace(y=2, z=3))
    namespace: dict[str, Any] = {"cuda": block, "kernel": lambda *slices: called.append(slices)}
    exec(numba_source.batched_source("scale", 2, axis), namespace)  # noqa: S102 - what is tested
    namespace["scale_batched"](np.arange(1), np.arange(5))
    assert called == [(0, axis + 1)]


def ptx(count: int, kind: str = ".param .u64") -> str:
    params = ",\n".join(f"\t{kind} _Z5scale_param_{number}" for number in range(count))
    return f"// .globl _Z5scale\n.visible .entry _Z5scale(\n{params}\n)\n.maxntid 256, 1, 1\n{{\nret;\n}}\n"


def test_arrays_of_words_are_taken_and_others_refused():
    for kind in (".param .u64", ".param .b64", ".param .u64 .ptr .align 1"):
        check_words(ptx(16, kind), [1, 2])
        check_words(ptx(5, kind), [0])
    for text in (ptx(6), ptx(8), ptx(7).replace(".u64", ".u32", 1), ptx(0), ""):
        with pytest.raises(BuildError, match=r"parameters for arrays of \(1,\) dimensions.*not known here"):
            check_words(text, [1])
