"""What an author's project says of its wheel's kernels, and which files they are made from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.ship.hooks import setuptools as hook
from be_runtime.ship.hooks.wheel_kernels import (
    WheelOptions,
    leaving_as_text,
    parse_options,
    place,
    project_table,
    source_files,
    wheel_packages,
)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"archs": "9.0"}, "t: archs must be a list of texts, not '9.0'"),
        ({"packages": [1]}, "t: packages must be a list"),
        ({"standalone": "yes"}, "t: standalone must be true or false"),
        (
            {"arch": ["9.0"]},
            "t: 'arch' is unknown\nhint: did you mean 'archs'?\nhint: known are: archs, exclude, package",
        ),
    ],
)
def test_a_wrong_option_is_named(table: dict[str, Any], message: str):
    with pytest.raises(ArgumentError) as raised:
        parse_options(table, "t")
    assert str(raised.value).startswith(message)


def test_packages_are_found_below_the_project_and_in_src(tmp_path: Path):
    for name in ("flat", "src/inner/deep", "lib/odd"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kernels.toml").touch()
    options = parse_options({"packages": ["flat", "inner.deep", "lib/odd"]}, "t")
    assert [place(each) for each in wheel_packages(options, tmp_path)] == [
        "flat/_kernels",
        "inner/deep/_kernels",
        "odd/_kernels",
    ]
    (only,) = wheel_packages(WheelOptions(), tmp_path)
    assert only.name == "flat"
    with pytest.raises(ArgumentError, match="no package 'missing' below"):
        wheel_packages(parse_options({"package": "missing"}, "t"), tmp_path)


def test_an_sdist_gets_sources_and_nothing_that_was_built(tmp_path: Path):
    files = ("kernels.toml", "a.cc", "include/a.h", "data.csv", "__init__.py", "_kernels/images/old.h")
    for name in files:
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).touch()
    (package,) = wheel_packages(WheelOptions(), tmp_path)
    assert source_files(package, tmp_path) == ["p/a.cc", "p/include/a.h", "p/kernels.toml"]


def test_setuptools_projects_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    hook.finalize(object())  # no project
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    hook.finalize(object())
    (tmp_path / "pyproject.toml").write_text("[tool.be-runtime]\narchs = ['9.0']\n")
    assert project_table(tmp_path) == {"archs": ["9.0"]}
    with pytest.raises(AttributeError):  # an object is no distribution
        hook.finalize(object())


def test_an_error_ends_a_backend_with_its_text_and_hints():
    with pytest.raises(SystemExit, match="error: wrong\nhint: right"), leaving_as_text():
        raise ArgumentError("wrong", hints=("right",))


def test_setuptools_that_is_too_old_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pyproject.toml").write_text("[tool.be-runtime]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "be_runtime.ship.hooks.setuptools_commands", None)
    with pytest.raises(SystemExit, match="kernels need setuptools>=77"):
        hook.finalize(object())
