"""Links in a package: they may lead about in it, and not out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.ship.declaration import parse_declaration
from be_runtime.ship.links_out import refuse_links_out
from be_runtime.ship.modules import request_of

SOURCE = "// @BE f arg ret\nvoid f(const BE::Tensor x, BE::Tensor y) {}\n"
TABLES = """
[modules.file]
sources = "src/a.cc"
[modules.folder]
sources = "src"
[modules.headers]
sources = "src/a.cc"
extra_include_paths = ["include"]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "package"
    (root / "src").mkdir(parents=True)
    (root / "include" / "deep").mkdir(parents=True)
    (root / "src" / "a.cc").write_text(SOURCE)
    (root / "include" / "own.h").write_text("")
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    for name in ("b.cc", "b.h", "deep/b.h"):
        (tmp_path / "outside" / name).write_text("")
    return root


def load(package: Path, module: str) -> None:
    request_of("package", package, parse_declaration(TABLES, "kernels.toml", lambda _source: False).modules[module])


@pytest.mark.parametrize(
    ("link", "target", "modules"),
    [
        ("src/a.cc", "b.cc", ["file", "folder", "headers"]),
        ("src/b.cc", "b.cc", ["file", "folder", "headers"]),
        ("src/b.h", "b.h", ["file", "folder", "headers"]),
        ("src", "", ["file", "folder", "headers"]),
        ("include", "", ["headers"]),
        ("include/deep/b.h", "b.h", ["headers"]),
        ("include/deep/more", "deep", ["headers"]),
    ],
)
def test_a_link_out_of_the_package_is_refused_by_its_name_and_target(
    package: Path, link: str, target: str, modules: list[str]
):
    aim = package.parent / "outside" / target
    (package / link).rename(package / "old") if (package / link).exists() else None
    (package / link).symlink_to(aim)
    for module in modules:
        with pytest.raises(ArgumentError) as caught:
            load(package, module)
        message = f"modules.{module}: {link} is a link to {aim}, which is outside the package"
        assert caught.value.message == message


def test_links_within_the_package_and_of_the_package_are_fine(package: Path):
    (package / "include" / "own_too.h").symlink_to("own.h")
    (package / "src" / "own.h").symlink_to("../include/own.h")
    (package / "src" / "data.csv").symlink_to(package.parent / "outside" / "b.h")
    moved = package.parent / "link"
    moved.symlink_to(package)
    for root in (package, moved):
        for module in ("file", "folder", "headers"):
            load(root, module)


def test_an_installer_may_make_each_file_a_link_to_its_copy(tmp_path: Path):
    copy, installed = tmp_path / "copy", tmp_path / "site" / "package"
    for folder in (copy, installed):
        (folder / "ops").mkdir(parents=True)
    for name in ("kernels.toml", "ops/own.cc"):
        (copy / name).touch()
        (installed / name).symlink_to(copy / name)
    refuse_links_out("modules.m", installed, [installed / "ops"], [])
    (installed / "ops" / "x.cc").symlink_to(tmp_path / "x.cc")
    with pytest.raises(ArgumentError, match=r"ops/x\.cc is a link"):
        refuse_links_out("modules.m", installed, [installed / "ops"], [])
