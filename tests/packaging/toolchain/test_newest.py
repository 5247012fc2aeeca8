"""The extra of the newest CUDA, really installed: found as one release, and kernels compiled with it."""

from __future__ import annotations

import ctypes
import tomllib
from pathlib import Path

import pytest

import be_runtime
from be_toolchain.doctor.doctor import examine_machine
from be_toolchain.find.devices import DeviceReport
from be_toolchain.known.versions import release_of
from tests.support import cuda
from tests.support.fresh_environments import ROOT, make_environment
from tests.support.machines import cuda_of

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("toolchain-newest")]


def test_it_is_one_release_and_compiles_kernels(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Its nvcc's phases run as commands of their own, and the doctor tells what a driver of 13.0 does not run."""
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    environment = make_environment(tmp_path)
    environment.pip("install", "--no-deps", *pins["cuda13-newest"])
    system = environment.system
    toolkit = cuda_of(system)
    assert toolkit.root == environment.site / "nvidia" / "cu13"
    versions = {part.name: part.version for part in toolkit.components}
    assert {release_of(version) for name, version in versions.items() if name != "cccl"} == {toolkit.release}
    report = examine_machine(system, devices=lambda: DeviceReport("13.0", "580.82"))
    assert report.exit_code == 0
    warned = [each.message for each in report.findings if each.status == "warn"]
    text = f"the driver supports CUDA 13.0 and cannot translate PTX of CUDA {toolkit.release}"
    assert [message for message in warned if message.startswith(text)]

    monkeypatch.setenv("BE_NVCC", str(toolkit.nvcc))
    source = f"#include <cuda/std/array>\n{cuda.source('events')}"
    module = be_runtime.load_cuda_inline("events", source, compute_capability="8.0,9.0", auto_register=False)
    images = sorted((each.kind, each.arch) for each in cuda.device_code(module.path))
    assert images == [("elf", 80), ("elf", 90), ("ptx", 90)]
    log = (module.path.parent / "build.log").read_text(encoding="utf-8")
    assert all(f"{toolkit.root}/{tool}" in log for tool in ("nvvm/bin/cicc", "bin/ptxas", "bin/cudafe++"))
    ctypes.CDLL(str(module.path))  # registers its images with the CUDA runtime, which needs no driver
