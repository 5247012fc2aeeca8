"""Rows of CuTe DSL's and cuTile's functions in an index that is damaged or was edited: one error names the field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from be_runtime.errors import LoadError
from be_runtime.ship.kernels import open_function
from be_runtime.store.artifact import Artifact
from be_runtime.store.index import Index, reading

WHERE = "pkg/_kernels"
CALL: dict[str, Any] = {"label": "add", "name": "add", "doc": None, "signature": "arg[n]:float32 ret[n]", "call": {}}
CUTE = CALL | {"language": "cute", "divisible": {"n": 4}, "variants": [{"types": ["float32"] * 2, "target": "be.1"}]}
CUTILE = CALL | {
    "language": "cutile",
    "parameters": ["x", "out"],
    "bits": {"x": 32, "out": 32},
    "is_programmatic": False,
    "launch": {"grid": "n"},
}


def open_and_call(row: Any) -> None:
    with reading(WHERE):  # as a package opens its functions
        function = open_function(row, Artifact(WHERE, Index("x86_64", {})))
    function(np.zeros(16, np.float32))


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (CUTE, "be.1"),
        (CUTE | {"divisible": {"n": "4"}}, "'4'"),
        (CUTE | {"divisible": {"n": 0}}, "divisible"),
        (CUTE | {"divisible": 4}, "items"),
        (CUTE | {"label": None}, "None"),
        (CUTE | {"variants": [{"types": ["float32"] * 2}]}, "target"),
        (CUTE | {"variants": [{"target": "be.1"}]}, "types"),
        (CUTE | {"variants": [{"types": ["float32"] * 2, "target": 3}]}, "3"),
        ({name: value for name, value in CUTE.items() if name != "divisible"}, "divisible"),
        (CUTILE | {"variants": [{"types": ["[3", "[3"], "kernel": "00"}]}, "delimiter"),
        (CUTILE | {"variants": [{"types": ["[3]", "[3]"], "kernel": "00"}]}, "index_bits"),
        (CUTILE | {"variants": [{"types": ["[1,2,3,4,5,6,7]"] * 2, "kernel": "00"}]}, "iterable"),
    ],
)
def test_a_wrong_field_is_an_error_with_the_file_and_the_field(row: Any, field: str):
    with pytest.raises(LoadError, match=f"^{WHERE} has a damaged index: .*{field}"):
        open_and_call(row)
