"""Rows of compiled modules in an index: another type than the written one is damage, and no error of Python's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from be_runtime.bundle.module_record import ModuleRecord
from be_runtime.errors import LoadError
from be_runtime.generate.contents import Handlers, render_contents

ROW = ModuleRecord("cpp", "00" * 32, render_contents({"f": Handlers("be_f", "be_g", spec=("ret",))}), {"a.cc": "ff"})


def test_a_row_is_read_as_it_was_written():
    row = json.loads(json.dumps(ROW._asdict()))
    assert ModuleRecord.read(row, "here") == ROW
    assert list(ROW.contents()) == ["f"]


@pytest.mark.parametrize("field", ROW._fields)
@pytest.mark.parametrize("value", [7, None, ["a"], {"a": 1}])
def test_a_value_of_another_type_is_damage(field: str, value: Any):
    with pytest.raises(LoadError, match="here has a damaged index"):
        ModuleRecord.read({**ROW._asdict(), field: value}, "here")


def test_fields_that_are_missing_or_unknown_are_damage():
    for row in ({"language": "cpp"}, {**ROW._asdict(), "more": 1}, 7):
        with pytest.raises(LoadError, match="here has a damaged index"):
            ModuleRecord.read(row, "here")  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(len(Handlers._fields)))
def test_a_function_of_other_values_is_damage(number: int):
    values: list[Any] = [*Handlers("be_f", "be_g")]
    values[number] = 7
    with pytest.raises(TypeError, match="7 is no str"):
        ROW._replace(functions=json.dumps({"functions": {"f": values}})).contents()
