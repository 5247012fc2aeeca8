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
from tests.compile.be_runtime.load.sources import source, write
from tests.support.rebuilds import TICK_S, Edit, append, compiled, load_twice
from tests.support.requirements import in_full
from tests.support.runtime import forwarding_compiler

ALL = {"a.cc", "b.cc", "c.cc"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three sources: one reads two headers, one of which lies in an include folder, one reads one, one asks for one."""
    for name in ("kernels", "include", "earlier"):
        (tmp_path / name).mkdir()
    asks = '#if __has_include("asked.h")\n#include "asked.h"\n#endif\n'
    reads = {"a": '#include "shared.h"\n#include "far.h"\n', "b": '#include "shared.h"\n', "c": asks}
    root = write(tmp_path / "kernels", **{name: source(head, **{name: 1}) for name, head in reads.items()})
    (root / "shared.h").write_text("#define SHARED 1\n")
    (tmp_path / "include" / "far.h").write_text("#define FAR 1\n")
    time.sleep(TICK_S)
    return root


def load(folder: Path, **options: Any) -> be_runtime.CompiledModule:
    options.setdefault("extra_include_paths", [folder.parent / "earlier", folder.parent / "include"])
    return be_runtime.load_cpp_dir(folder, name="rebuilt", auto_register=False, **options)


def nothing(_root: Path) -> None:
    pass


EDITS: dict[str, Edit] = {
    "a source": Edit(lambda root: append(root / "a.cc"), {}, {}, {"a.cc"}),
    "a shared header": Edit(lambda root: append(root / "shared.h"), {}, {}, {"a.cc", "b.cc"}),
    "a header of an include folder": Edit(lambda root: append(root.parent / "include/far.h"), {}, {}, {"a.cc"}),
    "a header that comes first": Edit(lambda root: (root.parent / "earlier/far.h").touch(), {}, {}, {"a.cc"}),
    "a header that is asked for": Edit(lambda root: (root / "asked.h").touch(), {}, {}, {"c.cc"}),
    "a new source": Edit(lambda root: write(root, d=source(d=1)), {}, {}, {"d.cc"}),
    "a source is gone": Edit(lambda root: (root / "c.cc").unlink(), {}, {}, set()),
    "an entry point is renamed": Edit(lambda root: write(root, b=source(x=1)), {}, {}, {"b.cc"}),
    "a compiler flag": Edit(nothing, {"extra_cflags": ["-DX=1"]}, {}, ALL),
    "the optimization": Edit(nothing, {"optimization_level": 1}, {}, ALL),
    "a variable that compilers read": Edit(nothing, {}, {"CPATH": os.sep}, ALL),
    "a linker flag": Edit(nothing, {"extra_ldflags": ["-Wl,-z,now"]}, {}, set()),
    "everything, by force": Edit(nothing, {"force_rebuild": True}, {}, ALL),
}
LONGER = {"a header of an include folder", "a source is gone", "an entry point is renamed", "the optimization"}


@pytest.mark.parametrize("edit", [in_full(edit) if edit in LONGER else edit for edit in EDITS])
def test_an_edit_compiles_what_depends_on_it(edit: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    second = load_twice(load, folder, EDITS[edit], ALL, monkeypatch)
    if not EDITS[edit].options and not EDITS[edit].environ:
        assert load(folder).path == second.path


def test_a_touch_compiles_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another compiler compiles everything."""
    first = load(folder)
    for path in folder.iterdir():
        path.touch()
    assert load(folder).path == first.path
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++")))
    assert compiled(load(folder)) == ALL


def test_what_compiled_is_kept_when_another_source_does_not(folder: Path):
    good = (folder / "b.cc").read_text()
    (folder / "b.cc").write_text(good + "error here;\n")
    with pytest.raises(BuildError, match=r"b\.cc"):
        load(folder, ninja_workers=1)
    (folder / "b.cc").write_text(good)
    assert "b.cc" in compiled(load(folder)) != ALL


def test_an_edit_during_a_build_leaves_doubt(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mark = tmp_path / "edited"
    # By a program that is none of the build's, as an editor is.
    late = f"[ -e {mark} ] || env -u LD_PRELOAD sh -c 'echo // late >> {folder}/shared.h'; touch {mark}"
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++", f'case "$*" in *b.cc*) {late} ;; esac')))
    assert compiled(load(folder)) == ALL
    assert compiled(load(folder)) == {"a.cc", "b.cc"}


def test_editors_learn_how_the_sources_are_compiled(folder: Path, tmp_path: Path, tmp_cache: Path):
    load(folder, extra_cflags=["-DOLD"])
    load(folder, extra_cflags=["-DNEW"])
    be_runtime.load_cpp_inline("inline", source(alone=1), auto_register=False)
    written = be_runtime.write_compile_commands(tmp_path / "compile_commands.json")
    entries = {Path(entry["file"]).name: entry for entry in json.loads(written.read_text())}
    assert set(entries) == ALL
    assert "-DNEW" in entries["a.cc"]["arguments"]
    assert entries["a.cc"]["arguments"][-2:] == ["-c", str(folder / "a.cc")]
    assert entries["a.cc"]["directory"] == str(folder)
