"""Where NVRTC is looked for, on each kind of machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.launch.nvrtc import libraries, places
from tests.unit.toolchain.machines import SITE, File, MemorySystem


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
