"""The rows of ``BE_INTERNAL_ELEMENT_TYPES``, read from its header."""

from __future__ import annotations

import re
from typing import NamedTuple

from be_runtime.own_files import INCLUDE_DIR


class CppRow(NamedTuple):
    """A row of the table in C++."""

    be_name: str
    be_code: int
    cpp_type: str
    name: str
    bits: int
    xla_name: str
    xla_code: int


_ROW = re.compile(r"^  X\((\w+), (\d+), ([\w:]+), (\w+), (\d+), (\w+), (\d+), __VA_ARGS__\)", re.MULTILINE)


def _rows() -> dict[str, CppRow]:
    text = (INCLUDE_DIR / "brainevent" / "dtype.h").read_text(encoding="utf-8")
    found = [
        CppRow(be_name, int(be_code), cpp_type, name, int(bits), xla_name, int(xla_code))
        for be_name, be_code, cpp_type, name, bits, xla_name, xla_code in _ROW.findall(text)
    ]
    assert len(found) == text.count("  X("), "a row that is written otherwise"
    return {row.name: row for row in found}


ROWS = _rows()
"""By numpy's name."""
