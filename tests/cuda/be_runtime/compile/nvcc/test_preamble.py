"""What all sources begin with is kept: made for flags that come a second time, and without a trace in results."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.cache.validity.manifest import parse_manifest
from be_runtime.errors import BuildError
from tests.support.cuda import instructions, source
from tests.support.requirements import in_full

HEADER = """\
#ifndef MINE
#define MINE
#include_next <cuda_runtime.h>
inline int mine() { return 7; }
#endif
"""
MADE, USED, HEADERS_USED = "compiling the preamble of CUDA sources", "with_preamble.sh", "with_kept_headers.sh"


def build(text: str, **options: Any) -> be_runtime.CompiledModule:
    options.setdefault("compute_capability", "9.0")
    return be_runtime.load_cuda_inline("edited", text, auto_register=False, force_rebuild=True, **options)


def log(module: be_runtime.CompiledModule) -> str:
    return (module.path.parent / "build.log").read_text()


def read(module: be_runtime.CompiledModule) -> set[str]:
    """What the module depends on."""
    return set(parse_manifest((module.path.parent / "manifest.json").read_text()).dependencies.paths)


@pytest.fixture
def needs_gcc(tmp_cache: Path) -> None:
    """Only g++ has such headers; the log of a build names it."""
    if "--gnu_version" not in log(build(source("arithmetic"))):
        pytest.skip("nvcc's host compiler is not g++")


@pytest.mark.usefixtures("needs_gcc")
def test_the_third_build_uses_it_and_makes_the_same_library():
    text = source("arithmetic")
    second, third = build(text), build(text)
    assert MADE in log(second)
    assert USED not in log(second)
    assert USED in log(third)
    assert MADE not in log(third)
    assert log(third).count(HEADERS_USED) == 2
    assert third.path.read_bytes() == second.path.read_bytes()
    assert read(third) == read(second)
    folder = Path(next(part for part in log(third).split() if part.endswith(USED) is False and "/toolchain/" in part))
    assert (folder / "preamble.h.gch").stat().st_size > 2**20


@pytest.mark.usefixtures("needs_gcc")
@pytest.mark.parametrize("kernel", ["events", *map(in_full, ("half", "cub_sums", "styles"))])
def test_the_machine_code_is_that_of_plain_nvcc(kernel: str, tmp_path: Path):
    options = {"extra_cuda_cflags": ["--no-compress"], "compute_capability": "8.0,9.0"}
    kept = [build(source(kernel), **options) for _ in range(3)][-1]
    assert log(kept).count(HEADERS_USED) == 3
    plain = {**options, "extra_cuda_cflags": ["--no-compress", "--time", str(tmp_path / "t.csv")]}
    assert instructions(kept.path) == instructions(build(source(kernel), **plain).path) != []


@pytest.mark.usefixtures("needs_gcc")
def test_errors_and_warnings_are_the_same():
    text = source("arithmetic")
    build(text)
    wrong = text.replace("host_is_optimized() {", "host_is_optimized() {\n  return undeclared_name;")
    errors = []
    for options in ({}, {"extra_cuda_cflags": ["--time", "/dev/null"]}):
        with pytest.raises(BuildError) as caught:
            build(wrong, **options)
        errors.append(caught.value.first_error)
    assert errors[0] == errors[1] != ""
    warned = text.replace("int host_is_optimized() {", "int host_is_optimized() {\n  if (sizeof(int) < -1) return 2;")
    logs = [log(build(warned, extra_cuda_cflags=["-Xcompiler", "-Wall"])) for _ in range(3)]
    assert USED in logs[2]
    assert logs[0].count("warning:") == logs[2].count("warning:") > 0


@pytest.mark.usefixtures("needs_gcc")
def test_a_header_that_comes_first_is_noticed(tmp_path: Path):
    """An include folder of the author's is no part of the preamble, but may change what it begins with."""
    first = tmp_path / "include"
    first.mkdir()
    options = {"extra_include_paths": [first]}
    for _ in range(2):
        build(source("arithmetic"), **options)
    text = source("arithmetic")
    assert HEADERS_USED in log(build(text, **options))
    (first / "cuda_runtime.h").write_text(HEADER)
    text = text.replace("return 1;", "return mine();").replace("return 0;", "return mine();")
    built = log(build(text, **options))
    assert USED in built
    assert HEADERS_USED not in built


@pytest.mark.usefixtures("needs_gcc")
@pytest.mark.parametrize("place", ["folder", in_full("flag"), in_full("CPATH")])
@pytest.mark.parametrize("name", ["math.h", in_full("tbb/tbb.h"), in_full("crt/host_config.h")])
def test_headers_that_may_be_others_are_read(place: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that would be found in place of one of theirs, or one that they ask for."""
    first = tmp_path / "include"
    (first / name).parent.mkdir(parents=True)
    options: dict[str, dict[str, Any]] = {
        "folder": {"extra_include_paths": [first]},
        "flag": {"extra_cuda_cflags": [f"-I{first}"]},
        "CPATH": {},
    }
    if place == "CPATH":
        monkeypatch.setenv("CPATH", str(first))
    for _ in range(3):
        before = log(build(source("arithmetic"), **options[place]))
    assert before.count(HEADERS_USED) == 2
    (first / name).write_text(f"#include_next <{name}>\n" if name == "math.h" else "")
    with contextlib.suppress(BuildError):  # which is what nvcc says of an empty host_config.h too
        assert HEADERS_USED not in log(build(source("arithmetic"), **options[place]))


@pytest.mark.usefixtures("needs_gcc")
@pytest.mark.parametrize(
    "flags", ["-include={}/mine.h", *map(in_full, ("-Xcompiler=@{}/more", "-Xcompiler=--include-directory={}"))]
)
def test_flags_that_read_more_headers_read_all_of_them(flags: str, tmp_path: Path):
    (tmp_path / "mine.h").write_text('#pragma push_macro("XX")\n')
    (tmp_path / "more").write_text("-DMORE\n")
    for _ in range(3):
        built = log(build(source("arithmetic"), extra_cuda_cflags=[flags.format(tmp_path)]))
    assert HEADERS_USED not in built


@pytest.mark.usefixtures("needs_gcc")
def test_a_script_before_the_compiler_may_read_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = tmp_path / "g++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@" $MORE_FLAGS\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("NVCC_CCBIN", str(compiler))
    for _ in range(3):
        built = log(build(source("arithmetic")))
    assert str(compiler) in built
    assert built.count(HEADERS_USED) == 2
    monkeypatch.setenv("MORE_FLAGS", "-D_FORTIFY_SOURCE=2")
    other = log(build(source("arithmetic")))
    assert HEADERS_USED not in other
    assert USED in other
    assert MADE not in other
    monkeypatch.delenv("MORE_FLAGS")
    assert log(build(source("arithmetic"))).count(HEADERS_USED) == 2


@pytest.mark.usefixtures("needs_gcc")
def test_a_folder_makes_it_at_once_and_its_edits_use_it(tmp_path: Path):
    folder = tmp_path / "four"
    folder.mkdir()
    for name in "abcd":
        text = f'#include "brainevent/common.h"\n// @BE {name}\nvoid {name}(BE::Tensor out, int64_t stream) {{}}\n'
        (folder / f"{name}.cu").write_text(text)
    built = log(be_runtime.load_cuda_dir(folder, auto_register=False, compute_capability="9.0", optimization_level=2))
    assert MADE in built
    with (folder / "a.cu").open("a") as file:
        file.write("// edited\n")
    edited = log(be_runtime.load_cuda_dir(folder, auto_register=False, compute_capability="9.0", optimization_level=2))
    assert MADE not in edited
    assert USED in edited
    assert HEADERS_USED in edited
    assert "b.cu" not in edited
