"""The two tables of element types, in Python and in C++, say the same; so do both and XLA's header."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime.dtypes import ATTR_TYPES, BY_NAME, DTYPES, DType
from be_runtime.xla.jax_port import ffi_include_dir
from tests.support.element_types import ROWS
from tests.support.small_types import dtype_of

HEADER = (ffi_include_dir() / "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
XLAS = {name: int(value) for name, value in re.findall(r"\bXLA_FFI_DataType_(\w+) = (\d+)", HEADER)}


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_a_row_says_the_same_on_both_sides_and_has_the_size_that_jax_gives_it(row: DType):
    theirs = ROWS[row.name]
    assert (theirs.bits, theirs.xla_code) == (row.bits, row.xla_code)
    assert theirs.cpp_type.removeprefix("::") == row.cpp_types[0]
    assert XLAS[theirs.xla_name] == row.xla_code
    if row.is_for_arrays_only:
        dtype_of(row.name)
    kind = jnp.finfo if row.kind in ("float", "complex") else jnp.iinfo
    bits = 8 if row.kind == "bool" else kind(row.name).bits * (2 if row.kind == "complex" else 1)
    assert (row.bits, row.size_bytes) == (bits, bits // 8)
    assert hasattr(np, "bool_" if row.kind == "bool" else row.name) == (row.module == "np"), "it has the scalars"


def test_no_two_rows_share_a_number_or_a_name_in_cpp():
    assert set(ROWS) == set(BY_NAME)
    assert len({row.be_code for row in ROWS.values()}) == len({row.xla_code for row in DTYPES}) == len(DTYPES)
    assert max(row.be_code for row in ROWS.values()) < 31, "DTypeSet in element_types.h has a bit for each"
    spelt = [name for row in DTYPES for name in row.cpp_types]
    assert len(set(spelt)) == len(spelt)


def test_an_attribute_is_of_fifteen_types_and_carried_by_what_xla_has_of_its_size():
    assert len(ATTR_TYPES) == 15
    assert {name.rstrip("0123456789") for name in ATTR_TYPES} == {"bool", "int", "uint", "float", "bfloat", "complex"}
    for row in ATTR_TYPES.values():
        carrier = row.attr_type
        assert carrier.size_bytes * max(row.attr_parts, 1) == row.size_bytes
        assert carrier.kind in {"float", "int", "uint", "bool"}
        assert not carrier.is_narrow
