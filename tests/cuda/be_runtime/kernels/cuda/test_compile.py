"""Raw and Numba kernels become machine code without a device: by NVRTC, by nvcc, by Numba."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import BuildError
from be_runtime.kernels.cuda import nvrtc
from be_runtime.kernels.cuda.calls import new_session
from be_runtime.kernels.cuda.images import Compiled, obtain_kernel
from be_runtime.kernels.cuda.prototype import parse_name
from be_runtime.kernels.cuda.raw_compiler import compile_raw, raw_key, raw_origin
from be_runtime.kernels.cuda.raw_source import RawKernel
from be_runtime.load.session import Session
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem
from tests.support.kernel_calls import attributes, kernel_calls

ARCHS = (Arch(8, 0), Arch(9, 0))
SOURCE = """
#include <cstdint>
#include <cuda_runtime.h>
template <class T, int N> __global__ void scale(const T* x, T* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = N * x[i];
}
__global__ void plain(float* y) { y[0] = FACTOR; }
"""


class WithoutNvrtc(LocalSystem):
    """This machine without its NVRTC libraries."""

    def list_dir(self, path: Path) -> tuple[str, ...]:
        return tuple(name for name in super().list_dir(path) if not name.startswith("libnvrtc"))


def session(compiler: str) -> Session:
    here = new_session()
    if compiler == "nvcc":
        return here._replace(system=WithoutNvrtc())
    if nvrtc.find_nvrtc(here.system) is None:
        pytest.skip("no NVRTC: pip install 'nvidia-cuda-nvrtc==13.0.*'")
    return here


def kernel(name: str, *flags: str) -> RawKernel:
    return RawKernel(SOURCE, parse_name(name), ("-DFACTOR=4", *flags))


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
@pytest.mark.parametrize("name", ["scale<float, 3>", "plain"])
def test_one_cubin_for_each_architecture(compiler: str, name: str, tmp_path: Path):
    images = compile_raw(kernel(name), ARCHS, session(compiler), tmp_path).images
    assert [image.arch for image in images] == list(ARCHS)
    for image in images:
        assert image.data.startswith(b"\x7fELF")
        assert f".text.{image.entry}".encode() in image.data
        assert parse_name(name).base in image.entry


def test_a_kernel_that_nvcc_compiled_depends_on_nvcc(tmp_path: Path):
    """The key knows NVRTC's libraries; which toolkit serves in their place shows only when it compiles."""
    made = compile_raw(kernel("plain"), ARCHS[:1], session("nvcc"), tmp_path)
    files = {path.name: path for path in made.dependencies}
    assert {"nvcc", "cicc", "ptxas"} <= {*files}
    folders = {f"{files['nvcc'].parents[1]}/{name}/." for name in ("lib", "lib64")}
    assert folders & {*made.others}, "an NVRTC that appears there is used instead"


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_error_shows_its_line(compiler: str, tmp_path: Path):
    broken = RawKernel("__global__ void f(float* y) {\n  y[0] = missing;\n}", parse_name("f"))
    with pytest.raises(BuildError, match=r"f\.cu\(2\).*missing") as raised:
        compile_raw(broken, ARCHS[:1], session(compiler), tmp_path)
    assert "\0" not in str(raised.value)


def test_key_knows_source_name_flags_architectures_and_compiler():
    here, there = new_session(), session("nvcc")
    keys = [
        raw_key(kernel("plain"), ARCHS, here),
        raw_key(kernel("scale<float, 3>"), ARCHS, here),
        raw_key(kernel("plain", "-DX"), ARCHS, here),
        raw_key(kernel("plain")._replace(source=SOURCE + " "), ARCHS, here),
        raw_key(kernel("plain"), ARCHS[:1], here),
        raw_key(kernel("plain"), ARCHS, there),
    ]
    expected = len(keys) if nvrtc.find_nvrtc(here.system) is not None else len(keys) - 1
    assert len({key.digest for key in keys}) == expected


INCLUDES = '#include "factor.h"\n'
SCALE = "__global__ void f(const float* x, float* y) { y[0] = FACTOR * x[0]; }\n"
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a folder": (INCLUDES, ("-I{folder}",)),
    "a folder apart": (INCLUDES, ("-I", "{folder}")),
    "a folder behind =": (INCLUDES, ("-I={folder}",)),
    "a folder by its long name": (INCLUDES, ("--include-path={folder}",)),
    "a header": ("", ("-include={folder}/factor.h",)),
    "a header apart": ("", ("-include", "{folder}/factor.h")),
    "a header by its long name": ("", ("--pre-include={folder}/factor.h",)),
    "a header in a folder": ("", ("-include", "factor.h", "-I{folder}")),
    "an absolute name": ('#include "{folder}/factor.h"\n', ()),
    "a name beside the header": ('#include "{folder}/other.h"\n', ()),
    "a macro": ("#define NAME <factor.h>\n#include NAME\n", ("-I{folder}",)),
    "a macro of the command": ("#include NAME\n", ("-DNAME=<factor.h>", "-I{folder}")),
}


class Cached:
    """Kernels out of a cache of their own, and how often one was compiled."""

    def __init__(self, compiler: str, system: LocalSystem | None = None) -> None:
        here = session(compiler)
        self.session = here if system is None else here._replace(system=system)
        self.compiled = 0

    def obtain(self, kernel: RawKernel) -> str:
        """The kernel's id."""

        def compile_now(staging: Path) -> Compiled:
            self.compiled += 1
            return compile_raw(kernel, ARCHS[1:], self.session, staging)

        key, origin = raw_key(kernel, ARCHS[1:], self.session), raw_origin(kernel, ARCHS[1:], self.session)
        return obtain_kernel(key, origin, compile_now, "f", self.session).id


BY_NVCC = ("a folder behind =", "a header in a folder", "an absolute name", "a macro")
"""Ways that differ for nvcc, which says itself what it read."""


@pytest.mark.parametrize(("way", "compiler"), [*((way, "nvrtc") for way in WAYS), *((way, "nvcc") for way in BY_NVCC)])
def test_changed_header_makes_another_kernel(way: str, compiler: str, tmp_path: Path, tmp_cache: Path):
    text, flags = WAYS[way]
    folder = tmp_path / "headers"
    folder.mkdir()
    (folder / "other.h").write_text(INCLUDES)
    scale = RawKernel(
        text.replace("{folder}", str(folder)) + SCALE,
        parse_name("f"),
        tuple(flag.format(folder=folder) for flag in flags),
    )
    cached, ids = Cached(compiler), []
    for factor in (2, 3, 2):
        (folder / "factor.h").write_text(f"#define FACTOR {factor}\n")
        time.sleep(0.05)  # A file that changed in the tick in which a compilation begins is in doubt.
        ids += [cached.obtain(scale), cached.obtain(scale)]
    assert ids == [ids[0], ids[0], ids[2], ids[2], ids[0], ids[0]]
    assert ids[0] != ids[2]
    # The entries of one key stay side by side. Which header a macro names is known to the compiler alone.
    assert cached.compiled == (6 if compiler == "nvrtc" and "macro" in way else 2)


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_new_header_that_comes_first_makes_another_kernel(compiler: str, tmp_path: Path, tmp_cache: Path):
    first, second = folders = (tmp_path / "first", tmp_path / "second")
    for folder in folders:
        folder.mkdir()
    (second / "factor.h").write_text("#define FACTOR 2\n")
    scale = RawKernel(INCLUDES + SCALE, parse_name("f"), (f"-I{first}", f"-I{second}"))
    cached = Cached(compiler)
    before = cached.obtain(scale)
    (first / "factor.h").write_text("#define FACTOR 3\n")
    assert cached.obtain(scale) != before
    assert cached.compiled == 2


def test_a_kernel_is_the_same_wherever_nvrtc_lies(tmp_path: Path, tmp_cache: Path):
    """Its id is part of the program, which has to be the same on every host."""
    here = Cached("nvrtc")
    site = next((each for each in here.session.system.site_dirs if (each / "nvidia").is_dir()), None)
    if site is None:
        pytest.skip("NVRTC comes from no wheel")
    (tmp_path / "nvidia").symlink_to(site / "nvidia")
    elsewhere = LocalSystem()
    elsewhere.site_dirs = (tmp_path,)
    there = Cached("nvrtc", elsewhere)
    scale = RawKernel("#include <cuda_fp16.h>\n#define FACTOR 2\n" + SCALE, parse_name("f"))
    assert here.obtain(scale) == there.obtain(scale)
    assert here.compiled == there.compiled == 1


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
@pytest.mark.parametrize("flags", [("-I{folder}",), ("-I", "{folder}"), ("-include={folder}/factor.h",), ()])
def test_a_kernel_is_the_same_wherever_its_headers_lie(
    flags: tuple[str, ...], compiler: str, tmp_path: Path, tmp_cache: Path
):
    cached, ids = Cached(compiler), []
    for name in ("ada", "bob"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "factor.h").write_text("#pragma once\n#define FACTOR 2\n")
        time.sleep(0.05)  # As above.
        given = tuple(flag.format(folder=folder) for flag in flags)
        text = SCALE if "-include={folder}/factor.h" in flags else INCLUDES + SCALE
        ids.append(cached.obtain(RawKernel(text, parse_name("f"), given, () if flags else (folder,))))
    assert ids[0] == ids[1]
    assert cached.compiled == 2


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_the_order_of_folders_makes_another_kernel(compiler: str, tmp_path: Path, tmp_cache: Path):
    folders = (tmp_path / "two", tmp_path / "three")
    for factor, folder in enumerate(folders, 2):
        folder.mkdir()
        (folder / "factor.h").write_text(f"#define FACTOR {factor}\n")
    time.sleep(0.05)  # As above.
    cached = Cached(compiler)
    one, other = (
        cached.obtain(RawKernel(INCLUDES + SCALE, parse_name("f"), (), order)) for order in (folders, folders[::-1])
    )
    assert one != other


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
@pytest.mark.parametrize("flags", [(), ("-include", "factor.h")])
def test_the_process_s_folder_holds_no_headers(
    flags: tuple[str, ...], compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another process with another folder would take the same kernel out of the cache."""
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    (tmp_path / "staging").mkdir()
    monkeypatch.chdir(tmp_path)
    scale = RawKernel(("" if flags else INCLUDES) + SCALE, parse_name("f"), flags)
    with pytest.raises(BuildError, match=r"factor\.h"):
        compile_raw(scale, ARCHS[1:], session(compiler), tmp_path / "staging")


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_the_kernel_of_the_namespace_is_compiled(compiler: str, tmp_path: Path):
    source = "".join(f"namespace {name} {{ {SCALE.replace('FACTOR', name[1])} }}\n" for name in ("v1", "v2"))
    (image,) = compile_raw(RawKernel(source, parse_name("v2::f")), ARCHS[1:], session(compiler), tmp_path).images
    assert image.entry == "_ZN2v21fEPKfPf"


def numba_compiler() -> Any:
    reason = "no Numba for CUDA: pip install 'brainevent-toolchain[numba]'"
    return pytest.importorskip("tests.support.numba_kernels", reason=reason, exc_type=ImportError)


def test_numba_kernel_compiles_once_for_a_cache(tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    numba_kernels = numba_compiler()
    import jax

    import be_runtime
    from be_runtime.kernels.numba.gpu.numba_compiler import compile_numba

    monkeypatch.setenv("BE_COMPUTE_CAPABILITIES", "9.0")
    compiled = []

    def counted(*arguments: Any, **options: Any) -> Any:
        compiled.append(arguments)
        return compile_numba(*arguments, **options)

    monkeypatch.setattr("be_runtime.kernels.numba.gpu.numba_cuda.compile_numba", counted)
    case = numba_kernels.CASES["saxpy"]
    outs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.outs]

    def find_id() -> str:
        function = be_runtime.numba_cuda_kernel(case.kernel, outs, **case.launch)
        (call,) = kernel_calls(function, *case.inputs)
        return str(attributes(call)["kernel"])

    first = find_id()
    assert find_id() == first
    assert len(compiled) == 1
    # A checkout of ours on another host has other times: the kernel is compiled anew, and the program is the same.
    monkeypatch.setattr("be_runtime.kernels.numba.gpu.numba_cuda.own_code_digest", lambda: "another checkout")
    assert find_id() == first
    assert len(compiled) == 2
