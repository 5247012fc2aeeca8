"""Kernels that were built ahead of time, on a device: in a package and in an exported program."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.packages import TABLES, run_beside, write_package
from tests.support.runtime import ROOT, environment, run_python, without_compilers

pytest.importorskip("numba", reason="the package has a kernel of Numba for the CPU")
pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)

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
    pytest.importorskip("numba_cuda_mlir", exc_type=ImportError)
    package = tmp_path / "home" / "mykernels"
    left_out = shutil.ignore_patterns("_kernels", "__pycache__")
    shutil.copytree(ROOT / "examples" / "mykernels" / "mykernels", package, ignore=left_out)
    run_beside(package, "-m", "be_runtime", "build", "mykernels", "--archs", "8.0,9.0", **HIDDEN)
    printed = used(package, tmp_path, "-m", "mykernels", JAX_PLATFORMS="cuda,cpu")
    assert "DIFFERS" not in printed
    devices = len(jax.devices("gpu"))
    assert printed.count(" gpu ") == 3 * devices, printed


USE = """
import sys, numpy as np, jax, be_runtime
program = be_runtime.load_exported(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], program.call(x))
for device in reversed(jax.devices()):
    y = program.call(jax.device_put(x, device))
    assert y.devices() == {device} and (y == np.load(sys.argv[3])).all(), device
assert (jax.jit(program.call, donate_argnums=0)(jax.numpy.asarray(x)) == program.call(x)).all()
print(sorted(name.rpartition(".")[2] for name in be_runtime.list_registered_targets()))
"""


@pytest.mark.parametrize("platforms", [["cuda"], ["cpu", "cuda"]])
def test_kernels_of_every_kind_are_carried(tmp_path: Path, platforms: list[str]):
    from tests.support.gpu_program import gpu_function

    run, x, expected = gpu_function()
    np.testing.assert_array_equal(jax.jit(run)(x), expected)
    function = jax.jit(
        run if len(platforms) == 1 else lambda x: jax.lax.platform_dependent(x, cpu=lambda x: x, cuda=run)
    )
    path = be_runtime.export(function, x, platforms=platforms).save(tmp_path / "program.be")
    np.save(tmp_path / "x.npy", x)
    bare = {"PYTHONPATH": str(ROOT), "BE_CACHE_DIR": "/proc/none", "HOME": "/proc/none", "PATH": "/nowhere"}
    bare["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # other tests have the device too
    done = run_python(USE, str(path), "x.npy", "y.npy", env=bare, cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    assert done.stdout == "['be_graph_gpu_program_negate', 'be_launch']\n"


def test_a_program_over_all_devices(tmp_path: Path):
    """Each launch is of the part on its device."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "d")
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    kernel = be_runtime.cuda_kernel(
        "__global__ void twice(const float* x, float* y) { int i = blockIdx.x; y[i] = 2 * x[i]; }",
        "twice",
        signature="arg[n] ret[n]:like(0) parallel[n]",
        grid="n",
        block=1,
    )
    x = jax.device_put(np.arange(64, dtype=np.float32), sharding)
    data = be_runtime.export(jax.jit(kernel, in_shardings=sharding, out_shardings=sharding), x)
    np.testing.assert_array_equal(be_runtime.load_exported(data).call(x), 2 * np.arange(64))
