"""Raw kernels become machine code without a device, by NVRTC or by nvcc, and again when something changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.cli import main as cli
from be_runtime.errors import BuildError
from be_runtime.kernels import nvrtc
from be_runtime.kernels.launcher import Compiled, obtain_kernel
from be_runtime.kernels.raw_compiler import RawKernel, compile_raw, parse_name, raw_key, raw_origin
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem
from tests.support.cuda import run_json
from tests.support.fresh_environments import NO_INDEX, ROOT
from tests.support.requirements import in_full

ARCHS = (Arch(8, 0), Arch(9, 0))
SOURCE = """
#include <cstdint>
#include <cuda_runtime.h>
template <class T, int N> __global__ void scale(const T* x, T* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = N * x[i];
}
namespace v1 { __global__ void f(float* y) { y[0] = FACTOR; } }
namespace v2 { __global__ void f(float* y) { y[0] = 2; } }
"""
INCLUDES = '#include "factor.h"\n'
SCALE = "__global__ void f(const float* x, float* y) { y[0] = FACTOR * x[0]; }\n"
TICK_S = 0.05
"""A file that changed in the tick in which a compilation begins is in doubt."""


class WithoutNvrtc(LocalSystem):
    """This machine without its NVRTC libraries."""

    def list_dir(self, path: Path) -> tuple[str, ...]:
        return tuple(name for name in super().list_dir(path) if not name.startswith("libnvrtc"))


def session(compiler: str) -> Session:
    here = PROCESS.session()
    if compiler == "nvcc":
        return here._replace(system=WithoutNvrtc())
    if nvrtc.find_nvrtc(here.system) is None:
        pytest.skip("no NVRTC: pip install 'nvidia-cuda-nvrtc==13.0.*'")
    return here


def kernel(name: str, *flags: str) -> RawKernel:
    return RawKernel(SOURCE, parse_name(name), ("-DFACTOR=4", *flags))


def test_constexpr_functions_of_the_host_are_called_by_device_code_or_refused(tmp_path: Path):
    text = "constexpr float two(float a) { return 2 * a; }\n__global__ void f(float* y) { y[0] = two(y[0]); }"
    kernel = RawKernel(text, parse_name("f"), ("--expt-relaxed-constexpr",))
    assert compile_raw(kernel._replace(flags=()), ARCHS[1:], session("nvcc"), tmp_path).images
    with pytest.raises(BuildError, match=r"host functions are not allowed in JIT mode.*-default-device"):
        compile_raw(kernel, ARCHS[1:], session("nvrtc"), tmp_path)
    assert compile_raw(kernel._replace(flags=("-default-device",)), ARCHS[1:], session("nvrtc"), tmp_path).images


class Cached:
    """Kernels out of the cache, and how often one was compiled."""

    def __init__(self, compiler: str, system: LocalSystem | None = None) -> None:
        here = session(compiler)
        self.session = here if system is None else here._replace(system=system)
        self.compiled = 0

    def obtain(self, source: str, *flags: str, folders: Sequence[Path] = ()) -> str:
        """The id of the kernel f."""
        kernel = RawKernel(source, parse_name("f"), flags, (*folders,))

        def compile_now(staging: Path) -> Compiled:
            self.compiled += 1
            return compile_raw(kernel, ARCHS[1:], self.session, staging)

        key, origin = raw_key(kernel, ARCHS[1:], self.session), raw_origin(kernel, ARCHS[1:], self.session)
        return obtain_kernel(key, origin, compile_now, "f", self.session).id


def folders(root: Path, **factors: int) -> list[Path]:
    """Folders with a header that defines a factor each; 0 makes an empty folder."""
    for name, factor in factors.items():
        (root / name).mkdir()
        if factor:
            (root / name / "factor.h").write_text(f"#pragma once\n#define FACTOR {factor}\n")
    time.sleep(TICK_S)
    return [root / name for name in factors]


@pytest.mark.parametrize(
    ("compiler", "name", "entry"),
    [("nvrtc", "scale<float, 3>", "scale"), ("nvrtc", "v2::f", "_ZN2v21fEPf"), ("nvcc", "scale<float, 3>", "scale")],
)
def test_one_cubin_for_each_architecture(compiler: str, name: str, entry: str, tmp_path: Path):
    images = compile_raw(kernel(name), ARCHS, session(compiler), tmp_path).images
    assert [image.arch for image in images] == list(ARCHS)
    for image in images:
        assert image.data.startswith(b"\x7fELF")
        assert f".text.{image.entry}".encode() in image.data
        assert entry in image.entry


@pytest.mark.full
def test_a_kernel_that_nvcc_compiled_depends_on_nvcc(tmp_path: Path):
    """The key knows NVRTC's libraries; which toolkit serves in their place shows only when it compiles."""
    made = compile_raw(kernel("v1::f"), ARCHS[:1], session("nvcc"), tmp_path)
    files = {path.name: path for path in map(Path, made.read.dependencies)}
    assert {"nvcc", "cicc", "ptxas"} <= {*files}
    places = {f"{files['nvcc'].parents[1]}/{name}/." for name in ("lib", "lib64")}
    assert places & {*made.read.others}, "an NVRTC that appears there is used instead"


def test_the_key_knows_source_name_flags_architectures_and_compiler():
    here, there, first = PROCESS.session(), session("nvcc"), kernel("v1::f")
    others = kernel("v2::f"), kernel("v1::f", "-DX"), first._replace(source=SOURCE + " ")
    keys = [raw_key(each, ARCHS, here) for each in (first, *others)]
    keys += [raw_key(first, ARCHS[:1], here), raw_key(first, ARCHS, there)]
    expected = len(keys) if nvrtc.find_nvrtc(here.system) is not None else len(keys) - 1
    assert len({key.digest for key in keys}) == expected


WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a folder apart": (INCLUDES, ("-I", "{folder}")),
    "a folder behind =": (INCLUDES, ("-I={folder}",)),
    "a header by its long name": ("", ("--pre-include={folder}/factor.h",)),
    "a header in a folder": ("", ("-include", "factor.h", "-I{folder}")),
    "an absolute name": ('#include "{folder}/factor.h"\n', ()),
    "a name beside the header": ('#include "{folder}/other.h"\n', ()),
    "a macro": ("#define NAME <factor.h>\n#include NAME\n", ("-I{folder}",)),
}
BY_NVCC = ("a folder behind =", "a header in a folder", "an absolute name", "a macro")
"""Ways that differ for nvcc, which says itself what it read."""


@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize(
    ("way", "compiler"), [*((way, "nvrtc") for way in WAYS), *(in_full(way, "nvcc") for way in BY_NVCC)]
)
def test_a_changed_header_makes_another_kernel(way: str, compiler: str, tmp_path: Path):
    text, flags = WAYS[way]
    (folder,) = folders(tmp_path, headers=1)
    (folder / "other.h").write_text(INCLUDES)
    given = [text.replace("{folder}", str(folder)) + SCALE, *(flag.format(folder=folder) for flag in flags)]
    cached, ids = Cached(compiler), []
    for factor in (2, 3, 2):
        (folder / "factor.h").write_text(f"#define FACTOR {factor}\n")
        time.sleep(TICK_S)
        ids += [cached.obtain(*given), cached.obtain(*given)]
    assert ids == [ids[0], ids[0], ids[2], ids[2], ids[0], ids[0]]
    assert ids[0] != ids[2]
    # The entries of one key stay side by side. Which header a macro names is known to the compiler alone.
    assert cached.compiled == (6 if compiler == "nvrtc" and "macro" in way else 2)


@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize("compiler", ["nvrtc", in_full("nvcc")])
def test_a_header_that_comes_first_makes_another_kernel(compiler: str, tmp_path: Path):
    first, second = folders(tmp_path, first=0, second=2)
    given, cached = (INCLUDES + SCALE, f"-I{first}", f"-I{second}"), Cached(compiler)
    before = cached.obtain(*given)
    (first / "factor.h").write_text("#define FACTOR 3\n")
    assert cached.obtain(*given) != before
    assert cached.compiled == 2
    one, other = (cached.obtain(INCLUDES + SCALE, folders=order) for order in ((first, second), (second, first)))
    assert one != other, "the order of folders"


@pytest.mark.usefixtures("tmp_cache")
def test_a_kernel_is_the_same_wherever_nvrtc_lies(tmp_path: Path):
    """Its id is part of the program, which has to be the same on every host."""
    here = Cached("nvrtc")
    site = next((each for each in here.session.system.site_dirs if (each / "nvidia").is_dir()), None)
    if site is None:
        pytest.skip("NVRTC comes from no wheel")
    (tmp_path / "nvidia").symlink_to(site / "nvidia")
    elsewhere = LocalSystem()
    elsewhere.site_dirs = (tmp_path,)
    there = Cached("nvrtc", elsewhere)
    text = "#include <cuda_fp16.h>\n#define FACTOR 2\n" + SCALE
    assert here.obtain(text) == there.obtain(text)
    assert here.compiled == there.compiled == 1


@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize("compiler", ["nvrtc", in_full("nvcc")])
@pytest.mark.parametrize("flags", [("-I{folder}",), ("-I", "{folder}"), ("-include={folder}/factor.h",), ()])
def test_a_kernel_is_the_same_wherever_its_headers_lie(flags: Sequence[str], compiler: str, tmp_path: Path):
    cached, ids = Cached(compiler), []
    for folder in folders(tmp_path, ada=2, bob=2):
        given = [flag.format(folder=folder) for flag in flags]
        text = SCALE if "-include={folder}/factor.h" in flags else INCLUDES + SCALE
        ids.append(cached.obtain(text, *given, folders=() if flags else (folder,)))
    assert ids[0] == ids[1]
    assert cached.compiled == 2


@pytest.mark.parametrize("compiler", ["nvrtc", in_full("nvcc")])
@pytest.mark.parametrize(
    ("source", "flags", "message"),
    [
        ("__global__ void f(float* y) {\n  y[0] = missing;\n}", (), r"f\.cu\(2\).*missing"),
        (INCLUDES + SCALE, (), r"factor\.h"),
        (SCALE, ("-include", "factor.h"), r"factor\.h"),
    ],
)
def test_an_error_shows_its_line_and_the_process_s_folder_holds_no_headers(
    source: str, flags: tuple[str, ...], message: str, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another process with another folder would take the same kernel out of the cache."""
    folder, staging = folders(tmp_path, headers=2, staging=0)
    monkeypatch.chdir(folder)
    with pytest.raises(BuildError, match=message) as raised:
        compile_raw(RawKernel(source, parse_name("f"), flags), ARCHS[1:], session(compiler), staging)
    assert "\0" not in str(raised.value)


@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize(("factor", "compiled"), [(2, 0), (3, 1)])
def test_a_kernel_of_an_imported_file_is_not_compiled(factor: int, compiled: int, tmp_path: Path):
    """It travels to where its headers lie elsewhere."""
    first, second = folders(tmp_path, first=2, second=factor)
    file = str(tmp_path / "kernels.be")

    def obtain(folder: Path) -> int:
        be_runtime.set_cache_dir(folder / "cache")
        cached = Cached("nvrtc")
        cached.obtain(INCLUDES + SCALE, f"-I{folder}")
        return cached.compiled

    assert obtain(first) == 1
    assert cli.main(["cache", "export", file]) == 0
    be_runtime.set_cache_dir(second / "cache")
    assert cli.main(["cache", "import", file]) == 0
    assert obtain(second) == compiled


BUNDLED = """#include <cuda_fp16.h>
#include <cuda/std/limits>
#include "factor.h"
extern "C" __global__ void k(const float* x, float* y) {
  y[0] = __half2float(__float2half(x[0])) + FACTOR * cuda::std::numeric_limits<float>::epsilon();
}
"""
TRACE_BUNDLED = """
import jax, json, os, sys
import be_runtime
x = jax.ShapeDtypeStruct((1,), "float32")
k = be_runtime.cuda_kernel(sys.argv[1], "k", lambda x: x, grid=1, block=1, compute_capability="sm_90",
                           extra_include_paths=[sys.argv[2]])
jax.eval_shape(k, x)
print(json.dumps([k.report().kernels[0].name, "libnvrtc" in open("/proc/self/maps").read()]))
"""


@pytest.mark.full
def test_nvrtc_alone_has_the_headers_of_cuda_and_cccl(tmp_path: Path):
    """A wheel of NVRTC since 13.3, and no other file of CUDA: its headers are written once, for all processes."""
    site, cache, own = tmp_path / "site-packages", tmp_path / "cache", tmp_path / "own"
    command = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site))
    done = subprocess.run((*command, "nvidia-cuda-nvrtc==13.5.37"), capture_output=True, text=True, check=False)
    if any(sign in done.stderr for sign in NO_INDEX):
        pytest.skip("no package index")
    assert done.returncode == 0, done.stderr
    own.mkdir()
    (own / "factor.h").write_text("#include <cuda/std/cstdint>\n#define FACTOR 2\n")
    variables = {"PYTHONPATH": f"{ROOT}:{site}", "BE_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
    assert run_json(TRACE_BUNDLED, BUNDLED, str(own), **variables) == ["k", True]
    (folder,) = (cache / "toolchain").glob("nvrtc-13.5-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    written = (folder / "cccl" / "cuda" / "std" / "limits").stat()
    assert run_json(TRACE_BUNDLED, BUNDLED, str(own), **variables) == ["k", False], "the second process has it cached"
    assert run_json(TRACE_BUNDLED, f"{BUNDLED}//", str(own), **variables) == ["k", True]
    assert (folder / "cccl" / "cuda" / "std" / "limits").stat() == written


class Bundle:
    """An NVRTC that writes its headers, or can't."""

    status = 7

    def nvrtcInstallBundledHeaders(self, folder: bytes, _flags: int, problem: Any) -> int:  # noqa: N802 - NVRTC's name
        Path(folder.decode()).mkdir()
        problem._obj.value = b"No space left"  # noqa: SLF001 - what byref() refers to
        return self.status


@pytest.mark.parametrize("lacks", ["cuda_fp16.h", "nv/target", ""])
def test_nvrtc_s_own_headers_come_first_where_cuda_s_or_cccl_s_are_missing(tmp_path: Path, lacks: str):
    """jax[cuda13] brings the wheel of CUDA's headers, and not CCCL's."""
    wheels, kept, bundle = tmp_path / "include", tmp_path / "kept", Bundle()
    for name in {"cuda_fp16.h", "nv/target"} - {lacks}:
        (wheels / name).parent.mkdir(parents=True, exist_ok=True)
        (wheels / name).touch()
    bundle.status = 0
    found = nvrtc.Nvrtc(tmp_path / "libnvrtc.so.13", (13, 5), (wheels,), bundle)
    *own, last = nvrtc.header_folders(found, "#include <cuda/std/limits>\n", kept, LocalSystem())
    assert last == wheels
    assert [folder.name for folder in own[1:]] == ["cccl"] * bool(lacks)
    assert [folder.parent for folder in own[:1]] == [kept] * bool(lacks)


def test_headers_that_cannot_be_written_leave_nothing_behind(tmp_path: Path):
    found = nvrtc.Nvrtc(tmp_path / "libnvrtc.so.13", (13, 5), (), Bundle())
    assert nvrtc.header_folders(found, "#include <cstdint>\n", tmp_path, LocalSystem()) == ()
    with pytest.raises(BuildError, match=r"NVRTC can't write its headers into .*: No space left"):
        nvrtc.header_folders(found, "#include <cuda_fp16.h>\n", tmp_path, LocalSystem())
    assert not list(tmp_path.iterdir())
