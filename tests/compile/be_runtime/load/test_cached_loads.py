"""What is built again and what is not; of a folder's files exactly those that depend on what changed."""

from __future__ import annotations

import json
import os
import time
import warnings
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from tests.compile.be_runtime.load.sources import source, value, write
from tests.support.rebuilds import TICK_S, Edit, append, compiled, load_twice
from tests.support.requirements import in_full
from tests.support.runtime import forwarding_compiler, libraries

INLINE = source(value=1)


def test_several_files_are_one_module_and_an_edit_of_each_builds_again(tmp_path: Path):
    first = write(tmp_path, first=source(one=1)) / "first.cc"
    second = write(tmp_path, second=source(two=2)) / "second.cc"

    def load(prefix: str) -> tuple[Path, int, int]:
        time.sleep(TICK_S)
        module = be_runtime.load_cpp_file([first, second], target_prefix=prefix)
        assert (module.name, sorted(module.function_names)) == ("first", ["one", "two"])
        return module.path, value(f"{prefix}.one"), value(f"{prefix}.two")

    path, *values = load("both")
    assert values == [1, 2]
    assert load("both_again") == (path, 1, 2)
    write(tmp_path, second=source(two=3))
    assert load("both_edited")[1:] == (1, 3)
    write(tmp_path, first=source(one=4))
    assert load("both_edited_again")[1:] == (4, 3)


def path_of(name: str, text: str = INLINE, **options: object) -> Path:
    return be_runtime.load_cpp_inline(name, text, auto_register=False, **options).path  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["kernels", "a 'b' #$d: \\ e", "\u00a0\u3000\u2028\x85\tb\\\\s|%;\udcff"], ids=ascii)
def test_an_edit_builds_again_and_taking_it_back_does_not(name: str, tmp_path: Path):
    """Of a header that a header includes."""
    folder = tmp_path / name
    file = write(folder, project=source('#include "outer.h"\n', value="INNER")) / "project.cc"
    inner = write(folder / "deep") / "inner.h"
    (folder / "outer.h").write_text('#include "deep/inner.h"\n')
    prefixes = (f"edited{len(name)}_{number}" for number in count())

    def load(text: str = "") -> tuple[Path, int]:
        """The library's path and the number in it, after an edit; each load has targets of its own."""
        if text:
            inner.write_text(text)
        time.sleep(TICK_S)
        prefix = next(prefixes)
        return be_runtime.load_cpp_file(file, target_prefix=prefix).path, value(f"{prefix}.value")

    first = load("#define INNER 1\n")
    assert first[1] == 1
    file.touch()
    inner.touch()
    assert load() == first
    second = load("#define INNER 2\n")
    assert second[1] == 2
    assert second[0] != first[0]
    assert load() == second
    assert load("#define INNER 1\n") == first
    assert load("#define INNER 1 // still\n")[0] != first[0]
    inner.unlink()
    with pytest.raises(be_runtime.BuildError, match=r"inner\.h"):
        load()


@pytest.mark.parametrize("name", ["a|b\"c'd\udcff", in_full("a\rb $c"), "a\nb"], ids=ascii)
def test_folders_with_odd_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache, temporary and include folder: they work, or the last is refused by name before anything is built.

    A second module links what the cache kept of the first.
    """
    folder = write(tmp_path / name)
    (folder / "odd.h").write_text("#define ODD 1\n")
    monkeypatch.setenv("BE_CACHE_DIR", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    text = source('#include "odd.h"\n', value="ODD")
    if "\n" in name:
        with pytest.raises(be_runtime.ArgumentError, match=r"holds '\\n'"):
            path_of("odd", text, extra_include_paths=[folder])
        assert not (folder / "kernels-v1").exists()
        assert path_of("odd").is_relative_to(folder)
    else:
        assert path_of("odd", text, extra_include_paths=[folder]).is_relative_to(folder)
        assert path_of("odd", text, extra_include_paths=[folder]) == libraries(folder)[0]
    assert path_of("two").is_relative_to(folder)


def test_build_directory(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine" / "below"
    module = be_runtime.load_cpp_inline("kept", INLINE, build_directory="mine/below")
    assert module.path.is_relative_to(folder)
    assert not libraries(tmp_cache)
    be_runtime.set_cache_dir(None)
    assert be_runtime.get_cache_dir() == tmp_cache, "that of BE_CACHE_DIR"
    assert be_runtime.load_cpp_inline("kept", INLINE, build_directory=str(folder)).path == module.path
    assert value("kept.value") == 1
    (sources,) = {path.parent for path in folder.rglob("*.cc")}
    assert sources.name == "src", "the generated source stays for the reader"
    assert be_runtime.clear_cache("kept") == 0
    assert module.path.exists()


def test_clear_cache_counts_modules_and_leaves_what_others_wrote(tmp_path: Path, tmp_cache: Path):
    assert be_runtime.clear_cache() == 0
    assert be_runtime.get_cache_dir() == tmp_cache
    chosen = tmp_path / "chosen"
    be_runtime.set_cache_dir(str(chosen))
    assert be_runtime.get_cache_dir() == chosen
    assert not chosen.exists(), "made at the first build"
    cleared = [path_of("cleared", f"{INLINE}// {number}\n") for number in range(2)]
    be_runtime.load_cpp_inline("outliving", INLINE)
    (cleared[0].parents[2] / "notes.txt").write_text("mine")
    assert [be_runtime.clear_cache(*name) for name in (("no_such",), ("cleared",), ())] == [0, 2, 1]
    assert libraries(chosen) == libraries(tmp_cache) == []
    assert (cleared[0].parents[2] / "notes.txt").exists()
    for _ in range(2):
        assert value("outliving.value") == 1
        be_runtime.load_cpp_inline("outliving", INLINE)


@pytest.mark.parametrize("is_folder", [in_full(False), True])
def test_what_a_build_uses_may_go(is_folder: bool, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """The handler of the first build is there when the second one begins, and gone when it links."""
    mark, kept = tmp_path / "mark", f"'{tmp_cache}'/toolchain/kernels-v1/??"
    clear = f"if [ -e '{mark}' ]; then env -u LD_PRELOAD rm -r '{mark}' {kept}; fi"
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++", f'case "$*" in *src/*) {clear};; esac')))
    be_runtime.load_cpp_inline("first", INLINE, auto_register=False)
    mark.touch()
    if is_folder:
        module = be_runtime.load_cpp_dir(write(tmp_path, a=source(a=1), b=source(b=1)), auto_register=False)
    else:
        module = be_runtime.load_cpp_inline("second", source(value=2), auto_register=False)
    assert module.function_names
    assert not mark.exists()


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
    "a variable that compilers read": Edit(nothing, {}, {"CPATH": os.sep}, ALL),
    "a linker flag": Edit(nothing, {"extra_ldflags": ["-Wl,-z,now"]}, {}, set()),
    "everything, by force": Edit(nothing, {"force_rebuild": True}, {}, ALL),
}
LONGER = {"a header of an include folder", "a source is gone", "an entry point is renamed"}


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
    with pytest.raises(be_runtime.BuildError, match=r"b\.cc"):
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


ENDS = """
#include <cstdio>
#include <cstdlib>
#include "brainevent/common.h"
#define CHECK(condition) do { if (!(condition)) { std::puts("no"); exit(1); } } while (0)
// @BE checks
void checks(BE::Tensor y) { CHECK(y.numel() > 0); }
// @BE good
void good(BE::Tensor y) { BE_CHECK(y.numel() > 0) << "empty"; }
"""


def test_a_function_that_may_end_the_process_is_warned_of_at_every_load():
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            be_runtime.load_cpp_inline("ending", ENDS, auto_register=False)
        (warning,) = caught
        assert str(warning.message).startswith("ending.checks ends the process at ending:5 (exit in the macro CHECK): ")
        assert (warning.category, warning.filename) == (be_runtime.ExitWarning, __file__)
