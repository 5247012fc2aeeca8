"""Nvcc's phases run one by one, and what all sources begin with is kept: results are those of nvcc as a whole."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.errors import BuildError
from be_runtime.store.manifest import parse_manifest
from tests.cuda.built import UNCOMPRESSED, built, inline, log
from tests.support.cuda import device_code, instructions, source
from tests.support.requirements import in_full
from tests.support.runtime import script

ARITHMETIC = source("arithmetic")
MADE, USED, HEADERS_USED = "compiling the preamble of CUDA sources", "with_preamble.sh", "with_kept_headers.sh"


build = partial(inline, "edited", force_rebuild=True)


def thrice(text: str, *flags: str, **options: Any) -> list[be_runtime.CompiledModule]:
    """Three builds: the preamble is made when flags come a second time. Only for g++ are headers kept."""
    modules = [build(text, *flags, **options) for _ in range(3)]
    if "--gnu_version" not in log(modules[0]):
        pytest.skip("nvcc's host compiler is not g++")
    return modules


def read(module: be_runtime.CompiledModule) -> set[str]:
    """What the module depends on."""
    return set(parse_manifest((module.path.parents[1] / "manifest.json").read_text()).dependencies.paths)


@pytest.mark.parametrize("kernel", ["arithmetic", *map(in_full, ("events", "half", "cub_sums", "styles"))])
def test_results_are_those_of_nvcc_as_a_whole(kernel: str, tmp_path: Path):
    text, archs = source(kernel), {"compute_capability": "8.0,9.0"}
    flags = (UNCOMPRESSED, f"-DTRIED={kernel}")  # of this test's own: the first build is that of a new set of flags
    first, second, third = thrice(text, *flags, **archs)
    made, used = ([words in log(each) for each in (first, second, third)] for words in (MADE, USED))
    assert (made, used) == ([False, True, False], [False, False, True])
    assert log(third).count(HEADERS_USED) == 3, "for the host and each architecture"
    if kernel in ("arithmetic", "styles"):
        assert third.path.read_bytes() == second.path.read_bytes()
        assert third.content_hash == second.content_hash == first.content_hash
        assert read(third) == read(second)
    folder = Path(next(part for part in log(third).split() if "/toolchain/" in part and not part.endswith(USED)))
    assert (folder / "preamble.h.gch").stat().st_size > 2**20
    whole = build(text, *flags, "--time", str(tmp_path / "t.csv"), **archs)
    assert ("cudafe++" in log(first), "cudafe++" in log(whole)) == (True, False)
    images = [[(code.kind, code.arch) for code in device_code(each.path)] for each in (first, third, whole)]
    assert images[0] == images[1] == images[2]
    assert instructions(first.path) == instructions(third.path) == instructions(whole.path) != []


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "launcher"), [(("--keep", "--keep-dir", "{}"), ""), (("--threads", "1"), ""), ((), "/usr/bin/env")]
)
def test_what_changes_nvccs_steps_runs_it_as_a_whole(
    flags: Sequence[str], launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BE_COMPILER_LAUNCHER", launcher)
    module = built("arithmetic", *(part.format(tmp_path) for part in flags), force_rebuild=True)
    assert "cudafe++" not in log(module)
    assert ctypes.CDLL(str(module.path)).host_is_optimized() == 1
    assert not [path for path in module.path.parents[1].rglob("*") if path.suffix in {".ii", ".ptx", ".cubin", ".o"}]


@pytest.mark.full
def test_the_dry_run_is_asked_once_for_a_set_of_flags(tmp_cache: Path):
    for name, *flags in (("first",), ("second",), ("other", "-DOTHER")):
        inline(name, ARITHMETIC, *flags)
    assert len([*(tmp_cache / "toolchain").rglob("dryrun.txt")]) == 2


@pytest.mark.full
@pytest.mark.usefixtures("tmp_cache")
def test_errors_and_warnings_are_the_same():
    thrice(ARITHMETIC)
    wrong = ARITHMETIC.replace("host_is_optimized() {", "host_is_optimized() {\n  return undeclared_name;")
    errors = []
    for flags in ((), ("--time", "/dev/null")):
        with pytest.raises(BuildError) as caught:
            build(wrong, *flags)
        errors.append(caught.value.first_error)
    assert errors[0] == errors[1] != ""
    warned = ARITHMETIC.replace("host_is_optimized() {", "host_is_optimized() {\n  if (sizeof(int) < -1) return 2;")
    logs = [log(each) for each in thrice(warned, "-Xcompiler", "-Wall")]
    assert USED in logs[2]
    assert logs[0].count("warning:") == logs[2].count("warning:") > 0


@pytest.mark.full
@pytest.mark.usefixtures("tmp_cache")
def test_a_script_before_the_compiler_may_read_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = script(tmp_path / "g++", 'exec g++ "$@" $MORE_FLAGS')
    monkeypatch.setenv("NVCC_CCBIN", str(compiler))
    kept = log(thrice(ARITHMETIC)[2])
    assert str(compiler) in kept
    assert kept.count(HEADERS_USED) == 2
    monkeypatch.setenv("MORE_FLAGS", "-D_FORTIFY_SOURCE=2")
    other = log(build(ARITHMETIC))
    assert (HEADERS_USED in other, USED in other, MADE in other) == (False, True, False)
    monkeypatch.delenv("MORE_FLAGS")
    assert log(build(ARITHMETIC)).count(HEADERS_USED) == 2


@pytest.mark.full
@pytest.mark.usefixtures("tmp_cache")
def test_a_folder_makes_it_at_once_and_its_edits_use_it(tmp_path: Path):
    for name in "abcd":
        text = f'#include "brainevent/common.h"\n// @BE {name}\nvoid {name}(BE::Tensor out, int64_t stream) {{}}\n'
        (tmp_path / f"{name}.cu").write_text(text)
    logs = []
    for _ in range(2):
        logs.append(log(be_runtime.load_cuda_dir(tmp_path, name="four", auto_register=False, optimization_level=2)))
        with (tmp_path / "a.cu").open("a") as file:
            file.write("// edited\n")
    assert MADE in logs[0]
    assert [words in logs[1] for words in (MADE, USED, HEADERS_USED, "b.cu")] == [False, True, True, False]
