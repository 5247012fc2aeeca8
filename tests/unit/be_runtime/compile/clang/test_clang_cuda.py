"""CUDA through clang: the command, its host side and device sides, and an author's nvcc flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from be_runtime.compile.clang.clang_flags import FAST_MATH, translate
from be_runtime.compile.clang.plan_clang import Packer, clang_compile, split_clang
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import files_named
from be_runtime.errors import ArgumentError
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import CompileOptions
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.arch import parse_archs
from be_toolchain.model import ClangCuda, CudaToolkit, Toolchain
from tests.support.machines import MemorySystem

PACKER = Packer("/py/python", "/py/fatbin.py", "/usr/bin/objcopy")


@pytest.fixture(scope="module")
def toolkit() -> CudaToolkit:
    machine = MemorySystem(environ={"PATH": "/usr/bin", "HOME": "/home/ada"})
    machine.clang("/usr/bin/clang++-19")
    machine.joined_cu12()
    found = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda
    assert found is not None
    return found


def command(toolkit: CudaToolkit, archs: str = "9.0", **options: Any) -> list[str]:
    return list(clang_compile(toolkit, CompileOptions(**options), parse_archs(archs), ["-I", "/ours"]))


def split(toolkit: CudaToolkit, archs: str = "9.0", **options: Any) -> UnitBuild:
    return split_clang(command(toolkit, archs, **options), files_named("m", "cuda"), "/cuda/bin/ptxas", PACKER)


def test_nothing_for_finding_faults_is_in_an_ordinary_command(toolkit: CudaToolkit):
    assert command(toolkit) == [
        *("/usr/bin/clang++-19", "-x", "cuda", f"--cuda-path={toolkit.root}", "-Wno-unknown-cuda-version"),
        *("-std=c++17", "-O3", "--cuda-gpu-arch=sm_90", "--no-cuda-include-ptx=all", "--cuda-include-ptx=sm_90"),
        *("-fPIC", "-fvisibility=hidden", "-include", str(INCLUDE_DIR / "brainevent/detail/clang_cuda.h")),
        *("-I", "/ours"),
    ]


def test_the_command(toolkit: CudaToolkit):
    found = command(toolkit, "8.0,9.0a", optimization_level=1)
    assert found[:3] == ["/usr/bin/clang++-19", "-x", "cuda"]
    assert f"--cuda-path={toolkit.root}" in found
    assert {"-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-Wno-unknown-cuda-version"} <= set(found)
    assert [flag for flag in found if "arch=" in flag] == ["--cuda-gpu-arch=sm_80", "--cuda-gpu-arch=sm_90a"]
    assert [flag for flag in found if "ptx=" in flag] == ["--no-cuda-include-ptx=all", "--cuda-include-ptx=sm_80"]


def test_an_author_s_flags_win_over_ours(toolkit: CudaToolkit):
    found = command(toolkit, cflags=("-std=c++20", "-O2", "-gencode=arch=compute_80,code=[sm_80,compute_80]"))
    assert [flag for flag in found if flag.startswith(("-std", "-O"))] == ["-std=c++20", "-O2"]
    assert [flag for flag in found if "arch=" in flag] == ["--cuda-gpu-arch=sm_80"]
    assert [flag for flag in found if "ptx=" in flag] == ["--no-cuda-include-ptx=all", "--cuda-include-ptx=sm_80"]


def test_fast_math_is_nvcc_s_and_not_clang_s(toolkit: CudaToolkit):
    assert set(FAST_MATH) <= set(command(toolkit, use_fast_math=True))
    assert "-ffast-math" not in command(toolkit, use_fast_math=True)
    assert FAST_MATH[0] not in command(toolkit)


def test_both_sides_are_compiled_at_once_and_meet_in_the_object(toolkit: CudaToolkit):
    build = split(toolkit, "8.0,9.0")
    made = {output: edge for edge in build.edges for output in edge.outputs}
    assert build.edges[-1].outputs == ("obj/m.o",)
    assert made["obj/m.o"].inputs == ("obj/m.o.fatbin", "obj/m.o.host.o")
    assert made["obj/m.o.host.o"].inputs == ("src/m.cu", "obj/m.o.placeholder")
    assert [file.path for file in build.files] == ["obj/m.o.placeholder"]
    for arch in ("sm_80", "sm_90"):
        assert made[f"obj/m.o.{arch}.ptx"].inputs == ("src/m.cu",)
        assert made[f"obj/m.o.{arch}.cubin"].argv[:6] == (
            "/cuda/bin/ptxas",
            "-m64",
            "-O3",
            "--gpu-name",
            arch,
            "--output-file",
        )
    images = [word for word in made["obj/m.o.fatbin"].argv if word.startswith("--image3")]
    assert images == [
        "--image3=kind=elf,sm=80,file=obj/m.o.sm_80.cubin",
        "--image3=kind=elf,sm=90,file=obj/m.o.sm_90.cubin",
        "--image3=kind=ptx,sm=90,file=obj/m.o.sm_90.ptx",
    ]
    assert len({edge.description for edge in build.edges}) == len(build.edges)
    assert len([edge for edge in build.edges if edge.depfile]) == 3


def test_each_side_is_told_what_is_its_own(toolkit: CudaToolkit):
    flags = ("-maxrregcount=64", "-Xptxas", "-v", "-Xcompiler", "-march=native")
    device, ptxas, host, *_ = split(toolkit, cflags=flags, optimization_level=2).edges
    assert ptxas.argv[2:5] == ("-O2", "--maxrregcount=64", "-v")
    assert "--cuda-device-only" in device.argv
    assert "--cuda-host-only" in host.argv
    for edge in (device, host):
        assert not any("ptxas" in word for word in edge.argv)
        assert edge.argv[edge.argv.index("-Xarch_host") :][:2] == ("-Xarch_host", "-march=native")
    (device_id,), (host_id,) = ([word for word in edge.argv if word.startswith("-cuid=")] for edge in (device, host))
    assert device_id == host_id


def test_lines_are_told_to_all_three_compilers(toolkit: CudaToolkit):
    device, ptxas, host, *_ = split(toolkit, line_info=True).edges
    assert "-gline-tables-only" in device.argv
    assert "-lineinfo" in ptxas.argv
    assert "-g1" in host.argv
    assert not {"-gline-tables-only", "-g1"} & {*command(toolkit)}


def test_the_host_is_told_words_as_nvccs_shell_reads_them():
    assert translate(["-Xcompiler", "'-D A=/my folder',-g"]) == ("-Xarch_host", "-D A=/my folder", "-Xarch_host", "-g")
    with pytest.raises(ArgumentError, match="-Xcompiler"):
        translate(["-Xcompiler", "'-g"])


def test_a_level_for_ptxas_wins(toolkit: CudaToolkit):
    ptxas = next(edge for edge in split(toolkit, cflags=("-Xptxas=-O1",)).edges if edge.tool == "ptxas")
    assert [word for word in ptxas.argv if word.startswith("-O")] == ["-O1"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            ["-DN=2", "-I", "/a", "-include", "b.h", "-Wall", "-g"],
            ["-DN=2", "-I", "/a", "-include", "b.h", "-Wall", "-g"],
        ),
        (["--expt-relaxed-constexpr", "-extended-lambda", "-Xcudafe", "--diag_suppress=177", "-t=4", "-rdc=false"], []),
        (["-Xptxas=-v,-O2"], ["-Xcuda-ptxas", "-v", "-Xcuda-ptxas", "-O2"]),
        (["--compiler-options", "-Wall,-Wextra"], ["-Xarch_host", "-Wall", "-Xarch_host", "-Wextra"]),
        (["-lineinfo"], ["-Xarch_device", "-gline-tables-only", "-Xcuda-ptxas", "-lineinfo"]),
        (["--use_fast_math"], list(FAST_MATH)),
        (["-ftz=true", "-fmad=false"], ["-fcuda-flush-denormals-to-zero", "-Xarch_device", "-ffp-contract=off"]),
        (["-prec-div=true", "-prec-sqrt=false"], ["-mllvm", "-nvptx-prec-sqrtf32=0"]),
        (["--std", "c++20", "--optimize", "2"], ["-std=c++20", "-O2"]),
        (["--define-macro", "A=1", "--include-path=/x"], ["-D", "A=1", "-I", "/x"]),
        (["-Werror", "all-warnings"], ["-Werror"]),
        (["-arch=sm_90a"], ["--cuda-gpu-arch=sm_90a"]),
        (["-gencode", "arch=compute_90,code=compute_90"], ["--cuda-gpu-arch=sm_90", "--cuda-include-ptx=sm_90"]),
        (["-resource-usage", "--disable-warnings"], ["-Xcuda-ptxas", "-v", "-w"]),
    ],
)
def test_nvcc_s_flags(given: list[str], wanted: list[str]):
    assert list(translate(given)) == wanted


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("-rdc=true", "needs nvlink"),
        ("-dc", "needs nvlink"),
        ("-dlto", "needs nvlink"),
        ("-ccbin=/usr/bin/g++", "clang compiles both sides"),
        ("--default-stream=per-thread", "no default stream for each thread"),
        ("-code=sm_90", "use compute_capability="),
        ("--keep", "there is no nvcc"),
        ("-ftz=maybe", "nvcc does not know"),
    ],
)
def test_flags_without_a_counterpart_are_refused(flag: str, reason: str):
    with pytest.raises(ArgumentError, match=reason) as caught:
        translate(["-DN=2", flag])
    assert repr(flag) in str(caught.value)
    assert caught.value.hints


def test_the_key_knows_clang_and_the_wheels(toolkit: CudaToolkit):
    def key(cuda: CudaToolkit) -> str:
        return Toolchain(cuda=cuda).fingerprint

    newer = toolkit.host_compiler._replace(version="20.1.0")
    wheels = [part._replace(version=f"{part.version}.1") for part in toolkit.components]
    changed = [
        toolkit._replace(compiler=ClangCuda(newer)),
        toolkit._replace(root=Path("/other")),
        *(
            toolkit._replace(components=(*toolkit.components[:i], part, *toolkit.components[i + 1 :]))
            for i, part in enumerate(wheels)
        ),
    ]
    assert len({key(toolkit), *map(key, changed)}) == len(changed) + 1
