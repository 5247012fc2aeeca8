"""Options as nvcc's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from be_runtime.compile.nvcc.nvcc_flags import is_relocatable, nvcc_compile
from be_runtime.request.options import CompileOptions
from be_toolchain.arch import parse_archs
from be_toolchain.model import HostCompiler, Nvcc

CXX = HostCompiler(
    path=Path("/usr/bin/g++"), family="gcc", version="12.2.0", target="x86_64-linux-gnu", found_via="PATH"
)
NVCC = Nvcc(
    path=Path("/cuda/bin/nvcc"),
    version="13.0.88",
    build="",
    content="",
    cicc=Path("/cuda/nvvm/bin/cicc"),
    cudafe=Path("/cuda/bin/cudafe++"),
    nvlink=Path("/cuda/bin/nvlink"),
    host=CXX,
)


def command(options: CompileOptions) -> list[str]:
    return list(nvcc_compile(NVCC, options, parse_archs("9.0"), ["-I", "/ours"]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [(["-rdc=true"], True), (["-rdc", "true"], True), (["-dc"], True), (["-rdc=false"], False), (["-O3"], False)],
)
def test_relocatable(given: Sequence[str], expected: bool):
    assert is_relocatable(given) is expected


def test_nothing_for_finding_faults_is_in_an_ordinary_command():
    ordinary = command(CompileOptions())
    assert ordinary == [
        *("/cuda/bin/nvcc", "-std=c++17", "-O3"),
        *("-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"),
        *("-ccbin", "/usr/bin/g++", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-I", "/ours"),
    ]
    asked = command(CompileOptions(line_info=True))
    assert [flag for flag in asked if flag not in ordinary] == ["-lineinfo", "-fPIC,-fvisibility=hidden,-g1"]
