"""One name for CPU and GPU, the device's own architecture, and what a load in a new process starts."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_toolchain.find.devices import probe_devices
from be_toolchain.machine.local_system import LocalSystem
from tests.cuda.built import WARM_LOAD
from tests.support.cuda import KERNELS, device_code, run_json, source

CPP_DECAY = """
#include "brainevent/common.h"
// @BE decay
void decay(const BE::Tensor v, const BE::Tensor input, BE::Tensor out, float leak) {
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = leak * v.data_ptr<float>()[i] + input.data_ptr<float>()[i] + 1000.0f;
}
"""
HIDDEN = """
import json, sys, warnings

import be_runtime

be_runtime.set_cache_dir(sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    be_runtime.load_cuda_file(sys.argv[2])
print(json.dumps(" ".join(str(each.message) for each in caught)))
"""


@pytest.mark.parametrize("first", ["cpu", "cuda"])
def test_one_name_serves_cpu_and_gpu(first: str):
    name = f"{first}_first"
    loads = {
        "cpu": lambda: be_runtime.load_cpp_inline(name, CPP_DECAY),
        "cuda": lambda: be_runtime.load_cuda_inline(name, source("transforms"), functions=["decay"]),
    }
    for platform in sorted(loads, key=lambda platform: platform != first):
        loads[platform]()

    @jax.jit
    def run(v: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct(v.shape, v.dtype)
        return jax.ffi.ffi_call(f"{name}.decay", out)(v, jnp.ones_like(v), leak=np.float32(0.5))

    v = np.arange(10, dtype=np.float32)
    for platform, extra in (("gpu", 0), ("cpu", 1000), ("gpu", 0)):
        device = jax.devices(platform)[0]
        out = run(jax.device_put(v, device))
        assert out.devices() == {device}
        np.testing.assert_array_equal(out, v / 2 + 1 + extra)
    assert f"{name}.decay" in be_runtime.list_registered_targets()


def test_code_is_for_the_devices_present():
    module = be_runtime.load_cuda_inline("present", source("half"), auto_register=False)
    archs = {device.arch for device in probe_devices(LocalSystem()).devices}
    found = {code.arch for code in device_code(module.path) if code.kind == "elf"}
    assert found == {arch.major * 10 + arch.minor for arch in archs}


def test_a_new_process_loads_without_starting_anything(tmp_path: Path):
    """Neither the first load nor a later one starts a JAX backend, and a later one starts no process at all."""
    cold, warm = (
        run_json(WARM_LOAD, str(KERNELS / "sibling.cu"), BE_CACHE_DIR=str(tmp_path / "cache")) for _ in range(2)
    )
    assert cold["started"]
    assert warm == {**cold, "started": [], "backend": False}
    assert cold["backend"] is False
    assert warm["targets"] == ["sibling.transform"]


def test_a_hidden_device_is_explained(tmp_path: Path):
    message = run_json(HIDDEN, str(tmp_path), str(KERNELS / "sibling.cu"), CUDA_VISIBLE_DEVICES="")
    assert "no GPU is visible" in message
    assert "compute_capability='sm_90'" in message
