"""Programs with CUDA kernels, run by a process without sources, cache or compiler."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.runtime import ROOT, run_python

pytest.importorskip("numba.cuda")
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
