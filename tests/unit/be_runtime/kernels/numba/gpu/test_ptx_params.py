"""A Numba kernel takes no more words than it reads."""

from __future__ import annotations

import re

import pytest

from be_runtime.errors import BuildError
from be_runtime.kernels.numba.gpu.ptx_params import pack_params

NAME = "_ZN4main5scaleE"


def declared(count: int, kind: str = ".param .u64") -> str:
    return ",\n".join(f"\t{kind} {NAME}_param_{number}" for number in range(count))


def ptx(params: str, *read: int) -> str:
    loads = "\n".join(f"ld.param.u64 %rd{n}, [{NAME}_param_{n}];" for n in read)
    return f"// .globl {NAME}\n.visible .entry {NAME}(\n{params}\n)\n.maxntid 256, 1, 1\n{{\n{loads}\nret;\n}}\n"


def taken(text: str) -> list[str]:
    head = text[text.index("(") : text.index(")")]
    return re.findall(r"_param_(\d+)", head)


@pytest.mark.parametrize("kind", [".param .u64", ".param .b64", ".param .u64 .ptr .align 1"])
def test_what_is_not_read_is_not_taken(kind: str):
    packed, words = pack_params(ptx(declared(16, kind), 4, 11, 14), [1, 2])
    assert words == (4, 11, 14)
    assert taken(packed) == ["4", "11", "14"]
    assert packed.count(kind + " ") == 3
    assert packed.partition(")")[2] == ptx(declared(16, kind), 4, 11, 14).partition(")")[2]


def test_a_name_that_begins_another_is_not_read():
    _, words = pack_params(ptx(declared(14), 13), [1, 1])
    assert words == (13,)


def test_the_count_of_one_dimension_is_its_length():
    packed, words = pack_params(ptx(declared(14), 2, 9, 12), [1, 1])
    assert words == (5, 12)
    assert "_param_2]" not in packed
    assert packed.count("_param_12]") == 2


@pytest.mark.parametrize(("ndim", "count"), [(0, 5), (2, 9), (3, 11)])
def test_the_count_of_other_dimensions_is_its_own(ndim: int, count: int):
    assert pack_params(ptx(declared(count), 2), [ndim])[1] == (2,)


def test_a_kernel_may_read_nothing():
    packed, words = pack_params(ptx(declared(7)), [1])
    assert words == ()
    assert taken(packed) == []


@pytest.mark.parametrize("params", [declared(6), declared(8), declared(7).replace(".u64", ".u32", 1), ""])
def test_arrays_passed_in_another_way_are_refused(params: str):
    with pytest.raises(BuildError, match=r"parameters for arrays of \(1,\) dimensions.*not known here"):
        pack_params(ptx(params), [1])
