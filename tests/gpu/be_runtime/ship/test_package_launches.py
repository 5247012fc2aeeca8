"""Raw and Numba CUDA kernels that were built ahead of time, on a device: by machine code, and by PTX alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import pytest

from tests.support.packages import TABLES, run_beside, write_package
from tests.support.runtime import ROOT, environment, without_compilers

pytest.importorskip("numba.cuda")

CALLS = """
import jax, jax.numpy as jnp, numpy as np, shipped
ops = shipped.ops
for device in reversed(jax.devices()):
    def same(found, expected):
        assert found.devices() == {device}
        np.testing.assert_array_equal(found, expected)

    x = jax.device_put(jnp.arange(64.0), device)
    same(jax.jit(ops.scale)(x), 2 * np.arange(64))
    same(ops.scale(x, by=3.0), 3 * np.arange(64))
    same(jax.jit(ops.wave)(x), np.arange(64) / 2)
    rows = jax.device_put(jnp.arange(192.0).reshape(3, 64), device)
    same(jax.vmap(ops.scale)(rows), 2 * np.asarray(rows))
    same(jax.jit(jax.vmap(ops.wave))(rows), np.asarray(rows) / 2)
try:
    ops.wave(jnp.arange(64))
except Exception as error:
    print(error)
"""


HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


def used(package: Path, folder: Path, *argv: str, **variables: str) -> str:
    """What a program prints that has the package, and neither a compiler nor a cache."""
    bare = {"BE_JIT": "never", "BE_CACHE_DIR": str(folder / "unused"), "PATH": without_compilers(folder / "bin")}
    return run_beside(package, *argv, **bare, **variables)


@pytest.mark.parametrize("only_ptx", [False, True])
def test_kernels_built_without_a_device_run_on_one(tmp_path: Path, only_ptx: bool):
    package = write_package(tmp_path / "home" / "shipped")
    archs = '["8.0"]' if only_ptx else '["8.0", "8.6", "9.0", "10.0", "12.0"]'
    (package / "kernels.toml").write_text(TABLES.replace('["8.0", "9.0"]', archs))
    run_beside(package, "-m", "be_runtime", "build", "shipped", **HIDDEN)
    index = package / "_kernels" / "index.json"
    if only_ptx:
        document = json.loads(index.read_text())
        for row in document["kernels"].values():
            row["images"] = [image for image in row["images"] if image["is_ptx"]]
            assert row["images"]
        index.write_text(json.dumps(document))
    (tmp_path / "blocked" / "numba").mkdir(parents=True)
    (tmp_path / "blocked" / "numba" / "__init__.py").write_text("raise ImportError('not here')\n")
    path = f"{tmp_path / 'blocked'}:{environment()['PYTHONPATH']}"
    printed = used(package, tmp_path, "-c", CALLS, PYTHONPATH=path, JAX_PLATFORMS="cuda")
    assert "wave was not built for const int32:1, int32:1; it was built for const float32:1, float32:1" in printed


def test_the_example_s_kernels_run_on_every_device(tmp_path: Path):
    """`examples/mykernels` as its wheel has it: built ahead of time, and used without a compiler."""
    package = tmp_path / "home" / "mykernels"
    left_out = shutil.ignore_patterns("_kernels", "__pycache__")
    shutil.copytree(ROOT / "examples" / "mykernels" / "mykernels", package, ignore=left_out)
    run_beside(package, "-m", "be_runtime", "build", "mykernels", "--archs", "8.0,9.0", **HIDDEN)
    printed = used(package, tmp_path, "-m", "mykernels", JAX_PLATFORMS="cuda,cpu")
    assert "DIFFERS" not in printed
    devices = len(jax.devices("gpu"))
    assert printed.count(" gpu ") == 3 * devices, printed
