"""cuTile and its tools: which are missing, too old or too new; and the types of arrays."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from be_runtime import ArgumentError, cutile_kernel
from be_runtime.dtypes import BY_NAME
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels.cutile import check_driver, find_assembler
from be_runtime.kernels.tile_types import Hint, array_type
from be_toolchain.arch import Arch
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.system import RunResult
from tests.support.machines import Libcuda, MemorySystem

ASSEMBLER = "/opt/bin/tileiras"
VERSION = "tileiras: NVIDIA (R) Cuda Tile IR optimizing assembler\nCuda compilation tools, release 13.4, V13.4.92\n"
HELP = (
    "  --gpu-name=<value> - Name\n    =sm_80    -   SM 80\n    =sm_103   -   SM 103\n  --host-arch\n    =x86_64 - x\n"
)


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A `cuda.tile` of some release whose assembler is at one path."""
    found = SimpleNamespace(path=ASSEMBLER)
    modules = {name: ModuleType(name) for name in ("cuda", "cuda.tile", "cuda.tile._compile")}
    modules["cuda"].tile = modules["cuda.tile"]  # type: ignore[attr-defined]
    vars(modules["cuda.tile"]).update(__version__=version, kernel=type("kernel", (), {}))
    vars(modules["cuda.tile._compile"]).update(_find_compiler_bin=lambda: found)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_cutile_of_another_release_or_none_is_one_error(monkeypatch: pytest.MonkeyPatch):
    for version in ("1.6.9", "2.0.0"):
        install(monkeypatch, version)
        wanted = rf"needs cuda-tile from 1.7 on, below 2, and {version} is installed\nhint: pip install '.*\[cutile\]'"
        with pytest.raises(ImportError, match=wanted):
            cutile_kernel(len, "arg[n]", grid=1)
    install(monkeypatch, "1.10.0")
    with pytest.raises(ArgumentError, match=r"must be decorated with @ct\.kernel, not <built-in function len>"):
        cutile_kernel(len, "arg[n]", grid=1)
    monkeypatch.setitem(sys.modules, "cuda.tile", None)
    with pytest.raises(ImportError, match=r"needs cuTile \(cuda.tile\), which can't be imported.*\nhint: pip install"):
        cutile_kernel(len, "arg[n]", grid=1)


def test_the_assembler_prints_its_version_and_architectures(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, "1.7.0")
    machine = MemorySystem()
    with pytest.raises(ToolchainError, match="tileiras does not print its version: No such file or directory"):
        find_assembler(machine)
    machine.says(ASSEMBLER, "another program")
    with pytest.raises(ToolchainError, match="tileiras does not print its version: another program"):
        find_assembler(machine)
    texts = {"--version": VERSION, "--help": HELP}
    machine.program(ASSEMBLER, lambda _, argv: RunResult(argv=argv, returncode=0, stdout=texts[argv[1]]))
    assert find_assembler(machine) == ("13.4.92", (Arch(8, 0), Arch(10, 3)))

    def absent() -> Any:
        raise FileNotFoundError("'tileiras' compiler not found")

    monkeypatch.setattr(sys.modules["cuda.tile._compile"], "_find_compiler_bin", absent)
    with pytest.raises(ToolchainError, match="needs tileiras: 'tileiras' compiler not found") as caught:
        find_assembler(machine)
    assert "must be of one release of CUDA" in caught.value.hints[1]


def test_a_driver_that_is_too_old_is_refused():
    machine = MemorySystem()
    check_driver(machine)
    machine.libraries["libcuda.so.1"] = Libcuda(version=12080)
    with pytest.raises(ToolchainError, match=r"need a driver for CUDA 13\.0 or later, .* here is for CUDA 12\.8"):
        check_driver(machine)
    machine.libraries["libcuda.so.1"] = Libcuda()
    check_driver(machine)


def typed(dtype: str, shape: tuple[int, ...], hint: Hint = Hint(), **flags: bool) -> Any:  # noqa: B008
    return array_type(
        "f: x", ArraySpec(BY_NAME[dtype], shape), hint, **{"is_aligned": True, "is_split": False, **flags}
    )


def test_extents_and_strides_are_divisible_by_sixteen_elements_or_bytes():
    found = typed("float16", (6, 48, 32))
    assert found.shape_divisible_by == (1, 16, 16)
    assert found.stride_divisible_by == (8, 8, 1)
    assert found.stride_constant == (None, None, 1)
    assert (found.base_addr_divisible_by, found.index_bits) == (16, 32)
    split = typed("float16", (6, 48, 32), is_split=True, is_aligned=False)
    assert split.shape_divisible_by == split.stride_divisible_by == (1, 1, 1)
    assert split.base_addr_divisible_by == 1
    assert typed("float64", ()).shape_constant == ()


def test_annotations_of_arrays():
    assert typed("float32", (2**31, 3), Hint(64)).index_bits == 64
    assert typed("int8", (4, 5), Hint(32, (-1,), (0,)))[2:4] == ((None, 5), (5, 1))
    with pytest.raises(ArgumentError, match=r"f: x is float32\[2,2147483648\], which needs .* 64 bits") as caught:
        typed("float32", (2, 2**31))
    assert caught.value.hints == ("annotate the parameter: x: ct.IndexedWithInt64",)
    with pytest.raises(ArgumentError, match="has constant extents or strides, and the signature splits axes"):
        typed("float32", (4,), Hint(32, (0,)), is_split=True)
    with pytest.raises(ArgumentError, match="f: x: cuTile has no type for complex64"):
        typed("complex64", (4,))
