"""Where NVRTC is looked for, on each kind of machine, and what is said about a header that it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.kernels.cuda.nvrtc import Nvrtc, libraries, missing_header_hints, places
from tests.support.machines import SITE, File, MemorySystem
from tests.unit.be_runtime.generate.golden_files import check_golden


@pytest.mark.parametrize(("machine", "target"), [("x86_64", "x86_64-linux"), ("aarch64", "sbsa-linux")])
def test_places_are_those_of_the_machine(machine: str, target: str):
    found = list(places(MemorySystem(machine=machine, prefixes=(Path("/conda"),)), [Path("/opt/cuda")]))
    folders = [str(place.folder) for place in found]
    assert folders[0] == f"{SITE}/nvidia/cu13/lib"
    assert folders.index("/conda/lib") < folders.index("/opt/cuda/lib64") < folders.index("/usr/local/cuda/lib64")
    assert f"/opt/cuda/targets/{target}/lib" in folders
    assert folders[-1] == f"/usr/lib/{machine}-linux-gnu"
    include = Path(f"/conda/targets/{target}/include")
    assert found[folders.index("/conda/lib")].includes[:2] == (include, include / "cccl")
    wheel = found[folders.index(f"{SITE}/nvidia/cuda_nvrtc/lib")]  # of CUDA 12, with headers in folders of their own
    parts = ("cuda_runtime", "cuda_nvcc", "cuda_cccl", "curand")
    assert {Path(f"{SITE}/nvidia/{part}/include") for part in parts} < set(wheel.includes)


def test_libraries_are_the_newest_first():
    names = ("libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.so", "libnvrtc-builtins.so.13.0")
    system = MemorySystem(files={f"/lib/{name}": File() for name in names})
    assert [path.name for path in libraries(Path("/lib"), system)] == ["libnvrtc.so.13", "libnvrtc.so.9"]


def test_a_missing_header_of_cuda_names_its_wheel():
    """An author's header is in no wheel, and an NVRTC of conda's has none."""
    cuda = ["cuda/std/array", "nv/target", "cub/block/block_reduce.cuh", "curand_kernel.h", "crt/mma.h", "cuda_fp16.h"]
    rows = []
    for header in (*cuda, "mine.h", "cuda/mine.h", "custom.h", "cutlass/cutlass.h"):
        log = f'f.cu(1): catastrophic error: cannot open source file "{header}"\n'
        for folder, version in (
            (f"{SITE}/nvidia/cu13", (13, 0)),
            (f"{SITE}/nvidia/cuda_nvrtc", (12, 9)),
            ("/conda", (13, 0)),
        ):
            found = Nvrtc(Path(f"{folder}/lib/libnvrtc.so.{version[0]}"), version, (), None)
            rows.append(f"{header}, {Path(folder).name}: {'; '.join(missing_header_hints(found, log))}\n")
    check_golden(Path(__file__).parent / "golden" / "missing_headers.txt", "".join(rows))
