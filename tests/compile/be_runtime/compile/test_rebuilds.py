"""What an edit costs: of a folder's files exactly those are compiled again that depend on what changed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.errors import BuildError
from tests.support.rebuilds import TICK_S, Edit, append, compiled, load_twice
from tests.support.runtime import forwarding_compiler, real_compiler

pytestmark = pytest.mark.usefixtures("tmp_cache")

ALL = {"a.cc", "b.cc", "c.cc"}


def source(name: str, *headers: str) -> str:
    includes = "".join(f'#include "{header}"\n' for header in ("brainevent/common.h", *headers))
    return f"{includes}// @BE {name}\nvoid {name}(BE::Tensor out) {{ out.data_ptr<int>()[0] = {len(headers)}; }}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three sources: one reads two headers, one of which lies in an include folder, one reads one, one reads none."""
    root = tmp_path / "kernels"
    for name in ("kernels", "include", "earlier"):
        (tmp_path / name).mkdir()
    (root / "a.cc").write_text(source("a", "shared.h", "far.h"))
    (root / "b.cc").write_text(source("b", "shared.h"))
    (root / "c.cc").write_text(source("c"))
    (root / "shared.h").write_text("#define SHARED 1\n")
    (tmp_path / "include" / "far.h").write_text("#define FAR 1\n")
    return root


def load(folder: Path, **options: Any) -> be_runtime.CompiledModule:
    options.setdefault("extra_include_paths", [folder.parent / "earlier", folder.parent / "include"])
    return be_runtime.load_cpp_dir(folder, name="rebuilt", auto_register=False, **options)


EDITS: dict[str, Edit] = {
    "a source": Edit(lambda root: append(root / "a.cc"), {}, {}, {"a.cc"}),
    "a shared header": Edit(lambda root: append(root / "shared.h"), {}, {}, {"a.cc", "b.cc"}),
    "a header of an include folder": Edit(lambda root: append(root.parent / "include" / "far.h"), {}, {}, {"a.cc"}),
    "a header that comes first": Edit(
        lambda root: (root.parent / "earlier" / "far.h").write_text(""), {}, {}, {"a.cc"}
    ),
    "a new source": Edit(lambda root: (root / "d.cc").write_text(source("d")), {}, {}, {"d.cc"}),
    "a source is gone": Edit(lambda root: (root / "c.cc").unlink(), {}, {}, set()),
    "an entry point is renamed": Edit(lambda root: (root / "b.cc").write_text(source("x")), {}, {}, {"b.cc"}),
    "a compiler flag": Edit(lambda root: root, {"extra_cflags": ["-DX=1"]}, {}, ALL),
    "the optimization": Edit(lambda root: root, {"optimization_level": 1}, {}, ALL),
    "a variable that compilers read": Edit(lambda root: root, {}, {"CPATH": os.sep}, ALL),
    "a linker flag": Edit(lambda root: root, {"extra_ldflags": ["-Wl,-z,now"]}, {}, set()),
    "everything, by force": Edit(lambda root: root, {"force_rebuild": True}, {}, ALL),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_compiles_what_depends_on_it(edit: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    second = load_twice(load, folder, EDITS[edit], ALL, monkeypatch)
    if not EDITS[edit].options and not EDITS[edit].environ:
        assert load(folder).path == second.path


def test_a_touched_source_compiles_nothing(folder: Path):
    first = load(folder)
    for path in folder.iterdir():
        path.touch()
    assert load(folder).path == first.path


def test_another_compiler_compiles_everything(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    load(folder)
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++")))
    assert compiled(load(folder)) == ALL


def test_what_compiled_is_kept_when_another_source_does_not(folder: Path):
    good = (folder / "b.cc").read_text()
    (folder / "b.cc").write_text(good + "error here;\n")
    with pytest.raises(BuildError, match=r"b\.cc"):
        load(folder, ninja_workers=1)
    (folder / "b.cc").write_text(good)
    assert "b.cc" in compiled(load(folder)) != ALL


def test_an_edit_while_it_compiles_leaves_the_object_in_doubt(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mark = tmp_path / "edited"
    # By a program that is none of the build's, as an editor is.
    late = f"[ -e {mark} ] || env -u LD_PRELOAD sh -c 'echo // late >> {folder}/shared.h'; touch {mark}"
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++", f'case "$*" in *b.cc*) {late} ;; esac')))
    assert compiled(load(folder)) == ALL
    assert compiled(load(folder)) == {"a.cc", "b.cc"}


def test_editors_learn_how_the_sources_are_compiled(folder: Path, tmp_path: Path):
    load(folder, extra_cflags=["-DOLD"])
    load(folder, extra_cflags=["-DNEW"])
    be_runtime.load_cpp_inline("inline", source("alone"), auto_register=False)
    written = be_runtime.write_compile_commands(tmp_path / "compile_commands.json")
    entries = {Path(entry["file"]).name: entry for entry in json.loads(written.read_text())}
    assert set(entries) == ALL
    assert "-DNEW" in entries["a.cc"]["arguments"]
    assert entries["a.cc"]["arguments"][-2:] == ["-c", str(folder / "a.cc")]
    assert entries["a.cc"]["directory"] == str(folder)


VALUE_SOURCE = """
#include "brainevent/common.h"
// @BE value
void value(BE::Tensor out) { out.data_ptr<int>()[0] = WRAPPED; }
"""


def wrapper(path: Path, compiler: str, value: int) -> None:
    """A compiler's wrapper script, edited in place: size, version and path stay."""
    inode = path.stat().st_ino if path.exists() else None
    path.write_text(f'#!/bin/sh\nexec {compiler} -DWRAPPED={value} "$@"\n')
    path.chmod(0o755)
    assert inode in (None, path.stat().st_ino)


@pytest.mark.parametrize("variable", ["BE_CXX", "CXX", "a link"])
def test_an_edited_wrapper_script_is_another_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str):
    script, named, compiler = tmp_path / "g++-wrapper", tmp_path / "named", real_compiler()
    named.symlink_to(script)
    for name in ("BE_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BE_CXX" if variable == "a link" else variable, str(named if variable == "a link" else script))
    paths = []
    for value in (1, 2, 1):
        wrapper(script, compiler, value)
        time.sleep(TICK_S)
        module = be_runtime.load_cpp_inline("wrapped", VALUE_SOURCE, auto_register=False)
        paths.append(module.path)
        assert module.path == be_runtime.load_cpp_inline("wrapped", VALUE_SOURCE, auto_register=False).path
    assert paths[0] != paths[1]
    assert paths[0] == paths[2], "what was compiled with the first text is found again"
