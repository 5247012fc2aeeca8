"""A Numba kernel takes arrays as the launcher passes them, or is refused."""

from __future__ import annotations

import pytest

from be_runtime.errors import BuildError
from be_runtime.kernels.numba.gpu.ptx_words import check_words

NAME = "_ZN4main5scaleE"


def ptx(count: int, kind: str = ".param .u64") -> str:
    params = ",\n".join(f"\t{kind} {NAME}_param_{number}" for number in range(count))
    return f"// .globl {NAME}\n.visible .entry {NAME}(\n{params}\n)\n.maxntid 256, 1, 1\n{{\nret;\n}}\n"


@pytest.mark.parametrize("kind", [".param .u64", ".param .b64", ".param .u64 .ptr .align 1"])
def test_arrays_of_words_are_taken(kind: str):
    check_words(ptx(16, kind), [1, 2])
    check_words(ptx(5, kind), [0])


@pytest.mark.parametrize("text", [ptx(6), ptx(8), ptx(7).replace(".u64", ".u32", 1), ptx(0), ""])
def test_arrays_passed_in_another_way_are_refused(text: str):
    with pytest.raises(BuildError, match=r"parameters for arrays of \(1,\) dimensions.*not known here"):
        check_words(text, [1])
