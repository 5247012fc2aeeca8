"""What each option of a CUDA load does to the compiled code, and what a warm load starts: nothing."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_toolchain.errors import ArchError
from tests.cuda.built import UNCOMPRESSED, WARM_LOAD, built, images, inline
from tests.support import requirements, runtime
from tests.support.cuda import device_code, run_json, source
from tests.support.requirements import in_full

EXACT = (b"div.rn.f32", b"sqrt.rn.f32")
FAST = (b"div.approx.ftz.f32", b"sqrt.approx.ftz.f32", b"fma.rn.ftz.f32")


def holds(module: be_runtime.CompiledModule, *words: bytes) -> set[bool]:
    """Whether words are in a library, and so in its PTX."""
    return {word in module.path.read_bytes() for word in words}


def test_levels_and_fast_math_reach_host_and_device():
    every: tuple[dict[str, Any], ...] = ({"optimization_level": 0}, {}, {"use_fast_math": True})
    slow, usual, fast = (built("arithmetic", UNCOMPRESSED, **options) for options in every)
    assert [ctypes.CDLL(str(module.path)).host_is_optimized() for module in (slow, usual, fast)] == [0, 1, 1]
    sizes = [[len(code.content) for code in device_code(module.path) if code.kind == "elf"] for module in (slow, usual)]
    assert sizes[0] != sizes[1]
    assert built("arithmetic", UNCOMPRESSED, optimization_level=3).path == usual.path
    assert (holds(usual, *EXACT), holds(usual, *FAST)) == ({True}, {False})
    assert (holds(fast, *EXACT), holds(fast, *FAST)) == ({False}, {True})


def test_a_list_makes_a_fat_binary_with_ptx_of_the_highest(monkeypatch: pytest.MonkeyPatch):
    """However it is spelled, and whoever names it: the argument, the process, the environment."""
    fat = built("arithmetic", UNCOMPRESSED, compute_capability="8.0,9.0")
    assert images(fat) == {("elf", 80), ("elf", 90), ("ptx", 90)}
    for listed in ("90;80", " SM_80 ,compute_90", ["9.0", "sm_80"]):
        assert built("arithmetic", UNCOMPRESSED, compute_capability=listed).path == fat.path
    be_runtime.set_compute_capabilities(["8.0", "sm_90"])
    try:
        assert built("arithmetic", UNCOMPRESSED).path == fat.path
        one = built("arithmetic", UNCOMPRESSED, compute_capability="sm_90")
        with pytest.raises(ArchError, match="bogus"):
            be_runtime.set_compute_capabilities("8.0,bogus")
        assert built("arithmetic", UNCOMPRESSED).path == fat.path
    finally:
        be_runtime.set_compute_capabilities(None)
    assert built("arithmetic", UNCOMPRESSED).path == one.path
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES")
    monkeypatch.setenv("BRAINEVENT_COMPUTE_CAPABILITIES", "80,90")
    assert built("arithmetic", UNCOMPRESSED).path == fat.path


@pytest.mark.full
@pytest.mark.usefixtures("tmp_cache")
def test_flags_that_name_architectures_need_no_other_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert images(built("half", compute_capability="sm_90a")) == {("elf", 90)}, "a suffix letter makes no PTX"
    be_runtime.clear_cache()
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert images(built("half", "-gencode=arch=compute_80,code=sm_86")) == {("elf", 86)}
    # Who loads it elsewhere learns what it was compiled for.
    assert [folder.name.rpartition("-")[2] for folder in be_runtime.export_prebuilt(tmp_path / "kernels")] == ["sm_86"]


@pytest.mark.full
def test_native_reaches_the_host_side_alone(capfd: pytest.CaptureFixture[str]):
    native = built("arithmetic", native=True, force_rebuild=True, verbose=True)
    assert "-march=native" in capfd.readouterr().err
    assert native.path != built("arithmetic").path


@pytest.mark.full
def test_flags_reach_their_compiler_as_one_argument_each(tmp_path: Path):
    """The author's standard, level and architecture come before ours; folders may have any name."""
    (folder := tmp_path / "my headers (and $more)").mkdir()
    (folder / "said.h").write_text(
        'extern "C" __attribute__((visibility("default"))) const char* said() { return SAID; }\n'
        "#ifdef __CUDA_ARCH__\nstatic_assert(ON_DEVICE == 1);\n#endif\nstatic_assert(__cplusplus >= 202002L);\n"
    )
    said = "it's one; argument & not | more * (than) <that>"
    flags = [f'-DSAID="{said}"', "-D", "ON_DEVICE=1", "-std=c++20", "-O1", "-gencode=arch=compute_80,code=sm_80"]
    module = inline("flags", source("half") + '#include "said.h"\n', *flags, extra_include_paths=[folder])
    function = ctypes.CDLL(str(module.path)).said
    function.restype = ctypes.c_char_p
    assert function().decode() == said
    assert images(module) == {("elf", 80)}


@pytest.mark.parametrize("variable", ["NVCC_APPEND_FLAGS", in_full("NVCC_PREPEND_FLAGS")])
def test_flags_of_nvcc_s_own_variables(variable: str, monkeypatch: pytest.MonkeyPatch):
    plain = built("styles")
    monkeypatch.setenv(variable, "--no-compress -DUSED=1")
    with_flags = built("styles")
    assert with_flags.path != plain.path
    assert (holds(with_flags, b".visible .entry"), holds(plain, b".visible .entry")) == ({True}, {False})
    monkeypatch.delenv(variable)
    assert built("styles").path == plain.path


def test_a_warm_load_in_a_new_process_starts_nothing(tmp_path: Path):
    (tmp_path / "once.cu").write_text(source("half"))
    cold, warm = (run_json(WARM_LOAD, str(tmp_path / "once.cu"), JAX_PLATFORMS="cpu") for _ in range(2))
    assert any("ninja" in str(event) for event in cold["started"])
    assert warm == {**cold, "started": [], "backend": False}
    assert cold["backend"] is False


@pytest.mark.full
def test_another_nvcc_has_entries_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "calls"
    shim = runtime.script(tmp_path / "nvcc", f"echo called >> {log}", f'exec {requirements.nvcc()} "$@"')
    monkeypatch.setenv("BE_NVCC", str(shim))
    first = built("half").path
    assert log.exists()
    log.unlink()
    assert built("half").path == first
    assert not log.exists()
