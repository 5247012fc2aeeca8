"""Kernels of Triton and a cubin that were built ahead of time, on a device where Triton can't be imported."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from be_runtime.kernels.launcher import choose_archs
from be_runtime.load.process import PROCESS
from tests.support.packages import run_beside, write_triton_package
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT, without_compilers

triton: Any = pytest.importorskip("triton", reason=f"{OPTIONAL}triton", exc_type=ImportError)

CALLS = """
import sys
import jax, jax.numpy as jnp, numpy as np, shipped
add, described, times = shipped.ops.add, shipped.ops.described, shipped.ops.times

def same(found, expected):
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))

for dtype in ("float32", "float16"):
    for n in (1, 500, 512, 1000, 1024):
        x = jnp.asarray(np.arange(n) % 100, dtype)
        same(jax.jit(lambda x: add(x, x, scale=2))(x), 3 * x)
rows = jnp.arange(1500.0).reshape(3, 500)
same(jax.vmap(lambda x: add(x, x, scale=2))(rows), 3 * rows)
same(jax.jit(described)(jnp.arange(512.0)), jnp.arange(512.0))
for shape in ((16, 32), (16, 5), (3, 32), (3, 5)):
    x = jnp.arange(float(shape[0] * shape[1])).reshape(shape)
    same(jax.jit(shipped.ops.row_sums)(x), x.sum(axis=1))
same(jax.jit(times)(jnp.arange(64.0)), 2 * jnp.arange(64.0))
assert "triton" not in sys.modules
try:
    add(jnp.arange(64), jnp.arange(64), scale=2)
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("only_ptx", [False, True])
def test_kernels_run_without_triton(tmp_path: Path, only_ptx: bool):
    """The code for the device here, and PTX for the earlier architecture."""
    arch = choose_archs(None, PROCESS.session())[0]
    package = write_triton_package(tmp_path / "home" / "shipped", arch.sm)
    places = os.pathsep.join([str(ROOT), str(Path(triton.__file__).parents[1])])
    build = ("-m", "be_runtime", "build", "shipped", "--archs", f"8.0,{arch}")
    run_beside(package, *build, CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu", PYTHONPATH=places)
    index = package / "_kernels" / "index.json"
    document = json.loads(index.read_text())
    for row in document["kernels"].values():
        ptx = [image for image in row["images"] if image["is_ptx"]]
        assert ptx or row["name"] == "scale"
        row["images"] = ptx if only_ptx and ptx else row["images"]
    index.write_text(json.dumps(document))
    (tmp_path / "blocked" / "triton").mkdir(parents=True)
    (tmp_path / "blocked" / "triton" / "__init__.py").write_text("raise ImportError('not here')\n")
    bare = {"BE_JIT": "never", "BE_CACHE_DIR": str(tmp_path / "unused"), "PATH": without_compilers(tmp_path / "bin")}
    bare["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "blocked"), str(ROOT)])
    printed = run_beside(package, "-c", CALLS, JAX_PLATFORMS="cuda", **bare)
    assert "add was not built for *i32:16, *i32:16, *i32:16, i32, fp32; it was built for *fp32:16" in printed
