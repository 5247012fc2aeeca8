"""The compiler of HIP: the first that compiles for the architecture, and the reason why each other does not."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from be_toolchain.arch import AmdArch, Arch, parse_gpu_arch
from be_toolchain.errors import ArchError, HipNotFoundError
from be_toolchain.find.hip import WITHOUT_ROCM, find_hip
from be_toolchain.machine.system import RunResult, System
from tests.support.machines import MemorySystem

MI300 = AmdArch("gfx942")
BITCODE = "/opt/rocm/amdgcn/bitcode/ocml.bc"


def compiler(
    machine: MemorySystem,
    path: str,
    version: str,
    knows: Collection[str] = ("gfx90a", "gfx942"),
    rocm: Collection[str] = (),
    lld: str = "/usr/lib/llvm/bin/lld",
) -> None:
    """Install a clang, or a hipcc that calls one, with ROCm's libraries for some architectures."""

    def answer(_: System, argv: tuple[str, ...]) -> RunResult:
        banner = f"Debian clang version {version}"
        if argv[1:] == ("--version",):
            return RunResult(argv, 0, f"HIP version: 5.2\n{banner}\n")
        (arch,) = (word.partition("=")[2] for word in argv if word.startswith("--offload-arch"))
        if arch not in knows:
            return RunResult(argv, 1, stderr=f"{banner}\nclang: error: invalid target ID '{arch}'; format is a name\n")
        if not {*WITHOUT_ROCM} <= {*argv} and arch not in rocm:
            return RunResult(argv, 1, stderr="clang: error: cannot find ROCm device library\n")
        libraries = "" if {*WITHOUT_ROCM} <= {*argv} else f' "-mlink-builtin-bitcode" "{BITCODE}"'
        printed = f'{banner}\n "/usr/lib/llvm/bin/clang" "-cc1"{libraries}\n "{lld}" "-flavor" "gnu"\n'
        return RunResult(argv, 0, stderr=printed)

    machine.program(path, answer)


def test_an_older_hipcc_serves_the_architectures_that_it_knows():
    machine = MemorySystem()
    compiler(machine, "/usr/bin/hipcc", "15.0.6", ["gfx90a"], ["gfx90a"])
    compiler(machine, "/usr/bin/clang++-19", "19.1.7")
    compiler(machine, "/usr/bin/clang++-9", "9.0.1", [])
    old, new = find_hip(machine, AmdArch("gfx90a")), find_hip(machine, MI300)
    assert (old.path, old.has_rocm, old.banner) == (Path("/usr/bin/hipcc"), True, "Debian clang version 15.0.6")
    assert [str(path) for path in old.used] == ["/usr/lib/llvm/bin/clang", BITCODE, "/usr/lib/llvm/bin/lld"]
    assert (new.path, new.has_rocm) == (Path("/usr/bin/clang++-19"), False)
    assert {*WITHOUT_ROCM} <= {*new.command(MI300)}
    assert not {*WITHOUT_ROCM} & {*old.command(AmdArch("gfx90a"))}


def test_amds_own_packages_come_before_a_clang_on_path():
    machine = MemorySystem()
    compiler(machine, "/usr/bin/clang++", "19.1.7")
    compiler(machine, "/opt/rocm/bin/amdclang++", "18.0.0", rocm=["gfx942"])
    assert find_hip(machine, MI300).path == Path("/opt/rocm/bin/amdclang++")
    machine.environ = {**machine.environ, "ROCM_PATH": "/elsewhere"}
    assert find_hip(machine, MI300).path == Path("/usr/bin/clang++")


def test_only_the_named_compiler_is_asked():
    machine = MemorySystem()
    compiler(machine, "/usr/bin/clang++-19", "19.1.7")
    compiler(machine, "/usr/bin/clang++-15", "15.0.6", ["gfx90a"])
    machine.environ = {**machine.environ, "BE_HIPCC": "clang++-15"}
    with pytest.raises(HipNotFoundError, match=r"clang version 15\.0\.6: invalid target ID 'gfx942'\n") as told:
        find_hip(machine, MI300)
    assert [(probe.found_via, probe.place) for probe in told.value.probes] == [("BE_HIPCC", "/usr/bin/clang++-15")]
    machine.environ = {**machine.environ, "BE_HIPCC": "/opt/none"}
    with pytest.raises(HipNotFoundError, match=r"BE_HIPCC +/opt/none: no such program"):
        find_hip(machine, MI300)


def test_each_compiler_that_does_not_serve_has_its_reason():
    machine = MemorySystem()
    with pytest.raises(HipNotFoundError) as told:
        find_hip(machine, MI300)
    reasons = [f"{probe.place}: {probe.reason}" for probe in told.value.probes]
    assert reasons[:2] == ["hipcc: not on PATH", "/opt/rocm: no hipcc and no amdclang++ there"]
    assert reasons[2:] == ["clang++: not on PATH", "clang++-<version>: none on PATH"]
    machine.program("/usr/bin/hipcc", lambda _, argv: RunResult(argv, 0, "nvcc: NVIDIA (R) Cuda compiler driver"))
    compiler(machine, "/usr/bin/clang++-19", "19.1.7", lld="lld")
    with pytest.raises(HipNotFoundError) as told:
        find_hip(machine, MI300)
    reasons = [probe.reason for probe in told.value.probes]
    assert reasons[0] == "it is neither clang nor hipcc with clang"
    assert reasons[-1] == "Debian clang version 19.1.7 lacks lld of its release"


@pytest.mark.parametrize("text", ["gfx", "gfx94", "gfx9421x", "GFX942", "gfx942:xnack+", "gfx-942", "sm_90", ""])
def test_a_text_that_is_no_architecture_of_amd_is_refused(text: str):
    with pytest.raises(ArchError, match="is not an architecture of AMD GPUs"):
        AmdArch.parse(text)


@pytest.mark.parametrize("arch", [MI300, AmdArch("gfx1100"), AmdArch("gfx90a"), Arch(9, 0, "a"), Arch(10, 0)])
def test_the_text_of_each_architecture_is_read_back(arch: Arch | AmdArch):
    assert parse_gpu_arch(str(arch)) == arch
