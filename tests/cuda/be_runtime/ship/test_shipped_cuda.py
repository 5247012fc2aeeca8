"""Packages and programs for GPUs, made on a machine that has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import pytest

import be_runtime
from be_runtime import LoadError
from be_runtime.jax import exporting
from be_runtime.ship import build, package
from be_runtime.store import artifact, index
from be_toolchain.arch import Arch
from tests.support.cuda import ARCH

pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)

from tests.support.gpu_program import gpu_function


def table(path: Path) -> Any:
    return json.loads(index.render_index(artifact.unpack(path.read_bytes(), str(path)).table))


def test_a_program_for_gpus_has_the_architectures_that_are_asked_for(tmp_path: Path):
    run, x, _ = gpu_function()
    function = jax.jit(run)
    path = be_runtime.export(function, x, platforms=["cuda"], archs="8.0,9.0").save(tmp_path / "asked.be")
    asked = table(path)
    assert {row["name"]: len(row["images"]) for row in asked["kernels"].values()} == {"scale": 3, "_successor": 6}
    kinds = sorted((image["kind"], *image["archs"]) for image in asked["images"].values())
    assert kinds.count(("cubin", "8.0")) == kinds.count(("cubin", "9.0")) == kinds.count(("ptx", "9.0")) == 3
    assert ("library", "8.0", "9.0") in kinds
    symbols = sorted(name.rpartition(".")[2] for name in asked["targets"])
    assert symbols == ["be_graph_gpu_program_negate", "be_launch"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "device_archs", lambda: {"cpu": []})
        loaded = be_runtime.load_exported(path)
    assert not [name for name in be_runtime.list_registered_targets() if name in asked["targets"]]
    with jax.default_device(jax.devices("cpu")[0]), pytest.raises(ValueError, match="exported for platforms"):
        loaded.call(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "device_archs", lambda: {"cpu": [], "CUDA": ["7.5"]})
        with pytest.raises(LoadError, match="can't run here: its code for sm_80/sm_90 does not run on sm_75"):
            be_runtime.load_exported(path)
        patch.setattr(exporting, "device_archs", lambda: {"cpu": [], "CUDA": ["9.0"]})
        again = be_runtime.load_exported(path)
        with pytest.raises(LoadError, match=r"was built ahead of time for 8.0, 9.0, and not for 12.0"):
            be_runtime.export(again.call, x, platforms=["cuda"], archs="12.0")


def test_a_program_for_both_platforms_runs_where_one_is(tmp_path: Path):
    run, x, expected = gpu_function()
    either = jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=lambda x: x + 1, cuda=run))
    program = be_runtime.load_exported(be_runtime.export(either, x, platforms=["cpu", "cuda"]))
    assert (program.call(x) == expected).all()


def test_a_launch_over_several_devices_names_the_kernel_that_is_carried(tmp_path: Path):
    text = "__global__ void twice(const float* x, float* y) { int i = blockIdx.x; y[i] = 2 * x[i]; }"
    twice = be_runtime.cuda_kernel(text, "twice", signature="arg[n] ret[n]:like(0) parallel[n]", grid="n", block=1)
    mesh = jax.sharding.AbstractMesh((2,), ("d",))
    function = jax.jit(twice, in_shardings=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    path = be_runtime.export(function, jax.ShapeDtypeStruct((64,), "float32"), platforms=["cuda"]).save(tmp_path / "p")
    found = table(path)
    program = artifact.unpack(path.read_bytes(), str(path)).image(found["program"]["image"])
    text = jax.export.deserialize(bytearray(program)).mlir_module()
    (target,), (kernel,) = found["targets"], found["kernels"]
    assert {arch for image in found["images"].values() for arch in image["archs"]} == {str(Arch.parse(ARCH))}
    assert found["program"]["devices"] == 2
    assert all(word in text for word in ("be.partition.v1", target, kernel))
    assert "be_runtime.launch" not in text


OPS = """
#include "brainevent/common.h"
#include "factor.h"
// @BE twice arg[n] ret[n] stream
void twice(const BE::Tensor x, BE::Tensor y, int64_t stream) {}
"""


@pytest.mark.full
def test_a_package_in_a_folder_with_a_space_in_its_name(tmp_path: Path):
    root = tmp_path / "my folder" / "shipped"
    root.mkdir(parents=True)
    (root / "kernels.toml").write_text('[modules.ops]\nsources = "ops.cu"')
    (root / "factor.h").write_text("#define FACTOR 2\n")
    (root / "ops.cu").write_text(OPS)
    built = build.build_package(package.package_in(root), archs=[ARCH])
    (image,) = (built.folder / "images").iterdir()
    assert list(built.table.modules) == ["ops"]
    assert str(tmp_path).encode() not in image.read_bytes()
