"""What a module is made from without a compiler saying so: libraries that are linked in, headers that are not there."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import be_runtime
from tests.support.rebuilds import TICK_S, compiled
from tests.support.runtime import call, real_compiler, run_python

pytestmark = pytest.mark.usefixtures("tmp_cache")

CALLS = """
#include "brainevent/common.h"
extern "C" int answer(void);
// @BE f
void f(BE::Tensor out) { out.data_ptr<int>()[0] = answer(); }
"""
ASKS = """
#if __has_include({name})
#include {name}
#else
#define ANSWER 1
#endif
"""
ANSWERS = """
#include "brainevent/common.h"
// @BE f
void f(BE::Tensor out) { out.data_ptr<int>()[0] = ANSWER; }
"""


class _Loads:
    """Loads a module again and again, each time under names of its own, as XLA holds on to each."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, source: str | Path, **options: Any) -> tuple[int, be_runtime.CompiledModule]:
        self.count += 1
        time.sleep(TICK_S)
        prefix = f"found_{time.monotonic_ns()}"
        if isinstance(source, Path):
            module = be_runtime.load_cpp_dir(source, name="found", target_prefix=prefix, **options)
        else:
            module = be_runtime.load_cpp_inline("found", source, target_prefix=prefix, **options)
        import jax

        return int(call(f"{prefix}.f", jax.ShapeDtypeStruct((1,), np.int32))[0]), module


@pytest.fixture
def load() -> _Loads:
    return _Loads()


def compile_answer(folder: Path, value: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "answer.c").write_text(f"int answer(void) {{ return {value}; }}\n")
    target = folder / "answer.o"
    command = [real_compiler(), "-x", "c", "-fPIC", "-c", str(folder / "answer.c"), "-o", str(target)]
    subprocess.run(command, check=True, timeout=60)
    return target


def archive(folder: Path, value: int, kind: str = "rcs") -> Path:
    """A static library whose function returns `value`."""
    member = compile_answer(folder, value)
    library = folder / "libanswer.a"
    library.unlink(missing_ok=True)
    subprocess.run(["ar", kind, library.name, member.name], cwd=folder, check=True, timeout=60)
    return library


def script(folder: Path, value: int) -> None:
    """A linker script called as a shared library is, which names a static one."""
    archive(folder, value).rename(folder / "libreal.a")
    (folder / "libanswer.so").write_text("INPUT(-lreal)\n")


def member_of_thin(folder: Path, value: int) -> None:
    """A thin archive: made once, its member anew each time."""
    if (folder / "libanswer.a").exists():
        compile_answer(folder, value)
    else:
        archive(folder, value, "rcsT")


LIBRARIES: dict[str, tuple[Callable[[Path, int], object], list[str]]] = {
    "-L and -l": (archive, ["-L{}", "-lanswer"]),
    "-l:": (archive, ["-L{}", "-l:libanswer.a"]),
    "-Wl,": (archive, ["-Wl,{}/libanswer.a"]),
    "a linker script": (script, ["-L{}", "-lanswer"]),
    "a thin archive": (member_of_thin, ["-L{}", "-lanswer"]),
}


@pytest.mark.needs("ar")
@pytest.mark.parametrize("spelt", LIBRARIES)
def test_a_static_library_that_changes_is_linked_again(spelt: str, tmp_path: Path, load: _Loads):
    make, flags = LIBRARIES[spelt]
    ldflags = [flag.format(tmp_path / "lib") for flag in flags]
    make(tmp_path / "lib", 1)
    value, first = load(CALLS, extra_ldflags=ldflags)
    assert (value, load(CALLS, extra_ldflags=ldflags)[1].path) == (1, first.path)
    make(tmp_path / "lib", 2)
    assert load(CALLS, extra_ldflags=ldflags)[0] == 2


@pytest.mark.needs("ar")
def test_a_library_that_comes_first_is_linked(tmp_path: Path, load: _Loads, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path / "far"))
    archive(tmp_path / "far", 1)
    ldflags = [f"-L{tmp_path / 'near'}", "-lanswer"]
    assert load(CALLS, extra_ldflags=ldflags)[0] == 1
    archive(tmp_path / "near", 2)
    assert load(CALLS, extra_ldflags=ldflags)[0] == 2
    archive(tmp_path / "far", 3)
    value, module = load(CALLS, extra_ldflags=ldflags)
    assert (value, load(CALLS, extra_ldflags=ldflags)[1].path) == (2, module.path)


def test_a_shared_library_is_no_part_of_the_module(tmp_path: Path, load: _Loads):
    target = tmp_path / "libanswer.so"

    def make(value: int) -> None:
        new = tmp_path / "new.so"
        command = [real_compiler(), "-shared", str(compile_answer(tmp_path / "source", value)), "-o", str(new)]
        subprocess.run(command, check=True, timeout=60)
        new.rename(target)

    make(1)
    ldflags = [f"-L{tmp_path}", "-lanswer", f"-rpath={tmp_path}"]
    value, module = load(CALLS, extra_ldflags=ldflags)
    make(2)
    assert (value, load(CALLS, extra_ldflags=ldflags)[1].path) == (1, module.path)


@pytest.mark.parametrize("spelt", ['"{}/answer.h"', "<answer.h>", '"answer.h"'])
def test_a_header_that_was_asked_for_is_read_once_it_is_there(spelt: str, tmp_path: Path, load: _Loads):
    folder = tmp_path / "my headers"
    folder.mkdir()
    source = ASKS.format(name=spelt.format(folder)) + ANSWERS
    value, first = load(source, extra_include_paths=[folder])
    assert (value, load(source, extra_include_paths=[folder])[1].path) == (1, first.path)
    header = folder / "answer.h"
    header.write_text("#define ANSWER 9\n")
    assert load(source, extra_include_paths=[folder])[0] == 9
    header.unlink()
    assert load(source, extra_include_paths=[folder])[0] == 1


def test_a_header_that_was_asked_for_and_not_read_may_go(tmp_path: Path, load: _Loads):
    (tmp_path / "mark.h").write_text("")
    source = "#if __has_include(<mark.h>)\n#define ANSWER 2\n#else\n#define ANSWER 1\n#endif\n" + ANSWERS
    assert load(source, extra_cflags=[f"-I{tmp_path}"])[0] == 2
    (tmp_path / "mark.h").unlink()
    assert load(source, extra_cflags=[f"-I{tmp_path}"])[0] == 1


def test_flags_name_folders_too(tmp_path: Path, load: _Loads):
    (tmp_path / "near").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "answer.h").write_text("#define ANSWER 1\n")
    flags = ["-isystem", str(tmp_path / "far"), f"-I{tmp_path / 'near'}"]
    assert load("#include <answer.h>\n" + ANSWERS, extra_cflags=flags)[0] == 1
    (tmp_path / "near" / "answer.h").write_text("#define ANSWER 2\n")
    assert load("#include <answer.h>\n" + ANSWERS, extra_cflags=flags)[0] == 2


def test_a_file_of_a_folder_that_asks_is_compiled_again(tmp_path: Path, load: _Loads):
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "asks.cc").write_text('#include "shared.h"\n' + ANSWERS)
    (folder / "shared.h").write_text(ASKS.format(name='"answer.h"'))
    (folder / "other.cc").write_text(ANSWERS.replace("f(", "g(").replace("@BE f", "@BE g").replace("ANSWER", "0"))
    assert load(folder)[0] == 1
    (folder / "answer.h").write_text("#define ANSWER 9\n")
    value, module = load(folder)
    assert (value, compiled(module)) == (9, {"asks.cc"})


def test_another_process_sees_it_too(tmp_path: Path, tmp_cache: Path):
    header = tmp_path / "answer.h"
    code = "import be_runtime, sys; print(be_runtime.load_cpp_inline('found', sys.argv[1], auto_register=False).path)"
    source = ASKS.format(name=f'"{header}"') + ANSWERS
    first = run_python(code, source).stdout
    assert run_python(code, source).stdout == first
    header.write_text("#define ANSWER 9\n")
    assert run_python(code, source).stdout != first
