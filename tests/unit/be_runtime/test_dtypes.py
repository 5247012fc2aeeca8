"""The table of element types agrees with the enumerations of our headers and of XLA's."""

from __future__ import annotations

import re

import pytest

from be_runtime.dtypes import DTYPES, DType
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.xla.jax_port import ffi_include_dir


def enumerators(text: str, prefix: str = "") -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(rf"\b{prefix}(\w+) = (\d+)", text)}


OURS = enumerators((INCLUDE_DIR / "brainevent" / "dtype.h").read_text(encoding="utf-8"))
XLAS = enumerators((ffi_include_dir() / "xla/ffi/api/c_api.h").read_text(encoding="utf-8"), "XLA_FFI_DataType_")


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_a_row_has_the_numbers_of_both_headers(row: DType):
    assert OURS[row.be_name] == row.be_code
    assert XLAS[row.xla_name] == row.xla_code


def test_every_type_of_ours_has_a_row():
    assert {name for name, code in OURS.items() if code != 255} == {row.be_name for row in DTYPES}


@pytest.mark.parametrize("row", [row for row in DTYPES if row.attr_xla_code != row.xla_code], ids=lambda row: row.name)
def test_what_xla_has_no_attribute_for_is_carried_by_something_of_its_size(row: DType):
    carrier = next(other for other in DTYPES if other.xla_code == row.attr_xla_code)
    assert carrier.size_bytes * max(row.attr_parts, 1) == row.size_bytes
