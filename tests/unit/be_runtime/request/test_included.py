"""The files that sources include from folders of their author's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from be_runtime.request import included
from be_runtime.request.arguments import file_units
from be_runtime.request.options import Unit
from be_runtime.signature import SourceText

GLUE = """#include "near.h"
#include <upstream/code.cu>
  #  include "absent.h"
#include <vector>
"""


def test_files_are_found_as_the_compiler_finds_them_each_once(tmp_path: Path):
    for name, text in {
        "glue.cu": GLUE,
        "near.h": '#include "near.h"',
        "other/near.h": "int other;",
        "other/upstream/code.cu": '#include "part.cuh"\n#include "near.h"',
        "other/upstream/part.cuh": "int part;",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (unit,) = file_units(tmp_path / "glue.cu")
    found = [(each.name, each.text[:3]) for each in included.included_texts(unit, [tmp_path / "other"])]
    assert found == [("near.h", "#in"), ("upstream/code.cu", "#in"), ("part.cuh", "int"), ("near.h", "int")]
    inline = Unit(stem="m", sources=(SourceText(name="m", text=GLUE),))
    assert included.included_texts(inline, [tmp_path / "other"])[0].text == "int other;"
    assert not included.included_texts(inline, [])


def test_what_is_too_large_or_can_t_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(included, "_LARGEST", 20)
    (tmp_path / "near.h").write_text("int x;" * 10)
    (tmp_path / "upstream").mkdir()
    (tmp_path / "upstream" / "code.cu").mkdir()
    unit = Unit(stem="m", sources=(SourceText(name="m", text=GLUE),))
    assert not included.included_texts(unit, [tmp_path])


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "\ud800", "/proc/self/mem", "/dev/zero"], ids=ascii)
def test_no_name_of_a_file_stops_a_build(name: str, tmp_path: Path):
    unit = Unit(stem="m", sources=(SourceText(name="m", text=f'#include "{name}"\n'),))
    assert not included.included_texts(unit, [tmp_path])


if os.geteuid() != 0:  # root may read everything

    def test_a_folder_that_is_closed_is_left_out(tmp_path: Path):
        (tmp_path / "near.h").write_text("int x;")
        tmp_path.chmod(0)
        try:
            unit = Unit(stem="m", sources=(SourceText(name="m", text=GLUE),))
            assert not included.included_texts(unit, [tmp_path])
        finally:
            tmp_path.chmod(0o700)
