"""Hooks of build backends: what a project says of its wheel's kernels, and the tag that its images need."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.ship.hooks import setuptools as hook
from be_runtime.ship.hooks import wheel_kernels
from be_runtime.ship.hooks.image_needs import Needs
from be_runtime.ship.hooks.platform_tags import parse_policies, platform_tag
from be_runtime.ship.hooks.wheel_kernels import WheelOptions, parse_options, wheel_packages

KNOWN = "\nhint: known are: archs, exclude, package"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"archs": "9.0"}, "t: archs must be a list of texts, not '9.0'"),
        ({"packages": [1]}, "t: packages must be a list"),
        ({"standalone": "yes"}, "t: standalone must be true or false"),
        ({"arch": ["9.0"]}, f"t: 'arch' is unknown\nhint: did you mean 'archs'?{KNOWN}"),
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
    found = wheel_packages(parse_options({"packages": ["flat", "inner.deep", "lib/odd"]}, "t"), tmp_path)
    assert list(map(wheel_kernels.place, found)) == ["flat/_kernels", "inner/deep/_kernels", "odd/_kernels"]
    assert [each.name for each in wheel_packages(WheelOptions(), tmp_path)] == ["flat"]
    with pytest.raises(ArgumentError, match="no package 'missing' below"):
        wheel_packages(parse_options({"package": "missing"}, "t"), tmp_path)


def test_an_sdist_gets_sources_and_nothing_that_was_built(tmp_path: Path):
    for name in ("kernels.toml", "a.cc", "include/a.h", "data.csv", "__init__.py", "_kernels/images/old.h"):
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).touch()
    (package,) = wheel_packages(WheelOptions(), tmp_path)
    assert wheel_kernels.source_files(package, tmp_path) == ["p/a.cc", "p/include/a.h", "p/kernels.toml"]


def test_setuptools_projects_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Setuptools that is too old is named."""
    monkeypatch.chdir(tmp_path)
    hook.finalize(object())  # no project
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    hook.finalize(object())
    (tmp_path / "pyproject.toml").write_text("[tool.be-runtime]\narchs = ['9.0']\n")
    assert wheel_kernels.project_table(tmp_path) == {"archs": ["9.0"]}
    with pytest.raises(AttributeError):  # an object is no distribution
        hook.finalize(object())
    monkeypatch.setitem(sys.modules, "be_runtime.ship.hooks.setuptools_commands", None)
    with pytest.raises(SystemExit, match="kernels need setuptools>=77"):
        hook.finalize(object())


def test_an_error_ends_a_backend_with_its_text_and_hints():
    with pytest.raises(SystemExit, match="error: wrong\nhint: right"), wheel_kernels.leaving_as_text():
        raise ArgumentError("wrong", hints=("right",))


ROWS = [
    {
        "name": name,
        "priority": priority,
        "symbol_versions": {"x86_64": {"GLIBC": glibc, "GLIBCXX": libstdcxx}},
        "lib_whitelist": ["libc.so.6", "libz.so.1", *more],
        "blacklist": {"libz.so.1": ["crc_fold_copy"]},
    }
    for name, priority, glibc, libstdcxx, more in (
        ("manylinux_2_34", 58, ["2.2", "2.17", "2.34"], ["3.4", "3.4.29"], ["libmvec.so.1"]),
        ("manylinux_2_17", 80, ["2.2", "2.17"], ["3.4"], []),
        ("manylinux_2_5", 100, ["2.2"], ["3.4"], []),
    )
]
POLICIES = parse_policies(ROWS, "x86_64")


def needs(*versions: str, libraries: tuple[str, ...] = ("libc.so.6",), **more: Any) -> Needs:
    return Needs(libraries, frozenset(versions), **more)


@pytest.mark.parametrize(
    ("images", "tag"),
    [
        ([needs("GLIBC_2.2")], "manylinux_2_5_x86_64"),
        ([needs("GLIBC_2.2", "GLIBC_2.17"), needs("GLIBC_2.2")], "manylinux_2_17_x86_64"),
        ([needs("GLIBC_2.2"), needs("GLIBCXX_3.4.29")], "manylinux_2_34_x86_64"),
        ([needs(libraries=("libmvec.so.1",))], "manylinux_2_34_x86_64"),
        ([needs("GLIBC_2.99")], "linux_x86_64"),
        ([needs("OTHER_9")], "manylinux_2_5_x86_64"),  # what no policy speaks of
        ([needs(libraries=("libz.so.1",), undefined=frozenset({"crc_fold_copy"}))], "linux_x86_64"),
        ([needs(libraries=("libc.musl-x86_64.so.1",))], "linux_x86_64"),
        ([needs(libraries=("libcublas.so.12",))], "manylinux_2_5_x86_64"),
        ([needs(run_paths=("$ORIGIN/../libs",))], "manylinux_2_5_x86_64"),
    ],
)
def test_the_platform_with_the_most_systems(images: list[Needs], tag: str):
    named = {f"modules.m{number}": each for number, each in enumerate(images)}
    assert platform_tag(named, "x86_64", POLICIES, exclude=["libcublas.so.*"]) == tag


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (needs(libraries=("libc.so.6", "libfoo.so.3")), r"needs libfoo.so.3.*\n.*-l:libfoo.a instead of -lfoo"),
        (needs(run_paths=("$ORIGIN", "/opt/lib")), r"looks for libraries in /opt/lib.*\n.*-rpath=/opt/lib"),
    ],
)
def test_what_is_on_the_build_machine_alone_is_refused_with_the_module_and_the_flag(image: Needs, words: str):
    with pytest.raises(ArgumentError, match=f"modules.blas of p {words}"):
        platform_tag({"modules.blas of p": image}, "x86_64", POLICIES)
