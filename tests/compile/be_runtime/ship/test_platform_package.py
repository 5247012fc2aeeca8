"""A package's functions for CPU and GPU, on a machine without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from tests.support.platforms import CPP, CUDA

X = jnp.arange(4.0)


@pytest.fixture(params=["dual"])
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    root = tmp_path / request.param
    (root / "ops").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "kernels.toml").write_text('[modules.ops]\ncpp = "ops"\ncuda = "ops"\nextra_cflags = ["-DSIGN=-"]\n')
    (root / "ops" / "ops.cc").write_text(CPP.replace("by *", "SIGN by *"))
    (root / "ops" / "ops.cu").write_text(CUDA)
    yield root
    sys.modules.pop(request.param, None)


def test_a_module_of_two_languages_is_one(package: Path):
    """Its C++ part is compiled and its CUDA part is only read, since no architecture is named."""
    kernels = be_runtime.package_kernels("dual")
    assert dir(kernels) == ["only_cpu", "only_gpu", "ops", "scale"]
    assert kernels.scale(X, by=3.0).tolist() == (-3 * X).tolist()
    assert kernels.scale is kernels.ops.scale
    assert isinstance(kernels.ops, be_runtime.PlatformModule)
    kernels.scale.defvjp(None, lambda x, g, *, by: (by * g,))
    assert jax.grad(lambda x: kernels.ops.scale(x).sum())(X).tolist() == [2, 2, 2, 2]
    assert [*kernels.ops.parts] == ["cpp"]
    assert kernels.ops.parts["cpp"].name == "dual.ops"
    assert "dual.ops.scale" in be_runtime.list_registered_targets()
    with pytest.raises(AttributeError, match=r"module 'dual.ops' has no function 'only_gpu'.*name an architecture"):
        _ = kernels.only_gpu


@pytest.mark.parametrize("package", ["differing"], indirect=True)
def test_declarations_that_differ_are_an_error(package: Path):
    source = package / "ops" / "ops.cu"
    source.write_text(source.read_text().replace("by:float32=2", "by:float32=3"))
    with pytest.raises(be_runtime.SpecError, match=r"by:float32=2.0, and the other attr.by:float32=3.0"):
        _ = be_runtime.package_kernels("differing").ops
