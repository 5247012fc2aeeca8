"""brainevent's names for kernels, of 0.2.1 and 0.3.0, and what a program that catches its errors counts on."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

import be_runtime
import be_toolchain

NAMES = (Path(__file__).parent / "golden" / "brainevent_names.txt").read_text()
"""Errors behind what catches them there."""


def test_every_name_is_here_and_an_error_is_caught_by_what_catches_it_there():
    """The package lists them, also those that are imported on first use; the modules that it is made of are none."""
    for parent, _, names in (line.partition(": ") for line in NAMES.splitlines()):
        assert {*names.split(), "warp_kernel"} <= set(be_runtime.__all__)
        for name in names.split():
            assert parent == "object" or issubclass(getattr(be_runtime, name), getattr(be_runtime, parent)), name
    assert sorted(dir(be_runtime)) == sorted(be_runtime.__all__)
    assert be_runtime.config.set_backend is be_runtime.set_backend
    assert be_runtime.config.get_backend("tpu") is None


@pytest.mark.parametrize("package", [be_runtime, be_toolchain])
def test_type_checkers_see_the_public_names(package: ModuleType):
    assert package.__file__ is not None
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    declared = {
        each.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for each in node.names
    }
    assert {*declared} | {"__version__", "config"} >= {*package.__all__}
    for name, home in declared.items():
        if name not in (None, "__version__"):
            assert name in package._HOMES[home].split()  # noqa: SLF001


SOURCE = """
#include "brainevent/common.h"
// @BE f arg[n] ret[n] %s
void f(const BE::Tensor x, BE::Tensor y) {}
"""


def test_what_a_load_raises_is_a_kernel_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CXX", str(tmp_path / "none"))
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    for name, more, error in (("b", "bogus", be_runtime.KernelError), ("n", "", be_runtime.KernelToolchainError)):
        with pytest.raises(error):
            be_runtime.load_cpp_inline(name, SOURCE % more, build_directory=str(tmp_path))


def test_an_operation_tells_its_defaults_and_what_it_lacks():
    operation = be_runtime.XLACustomKernel("names")
    operation.def_kernel("a", "cpu", lambda outs: lambda x: [x])
    operation.def_kernel("b", "gpu", lambda outs: lambda x: [x])
    assert operation.defaults == {"cpu": "a", "gpu": "b"}
    operation.def_tags("one", "two")
    assert [*be_runtime.get_primitives_by_tags({"two"})] == ["names"]
    assert not be_runtime.get_primitives_by_tags({"two", "three"})
    assert be_runtime.get_registry()["names"] is operation


def test_diagnostics_say_compilers_cache_and_targets(tmp_cache: Path, capsys: pytest.CaptureFixture[str]):
    be_runtime.print_diagnostics()
    said = capsys.readouterr().out
    assert "C++ compiler" in said
    assert f"cache: {tmp_cache}, 0 entries" in said
    assert f"registered targets: {', '.join(be_runtime.list_registered_targets()) or 'none'}" in said
