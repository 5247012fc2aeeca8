"""Options of CUDA loads: compiled code, registration, checked builds, and that a warm load starts nothing."""

from __future__ import annotations

import ctypes
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cuda_request, file_units, load_options
from be_toolchain.errors import ArchError
from tests.cuda.built import UNCOMPRESSED, WARM_LOAD, built, images, inline
from tests.support import requirements, runtime
from tests.support.cuda import ARCH, device_code, run_json, source
from tests.support.planted.try_all import kernels
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


EVENTS = """
#include <cuda_runtime.h>
#include "brainevent/common.h"
#include "cuda_common.h"
__global__ void k(const float* x, float* y) { y[threadIdx.x] = IS_ACTIVE_F32(x[threadIdx.x]) ? 2.0f : 3.0f; }
// @BE events
void events(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  k<<<1, x.numel(), 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
"""


COMPARED = {b"neu": "nonzero", b"eq": "nonzero", b"gt": "positive", b"leu": "positive"}
"""What PTX's comparisons of a value and 0 mean, or the opposite comparisons; NaN is not ``eq``, but ``leu``."""


def test_values_that_are_events(monkeypatch: pytest.MonkeyPatch):
    def load(active: str | None = None) -> Path:
        return inline("events", EVENTS, UNCOMPRESSED, active=active).path

    usual, positive = load(), load("positive")
    compared = [re.findall(rb"setp\.(\w+)\.f32", path.read_bytes()) for path in (usual, positive)]
    assert [COMPARED[word] for (word,) in compared] == ["nonzero", "positive"]
    monkeypatch.setenv("BE_ACTIVE", "positive")
    assert (load(), load("nonzero")) == (positive, usual)


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


KERNELS = {path.stem: path for path in kernels("cuda")}
STRICT = ["-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings"]


def load(name: str, flags: list[str] | None = None, *, checked: bool) -> Any:
    request = cuda_request(name, file_units(KERNELS[name]), None, compute_capability=ARCH, extra_cuda_cflags=flags)
    wanted = request._replace(compile=request.compile._replace(checked=checked))
    return PROCESS.load(wanted, load_options(name, auto_register=False))


def test_only_a_checked_library_can_tell_of_an_access():
    told = {checked: load("index_outside", STRICT, checked=checked).path.read_bytes() for checked in (False, True)}
    assert {checked: b"be_access_taken" in library for checked, library in told.items()} == {False: False, True: True}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::be_runtime.StreamWarning")
@pytest.mark.parametrize("name", KERNELS)
def test_each_planted_fault_compiles_checked(name: str):
    assert load(name, checked=True).function_names == [name]


STREAMS = """
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void k(float* y) { y[0] = 1.0f; }
// @BE none
void none(BE::Tensor y) { k<<<1, 1>>>(y.data_ptr<float>()); }
// @BE unused
void unused(BE::Tensor y, int64_t stream) { k<<<1, 1>>>(y.data_ptr<float>()); }
// @BE good
void good(BE::Tensor y, int64_t stream) { k<<<1, 1, 0, (cudaStream_t)stream>>>(y.data_ptr<float>()); }
"""
WARNED = [["race.none", "race:6 (k<<<1, 1>>>)"], ["race.unused", "race:8 (k<<<1, 1>>>)"]]


def test_launches_that_are_in_no_order_with_xlas_are_warned_of_at_every_load():
    """Once for each function, with the reason, also from the cache; it can be an error."""
    for times in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            be_runtime.load_cuda_inline("race", STREAMS, auto_register=False)
        texts = [str(warning.message) for warning in caught]
        assert [text.split(": ")[0].split(" works on CUDA's default stream at ") for text in texts] == WARNED, times
        assert [("take `cudaStream_t stream` as a parameter" in text) for text in texts] == [True, False]
        assert {(warning.category, warning.filename) for warning in caught} == {(be_runtime.StreamWarning, __file__)}
    with pytest.raises(be_runtime.StreamWarning, match=r"race\.none"):
        be_runtime.load_cuda_inline("race", STREAMS, auto_register=False)


HOST_CALLS = """
#include <limits>
#include <cuda_runtime.h>
#include "brainevent/common.h"
template <class T> __host__ __device__ T least(T a) { return a < std::numeric_limits<T>::max() ? a : T(); }
__global__ void k(float* y) { y[0] = least(y[0]) PLUS; }
// @BE first
void first(BE::Tensor y, cudaStream_t stream) { k<<<1, 1, 0, stream>>>(y.data_ptr<float>()); }
// @BE second
void second(BE::Tensor y, cudaStream_t stream) { k<<<1, 1, 0, stream>>>(y.data_ptr<float>()); }
"""


def test_device_code_that_calls_functions_of_the_host_is_warned_of_at_every_load():
    """Once for a module, with the line; constexpr functions may be called, unless the author says otherwise."""
    be_runtime.load_cuda_inline("calls", HOST_CALLS.replace("PLUS", ""), auto_register=False)
    one = HOST_CALLS.replace("PLUS", "+ of_host()").replace("template", "float of_host();\ntemplate")
    of_host = one.replace("__global__", "__host__ __device__ float both() { return of_host(); }\n__global__")
    of_host = of_host.replace("+ of_host()", "+ both()") + "float of_host() { return 1; }\n"
    strict, strict_flags = HOST_CALLS.replace("PLUS", ""), ["--no-expt-relaxed-constexpr"]
    cases: tuple[tuple[str, list[str], str], ...] = (
        (of_host, [], "calls(7): warning #20011-D: calling a __host__ function"),
        (strict, strict_flags, "calls(5): warning #20013-D: calling a constexpr __host__"),
    )
    for text, flags, message in cases:
        for times in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                be_runtime.load_cuda_inline("calls", text, extra_cuda_cflags=flags, auto_register=False)
            (warned,) = caught
            assert (warned.category, warned.filename) == (be_runtime.DeviceCodeWarning, __file__), times
            assert str(warned.message).startswith(message), times
    refused = HOST_CALLS.replace("PLUS", "+ std::numeric_limits<float>::max()")
    be_runtime.load_cuda_inline("calls", refused, auto_register=False)
    with pytest.raises(be_runtime.BuildError, match=r"\(6\): error: calling a constexpr __host__ function"):
        be_runtime.load_cuda_inline("calls", refused, extra_cuda_cflags=strict_flags, auto_register=False)


CPP = """
#include "brainevent/common.h"
// @BE transform
void transform(const BE::Tensor x, BE::Tensor out) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = 3 * x.data_ptr<float>()[i];
}
"""
HEADER = "__device__ inline float transformed(float x) { return 3.0f * x; }\n"
CUDA = HEADER + source("sibling").replace('#include "sibling.cuh"\n', "")


def load_registration(language: str, prefix: str, **options: Any) -> be_runtime.CompiledModule:
    if language == "cpp":
        return be_runtime.load_cpp_inline("registered", CPP, target_prefix=prefix)
    return be_runtime.load_cuda_inline("registered", CUDA, target_prefix=prefix, **options)


def transform(name: str) -> np.ndarray:
    x = jnp.arange(5, dtype=jnp.float32)
    run = jax.jit(lambda x: jax.ffi.ffi_call(f"{name}.transform", jax.ShapeDtypeStruct(x.shape, x.dtype))(x))
    return np.asarray(run(jax.device_put(x, jax.devices("cpu")[0])))


@pytest.mark.parametrize("order", [("cpp", "cuda"), ("cuda", "cpp")], ids="-".join)
def test_one_name_serves_both_platforms(order: tuple[str, ...]):
    name = "both_" + "_".join(order)
    modules = [load_registration(language, name) for language in order]
    assert modules[0].path != modules[1].path
    np.testing.assert_array_equal(transform(name), 3 * np.arange(5))
    assert be_runtime.list_registered_targets().count(f"{name}.transform") == 1


def test_a_cuda_target_does_not_exist_for_the_cpu():
    first, again = (load_registration("cuda", "only_cuda") for _ in range(2))
    assert (first.path, first.content_hash) == (again.path, again.content_hash)
    assert be_runtime.list_registered_targets().count("only_cuda.transform") == 1
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"only_cuda\.transform"):
        transform("only_cuda")


def test_the_graph_trait_belongs_to_the_registration():
    first = load_registration("cuda", "trait")
    with pytest.raises(be_runtime.RegistrationError, match=r"trait\.transform.*CUDA") as caught:
        load_registration("cuda", "trait", allow_cuda_graph=False)
    assert "target_prefix" in " ".join(caught.value.hints)
    other = load_registration("cuda", "untrait", allow_cuda_graph=False)
    assert (other.path, other.content_hash) == (first.path, first.content_hash)
    assert "untrait.transform" in be_runtime.list_registered_targets()
