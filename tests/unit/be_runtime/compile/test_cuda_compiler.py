"""Both compilers of CUDA, through the one interface that a build has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.cache import Store
from be_runtime.compile.cuda_compiler import CudaCompiler, cuda_compiler
from be_runtime.compile.machine import Machine
from be_runtime.errors import ArgumentError
from be_runtime.request.options import BuildRequest, CompileOptions
from be_runtime.request.tools import Tools
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.arch import parse_archs
from be_toolchain.model import ClangCuda, CudaToolkit, HostCompiler, Nvcc, Toolchain
from tests.support.machines import MemorySystem

RELOCATABLE = CompileOptions(cflags=("-rdc=true",))


def machine(kind: str) -> MemorySystem:
    found = MemorySystem(environ={"PATH": "/usr/bin:/usr/local/cuda/bin", "HOME": "/home/ada"})
    if kind == "nvcc":
        found.gxx("/usr/bin/g++")
        found.runfile("/usr/local/cuda")
    else:
        found.clang("/usr/bin/clang++-19")
        found.joined_cu12()
    return found


def toolkit_of(kind: str) -> CudaToolkit:
    found = resolve(ToolchainRequest(need_cuda=True), system=machine(kind)).cuda
    assert found is not None
    return found


def compiler(kind: str) -> CudaCompiler:
    toolkit = toolkit_of(kind)
    return cuda_compiler(Tools(toolkit.host_compiler, toolkit, parse_archs("9.0"), Path("/jaxlib")))


@pytest.mark.parametrize(("kind", "compiles", "variant"), [("nvcc", "nvcc", Nvcc), ("clang", "clang++-19", ClangCuda)])
def test_a_toolkit_s_compiler_compiles_with_our_flags(kind: str, compiles: str, variant: type):
    assert isinstance(toolkit_of(kind).compiler, variant)
    command = compiler(kind).command(CompileOptions(optimization_level=2), ("-I", "/ours"))
    assert Path(command[0]).name == compiles
    assert {"-std=c++17", "-O2", "-I", "/ours"} <= set(command)
    assert any("sm_90" in argument for argument in command)


def test_only_nvcc_links_device_code():
    assert compiler("nvcc").device_link(CompileOptions()) is None
    linking = compiler("nvcc").device_link(RELOCATABLE)
    assert linking is not None
    assert "-dlink" in linking
    assert compiler("clang").device_link(RELOCATABLE) is None
    with pytest.raises(ArgumentError, match="-rdc=true"):
        compiler("clang").command(RELOCATABLE, ())


def test_a_build_depends_on_the_nvcc_that_was_asked():
    nvcc = toolkit_of("nvcc").nvcc
    assert nvcc is not None
    assert compiler("nvcc").asked() == (nvcc, nvcc.parent / "nvcc.profile")
    assert compiler("clang").asked() == ()


def test_a_preamble_is_for_gcc_behind_nvcc(tmp_path: Path):
    request = BuildRequest("m", "cuda", (), None, CompileOptions())
    for kind in ("nvcc", "clang"):
        toolkit = toolkit_of(kind)
        host = HostCompiler(Path("/usr/bin/clang++"), "clang", "19.1.7", "x86_64-linux-gnu", "PATH")
        toolkit = toolkit._replace(compiler=toolkit.compiler._replace(host=host))
        tools = Tools(host, toolkit, parse_archs("9.0"), Path("/jaxlib"))
        place = Machine(Toolchain(cuda=toolkit), machine(kind), Store(tmp_path))
        assert cuda_compiler(tools).preamble(("nvcc",), request, tools, place) is None
