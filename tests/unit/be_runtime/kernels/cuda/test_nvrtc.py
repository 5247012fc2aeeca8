"""Where NVRTC is looked for, on each kind of machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.kernels.cuda.nvrtc import Nvrtc, libraries, missing_header_hints, places
from tests.support.machines import SITE, File, MemorySystem

NAME_ITS_FOLDER = "a header was not found: name its folder in extra_include_paths"


@pytest.mark.parametrize(("machine", "target"), [("x86_64", "x86_64-linux"), ("aarch64", "sbsa-linux")])
def test_places_are_those_of_the_machine(machine: str, target: str):
    found = list(places(MemorySystem(machine=machine, prefixes=(Path("/conda"),)), [Path("/opt/cuda")]))
    folders = [str(place.folder) for place in found]
    assert folders[0] == f"{SITE}/nvidia/cu13/lib"
    assert folders.index("/conda/lib") < folders.index("/opt/cuda/lib64") < folders.index("/usr/local/cuda/lib64")
    assert f"/opt/cuda/targets/{target}/lib" in folders
    assert folders[-1] == f"/usr/lib/{machine}-linux-gnu"
    conda = found[folders.index("/conda/lib")]
    assert conda.includes[:2] == (
        Path(f"/conda/targets/{target}/include"),
        Path(f"/conda/targets/{target}/include/cccl"),
    )


def test_libraries_are_the_newest_first():
    names = ("libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.so", "libnvrtc-builtins.so.13.0")
    system = MemorySystem(files={f"/lib/{name}": File() for name in names})
    assert [path.name for path in libraries(Path("/lib"), system)] == ["libnvrtc.so.13", "libnvrtc.so.9"]


def test_the_wheels_of_cuda_12_have_their_headers_in_folders_of_their_own():
    (place,) = (each for each in places(MemorySystem()) if each.folder == Path(f"{SITE}/nvidia/cuda_nvrtc/lib"))
    assert {
        Path(f"{SITE}/nvidia/{part}/include") for part in ("cuda_runtime", "cuda_nvcc", "cuda_cccl", "curand")
    } < set(place.includes)


@pytest.mark.parametrize(
    ("header", "cu13", "cu12"),
    [
        ("cuda/std/array", "nvidia-cuda-cccl==13.0.*", "nvidia-cuda-cccl-cu12==12.9.*"),
        ("nv/target", "nvidia-cuda-cccl==13.0.*", "nvidia-cuda-cccl-cu12==12.9.*"),
        ("cub/block/block_reduce.cuh", "nvidia-cuda-cccl==13.0.*", "nvidia-cuda-cccl-cu12==12.9.*"),
        ("curand_kernel.h", "nvidia-curand", "nvidia-curand-cu12"),
        ("crt/mma.h", "nvidia-cuda-crt==13.0.*", "nvidia-cuda-nvcc-cu12==12.9.*"),
        ("cuda_fp16.h", "nvidia-cuda-runtime==13.0.*", "nvidia-cuda-runtime-cu12==12.9.*"),
    ],
)
def test_a_missing_header_of_cuda_names_its_wheel(header: str, cu13: str, cu12: str):
    log = f'f.cu(1): catastrophic error: cannot open source file "{header}"\n'
    for version, folder, package in (((13, 0), "cu13", cu13), ((12, 9), "cuda_nvrtc", cu12)):
        found = Nvrtc(Path(f"{SITE}/nvidia/{folder}/lib/libnvrtc.so.{version[0]}"), version, (), None)
        assert missing_header_hints(found, log) == (f"pip install '{package}' brings {header}",)
        assert missing_header_hints(found._replace(path=Path("/conda/lib/libnvrtc.so.13")), log) == (NAME_ITS_FOLDER,)


@pytest.mark.parametrize("header", ["mine.h", "cuda/mine.h", "custom.h", "cutlass/cutlass.h"])
def test_an_author_s_header_is_in_no_wheel(header: str):
    found = Nvrtc(Path(f"{SITE}/nvidia/cu13/lib/libnvrtc.so.13"), (13, 0), (), None)
    assert missing_header_hints(found, f'cannot open source file "{header}"') == (NAME_ITS_FOLDER,)
