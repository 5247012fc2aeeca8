"""What each option of a CUDA load does to the compiled code."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_toolchain.errors import ArchError
from tests.support.cuda import device_code, source

UNCOMPRESSED = "--no-compress"
"""Leaves the PTX in the library readable."""


def load(name: str = "arithmetic", **options: Any) -> be_runtime.CompiledModule:
    return be_runtime.load_cuda_inline(name, source("arithmetic"), auto_register=False, **options)


def ptx(module: be_runtime.CompiledModule) -> bytes:
    return module.path.read_bytes()


def machine_code_bytes(module: be_runtime.CompiledModule) -> int:
    return sum(code.size_bytes for code in device_code(module.path) if code.kind == "elf")


def test_optimization_levels_reach_host_and_device():
    levels = [load(optimization_level=level, extra_cuda_cflags=[UNCOMPRESSED]) for level in range(4)]
    assert len({module.path for module in levels}) == 4
    assert [ctypes.CDLL(str(module.path)).host_is_optimized() for module in levels] == [0, 1, 1, 1]
    assert machine_code_bytes(levels[0]) != machine_code_bytes(levels[3])
    assert load(extra_cuda_cflags=[UNCOMPRESSED]).path == levels[3].path


def test_fast_math_is_approximate_and_off_by_default():
    exact, fast = (load(use_fast_math=fast, extra_cuda_cflags=[UNCOMPRESSED]) for fast in (False, True))
    for instruction in (b"div.rn.f32", b"sqrt.rn.f32"):
        assert instruction in ptx(exact)
        assert instruction not in ptx(fast)
    for instruction in (b"div.approx.ftz.f32", b"sqrt.approx.ftz.f32", b"fma.rn.ftz.f32"):
        assert instruction in ptx(fast)
        assert instruction not in ptx(exact)


def test_native_reaches_the_host_side_alone(capfd: pytest.CaptureFixture[str]):
    module = load(native=True, force_rebuild=True, verbose=True)
    assert "-march=native" in capfd.readouterr().err
    assert module.path != load().path


def test_flags_of_the_page(capfd: pytest.CaptureFixture[str]):
    flags = [
        "--generate-line-info",
        "-maxrregcount=64",
        "--ptxas-options=-v",
        *("-Xcompiler", "-march=native"),
    ]
    module = load(extra_cuda_cflags=[*flags, UNCOMPRESSED], verbose=True, force_rebuild=True)
    printed = capfd.readouterr().err
    assert "ptxas info" in printed
    assert "registers" in printed
    assert "-march=native" in printed
    assert b".loc\t" in ptx(module)  # line numbers
    assert b".maxnreg" in ptx(module) or "maxrregcount" in printed
    assert b".loc\t" not in ptx(load(extra_cuda_cflags=[UNCOMPRESSED]))


def test_flags_reach_their_compiler_as_one_argument_each():
    text = (
        source("half")
        + """
extern "C" __attribute__((visibility("default"))) const char* said() { return SAID; }
#ifdef __CUDA_ARCH__
static_assert(ON_DEVICE == 1);
#endif
"""
    )
    said = "it's one; argument & not | more * (than) <that>"
    module = be_runtime.load_cuda_inline(
        "flags", text, extra_cuda_cflags=[f'-DSAID="{said}"', "-D", "ON_DEVICE=1"], auto_register=False
    )
    function = ctypes.CDLL(str(module.path)).said
    function.restype = ctypes.c_char_p
    assert function().decode() == said


def test_include_folders_with_spaces(tmp_path: Path):
    folder = tmp_path / "my headers (and $more)"
    folder.mkdir()
    (folder / "sibling.cuh").write_text("__device__ inline float transformed(float x) { return x; }\n")
    module = be_runtime.load_cuda_inline(
        "included", source("sibling"), extra_include_paths=[folder], auto_register=False
    )
    assert module.function_names == ["transform"]


def test_the_author_may_name_standard_level_and_architecture():
    module = be_runtime.load_cuda_inline(
        "own_flags",
        source("half") + "\nstatic_assert(__cplusplus >= 202002L);\n",
        extra_cuda_cflags=["-std=c++20", "-O1", "-gencode=arch=compute_80,code=sm_80"],
        auto_register=False,
    )
    assert [(code.kind, code.arch) for code in device_code(module.path)] == [("elf", 80)]


@pytest.mark.usefixtures("tmp_cache")
def test_flags_that_name_architectures_need_no_other_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert archs(extra_cuda_cflags=["-gencode=arch=compute_80,code=sm_86"]) == ({86}, set())
    # Who loads it elsewhere learns what it was compiled for.
    assert [folder.name.rpartition("-")[2] for folder in be_runtime.export_prebuilt(tmp_path / "kernels")] == ["sm_86"]
    with pytest.raises(be_runtime.ArgumentError, match="both name architectures"):
        archs(extra_cuda_cflags=["-arch=sm_80"], compute_capability="9.0")


def archs(**options: Any) -> tuple[set[int], set[int]]:
    """Of what architectures a library holds machine code, and of what PTX."""
    module = be_runtime.load_cuda_inline("archs", source("half"), auto_register=False, **options)
    found = device_code(module.path)
    return ({code.arch for code in found if code.kind == "elf"}, {code.arch for code in found if code.kind == "ptx"})


def test_every_spelling_is_one_module():
    spellings = ["9.0", "90", "sm_90", "compute_90", " SM_90 "]
    modules = [
        be_runtime.load_cuda_inline("spelt", source("half"), compute_capability=spelling, auto_register=False)
        for spelling in spellings
    ]
    assert len({module.path for module in modules}) == 1


def test_a_list_makes_a_fat_binary_with_ptx_of_the_highest():
    assert archs(compute_capability="8.0,sm_90") == ({80, 90}, {90})
    assert archs(compute_capability="90;80") == ({80, 90}, {90})
    assert archs(compute_capability=["9.0", "sm_80"]) == ({80, 90}, {90})


def test_a_suffix_letter_makes_no_ptx():
    assert archs(compute_capability="sm_90a") == ({90}, set())


def test_argument_then_process_then_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_COMPUTE_CAPABILITIES", "7.5")
    assert archs() == ({75}, {75})
    be_runtime.set_compute_capabilities(["8.0", "sm_86"])
    try:
        assert archs() == ({80, 86}, {86})
        assert archs(compute_capability="8.9") == ({89}, {89})
        with pytest.raises(ArchError, match="bogus"):
            be_runtime.set_compute_capabilities("8.0,bogus")
        assert archs() == ({80, 86}, {86})
    finally:
        be_runtime.set_compute_capabilities(None)
    assert archs() == ({75}, {75})


def test_the_reference_s_variable_works(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES")
    monkeypatch.setenv("BRAINEVENT_COMPUTE_CAPABILITIES", "8.0")
    assert archs() == ({80}, {80})


def test_ninja_workers_and_a_build_directory(tmp_path: Path):
    module = load(ninja_workers=1, build_directory=tmp_path / "mine")
    assert module.path.is_relative_to(tmp_path / "mine")
