"""What is built again and what is not, seen through the load functions."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.runtime import call, environment, forwarding_compiler, libraries, processes_with, run_python

VALUE = jax.ShapeDtypeStruct((), np.int32)
SOURCE = """#include "outer.h"
#include "brainevent/common.h"
// @BE value
void value(BE::Tensor out) { out.data_ptr<int32_t>()[0] = INNER; }
"""
INLINE = SOURCE.removeprefix('#include "outer.h"\n').replace("INNER", "1")


_NUMBERS = itertools.count()


def tick() -> None:
    """Let the file system's clock go on, so that an edit is not one that happened during the next build."""
    time.sleep(0.02)


class Project:
    """A file with a header that includes a header."""

    def __init__(self, folder: Path) -> None:
        self.name = f"project{next(_NUMBERS)}"
        self.file = folder / "project.cc"
        self.file.write_text(SOURCE)
        self.outer = folder / "outer.h"
        self.outer.write_text('#include "deep/inner.h"\n')
        self.inner = folder / "deep" / "inner.h"
        self.inner.parent.mkdir()
        self.inner.write_text("#define INNER 1\n")
        self.loads = 0
        tick()

    def swap(self, path: Path, text: str) -> None:
        """Replace a file as editors do."""
        other = path.with_suffix(".new")
        other.write_text(text)
        other.replace(path)

    def load(self, **options: object) -> tuple[Path, int]:
        """The library's path and the number in it; each load has targets of its own."""
        self.loads += 1
        prefix = f"{self.name}.{self.loads}"
        module = be_runtime.load_cpp_file(self.file, target_prefix=prefix, **options)  # type: ignore[arg-type]
        return module.path, int(call(f"{prefix}.value", VALUE))


@pytest.fixture
def project(tmp_path: Path, tmp_cache: Path) -> Project:
    return Project(tmp_path)


def test_an_unchanged_project_is_not_built_again(project: Project, tmp_cache: Path):
    assert project.load() == project.load()
    assert len(libraries(tmp_cache)) == 1


def touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 5_000_000_000))


EDITS: dict[str, Callable[[Project], object]] = {
    "the file": lambda project: project.file.write_text(SOURCE.replace("INNER", "2")),
    "a header": lambda project: project.outer.write_text("#define INNER 2\n"),
    "a header's header": lambda project: project.inner.write_text("#define INNER 2\n"),
    "a header, by another file": lambda project: project.swap(project.inner, "#define INNER 2\n"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_builds_again(project: Project, what: str):
    first, number = project.load()
    assert number == 1
    EDITS[what](project)
    tick()
    second, number = project.load()
    assert number == 2
    assert second != first
    assert project.load() == (second, 2)


def test_an_edit_taken_back_finds_the_first_build(project: Project, tmp_cache: Path):
    first, _ = project.load()
    project.inner.write_text("#define INNER 2\n")
    project.load()
    project.inner.write_text("#define INNER 1\n")
    assert project.load() == (first, 1)


def test_a_touched_file_is_not_built_again(project: Project, tmp_cache: Path):
    first = project.load()
    for path in (project.file, project.outer, project.inner):
        touch(path)
    assert project.load() == first
    assert len(libraries(tmp_cache)) == 1


def test_a_comment_in_a_header_is_an_edit(project: Project):
    first, _ = project.load()
    project.inner.write_text("#define INNER 1 // still\n")
    assert project.load()[0] != first


def test_a_header_that_appears_in_front_of_another(project: Project, tmp_path: Path):
    folder = tmp_path / "include"
    folder.mkdir()
    project.outer.rename(folder / "outer.h")
    (folder / "deep").mkdir()
    project.inner.rename(folder / "deep" / "inner.h")
    assert project.load(extra_include_paths=[folder])[1] == 1
    project.outer.write_text("#define INNER 5\n")
    assert project.load(extra_include_paths=[folder])[1] == 5
    project.outer.unlink()
    assert project.load(extra_include_paths=[folder])[1] == 1


def test_a_header_that_is_gone(project: Project):
    project.load()
    project.inner.unlink()
    with pytest.raises(be_runtime.BuildError, match=r"inner\.h"):
        project.load()


@pytest.mark.parametrize(
    "name", ["a 'b' #c $d: \\ e", "no\u00a0break", "\u3000\u2028\x85", "t\tab", "b\\\\s", "a|%;\udcff"], ids=ascii
)
def test_a_header_in_a_folder_with_an_odd_name(tmp_path: Path, tmp_cache: Path, name: str):
    folder = tmp_path / name
    folder.mkdir()
    project = Project(folder)
    assert project.load()[1] == 1
    project.inner.write_text("#define INNER 2\n")
    tick()
    assert project.load()[1] == 2
    built = len(libraries(tmp_cache))
    assert project.load()[1] == 2
    assert len(libraries(tmp_cache)) == built


@pytest.mark.parametrize("name", ["a|b", "a\nb", "a\rb", 'a"b', "a'b $c", "a\udcffb"], ids=ascii)
def test_a_cache_a_temporary_and_an_include_folder_with_an_odd_name(tmp_path: Path, name: str):
    """They work, or the include folder is refused by name before anything is built."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "odd.h").write_text("#define ODD 1\n")
    code = (
        "import os, sys, be_runtime\n"
        "source = '#include \"odd.h\"\\n// @BE f\\nvoid f(BE::Tensor y) { y.data_ptr<float>()[0] = ODD; }'\n"
        "folders = [os.environ['BE_CACHE_DIR']]\n"
        "built = [be_runtime.load_cpp_inline('odd', '#include \"brainevent/common.h\"\\n' + source,\n"
        "                                    extra_include_paths=folders).path for _ in range(2)]\n"
        "assert built[0] == built[1] and built[0].is_relative_to(folders[0])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        text=True,
        errors="replace",
        capture_output=True,
        env=environment(BE_CACHE_DIR=str(folder), TMPDIR=str(folder)),
    )
    if "\n" in name:
        assert "ArgumentError" in ran.stderr
        assert "holds '\\n'" in ran.stderr
        assert not (folder / "kernels-v1").exists()
    else:
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", ["a|b", "a\nb", "a\rb"], ids=ascii)
def test_a_second_module_in_a_cache_with_an_odd_name(tmp_path: Path, name: str):
    """It links what the cache kept of the first."""
    code = (
        "import be_runtime\n"
        "source = '#include \"brainevent/common.h\"\\n// @BE f\\nvoid f(BE::Tensor y) {}'\n"
        "for name in ('one', 'two'):\n"
        "    be_runtime.load_cpp_inline(name, source)\n"
    )
    run_python(code, env=environment(BE_CACHE_DIR=str(tmp_path / name)))


DIFFERENT: dict[str, dict[str, object]] = {
    "level": {"optimization_level": 0},
    "fast math": {"use_fast_math": True},
    "flag": {"extra_cflags": ["-DX=1"]},
    "other flag": {"extra_cflags": ["-DX=2"]},
    "flags split": {"extra_cflags": ["-DX=1", "-DY"]},
    "flags joined": {"extra_cflags": ["-DX=1 -DY"]},
    "linker flag": {"extra_ldflags": ["-lm"]},
    "folder": {"extra_include_paths": ["/"]},
    "functions": {"functions": ["value"]},
    "spec": {"functions": {"value": ["ret"]}},
}


def test_what_changes_the_library_builds_again(tmp_cache: Path):
    def path_of(name: str, source: str | list[str], **options: Any) -> Path:
        return be_runtime.load_cpp_inline(name, source, auto_register=False, **options).path

    paths = [path_of("keyed", source) for source in (INLINE, INLINE + "\n", [INLINE, ""])]
    paths += [path_of("keyed2", INLINE), *(path_of("keyed", INLINE, **options) for options in DIFFERENT.values())]
    assert len(set(paths)) == len(paths)
    assert len(libraries(tmp_cache)) == len(paths)


SAME: list[dict[str, object]] = [
    {"verbose": True},
    {"auto_register": True, "target_prefix": "same_prefix"},
    {"ninja_workers": 1},
    {"extra_cflags": [], "extra_ldflags": (), "extra_include_paths": []},
    {"optimization_level": 3, "use_fast_math": False, "functions": None},
]


@pytest.mark.parametrize("options", SAME, ids=str)
def test_what_does_not_change_the_library_builds_nothing(tmp_cache: Path, options: dict[str, object]):
    first = be_runtime.load_cpp_inline("same", INLINE, auto_register=False).path
    again = be_runtime.load_cpp_inline("same", INLINE, **{"auto_register": False, **options})  # type: ignore[arg-type]
    assert again.path == first
    assert len(libraries(tmp_cache)) == 1


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"])
def test_variables_that_change_the_compiler(
    variable: str, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    first = be_runtime.load_cpp_inline("environed", INLINE, auto_register=False).path
    monkeypatch.setenv(variable, str(tmp_path))
    assert be_runtime.load_cpp_inline("environed", INLINE, auto_register=False).path != first


def test_force_rebuild(tmp_cache: Path):
    first = be_runtime.load_cpp_inline("forced", INLINE)
    forced = be_runtime.load_cpp_inline("forced", INLINE, force_rebuild=True)
    assert forced.path != first.path
    assert forced.content_hash == first.content_hash
    assert be_runtime.load_cpp_inline("forced", INLINE).path == forced.path
    assert int(call("forced.value", VALUE)) == 1


def test_build_directory(tmp_path: Path, tmp_cache: Path):
    folder = tmp_path / "mine" / "below"
    module = be_runtime.load_cpp_inline("kept", INLINE, build_directory=folder)
    assert module.path.is_relative_to(folder)
    assert not libraries(tmp_cache)
    be_runtime.set_cache_dir(None)
    assert be_runtime.get_cache_dir() == tmp_cache, "that of BE_CACHE_DIR"
    assert be_runtime.load_cpp_inline("kept", INLINE, build_directory=str(folder)).path == module.path
    assert int(call("kept.value", VALUE)) == 1
    (sources,) = {path.parent for path in folder.rglob("*.cc")}
    assert sources.name == "src", "the generated source stays for the reader"
    assert be_runtime.clear_cache("kept") == 0
    assert module.path.exists()


def test_a_relative_build_directory(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    module = be_runtime.load_cpp_inline("kept_here", INLINE, build_directory="build")
    assert module.path.is_relative_to(tmp_path / "build")


def test_set_and_get_cache_dir(tmp_path: Path, tmp_cache: Path):
    assert be_runtime.get_cache_dir() == tmp_cache
    chosen = tmp_path / "chosen"
    be_runtime.set_cache_dir(str(chosen))
    assert be_runtime.get_cache_dir() == chosen
    assert not chosen.exists(), "made at the first build"
    module = be_runtime.load_cpp_inline("placed", INLINE)
    assert module.path.is_relative_to(chosen)
    assert not libraries(tmp_cache)


def test_clear_cache_counts_modules(tmp_cache: Path):
    assert be_runtime.clear_cache() == 0
    for number in range(3):
        be_runtime.load_cpp_inline("cleared", INLINE + f"// {number}\n", auto_register=False)
    kept = be_runtime.load_cpp_inline("kept", INLINE, auto_register=False)
    assert be_runtime.clear_cache("no_such") == 0
    assert be_runtime.clear_cache("cleared") == 3
    assert libraries(tmp_cache) == [kept.path]
    assert be_runtime.clear_cache() == 1
    assert not libraries(tmp_cache)
    assert be_runtime.clear_cache() == 0


def test_a_loaded_module_outlives_its_entry(tmp_cache: Path):
    be_runtime.load_cpp_inline("outliving", INLINE)
    assert be_runtime.clear_cache("outliving") == 1
    assert int(call("outliving.value", VALUE)) == 1
    be_runtime.load_cpp_inline("outliving", INLINE)
    assert int(call("outliving.value", VALUE)) == 1


def test_clearing_leaves_what_others_wrote(tmp_cache: Path):
    module = be_runtime.load_cpp_inline("cleared", INLINE, auto_register=False)
    (tmp_cache / "notes.txt").write_text("mine")
    (module.path.parent.parent / "notes.txt").write_text("mine")
    be_runtime.clear_cache()
    assert len(list(tmp_cache.rglob("notes.txt"))) == 2


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[:1000],
    "other content of the same size": lambda data: b"x" * len(data),
}


@pytest.mark.parametrize("file", ["module.so", "module.json", "manifest.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_built_again(tmp_cache: Path, damage: str, file: str):
    first = be_runtime.load_cpp_inline("damaged", INLINE, auto_register=False)
    path = first.path.parent / file
    data = DAMAGES[damage](path.read_bytes())
    path.unlink()  # this process has mapped the library, whose exit code runs when it ends
    if data is not None:
        path.write_bytes(data)
    second = be_runtime.load_cpp_inline("damaged", INLINE, auto_register=False)
    assert second.path.exists()
    assert second.function_names == ["value"]
    assert second.get_handler("value")


def test_a_build_that_is_interrupted_leaves_nothing(tmp_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mark = f"be-test-{os.getpid()}-{id(tmp_path)}"
    compiler = forwarding_compiler(tmp_path / f"g++{mark}", "sleep 60")
    monkeypatch.setenv("BE_CXX", str(compiler))
    main = threading.get_ident()
    timer = threading.Timer(1.0, lambda: signal.pthread_kill(main, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            be_runtime.load_cpp_inline("interrupted", INLINE)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not processes_with(mark)
    assert not list(tmp_cache.glob("**/*.cc"))
    monkeypatch.delenv("BE_CXX")
    be_runtime.load_cpp_inline("interrupted", INLINE)
    assert int(call("interrupted.value", VALUE)) == 1


def test_a_header_that_comes_to_shadow_another_for_a_static_compiler_behind_a_script(
    tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """The script can be watched, the compiler can't, as with zig; its depfile says what it read."""
    compiler = tmp_path / "cxx"
    compiler.write_text('#!/bin/sh\nexec env -u LD_PRELOAD g++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("BE_CXX", str(compiler))
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "shadowed.h").write_text("// the second\n")
    source = '#include "shadowed.h"\n' + INLINE

    def path() -> Path:
        return be_runtime.load_cpp_inline(
            "shadowed", source, extra_include_paths=list(map(str, folders)), auto_register=False
        ).path

    before = path()
    assert path() == before
    (folders[0] / "shadowed.h").write_text("// the first\n")
    assert path() != before


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_build_goes_on_when_what_it_uses_is_cleared_away(
    is_folder: bool, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """The handler of the first build is there when the second one begins, and gone when it links."""
    mark, kept = tmp_path / "mark", f"'{tmp_cache}'/toolchain/kernels-v1/??"
    clear = f"if [ -e '{mark}' ]; then env -u LD_PRELOAD rm -r '{mark}' {kept}; fi"
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++", f'case "$*" in *src/*) {clear};; esac')))
    be_runtime.load_cpp_inline("first", INLINE, auto_register=False)
    mark.touch()
    if is_folder:
        for name in ("a", "b"):
            (tmp_path / f"{name}.cc").write_text(
                INLINE.replace("value(", f"{name}(").replace("@BE value", f"@BE {name}")
            )
        module = be_runtime.load_cpp_dir(tmp_path, auto_register=False)
    else:
        module = be_runtime.load_cpp_inline("second", INLINE.replace("= 1", "= 2"), auto_register=False)
    assert module.function_names
    assert not mark.exists()
