"""Kernels as people write them: libraries and headers of CUDA, several files, failures, two platforms."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_toolchain.find.devices import probe_devices
from be_toolchain.machine.local_system import LocalSystem
from tests.cuda.built import WARM_LOAD
from tests.support.cuda import (
    EIGHT_FILES,
    KERNELS,
    NO_LTO_LINKER,
    call,
    device_code,
    run_json,
    source,
    write_eight_files,
)
from tests.support.jax_names import enable_x64
from tests.support.requirements import OPTIONAL


def like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def test_cub():
    be_runtime.load_cuda_inline("cub_sums", source("cub_sums"))
    x = np.arange(100_000, dtype=np.float32) % 7
    outs = (jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((1 << 16,), jnp.uint8))
    total, _ = call("cub_sums.device_sum", outs, x)
    assert total == x.sum()
    rows = x.reshape(100, 1000)
    sums = call("cub_sums.row_sums", jax.ShapeDtypeStruct((100,), jnp.float32), rows)
    np.testing.assert_array_equal(sums, rows.sum(axis=1))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"cub_sums\.device_sum: .*bytes of scratch memory"):
        call("cub_sums.device_sum", (outs[0], jax.ShapeDtypeStruct((1,), jnp.uint8)), x)


def test_headers_and_ways_to_write_kernels_and_launchers():
    be_runtime.load_cuda_inline("half", source("half"))
    x = np.arange(-50, 50, dtype=np.float16) / 4
    np.testing.assert_array_equal(call("half.fused", like(x), x), 2 * x + 1)
    y = jnp.arange(-50, 50, dtype=jnp.bfloat16)
    np.testing.assert_array_equal(call("half.widen", jax.ShapeDtypeStruct(y.shape, jnp.float32), y), np.arange(-50, 50))
    assert be_runtime.load_cuda_file(KERNELS / "sibling.cu").name == "sibling", "with a header beside it"
    z = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(call("sibling.transform", like(z), z), 3 * z)
    for name in be_runtime.load_cuda_inline("styles", source("styles")).function_names:
        np.testing.assert_array_equal(call(f"styles.{name}", like(z), z), z + int(name.removeprefix("plus_")))


def test_a_folder_of_eight_files_that_share_names(tmp_path: Path):
    folder = tmp_path / "kernels"
    write_eight_files(folder)
    be_runtime.load_cuda_dir(folder, name="eight")
    x = np.arange(1000, dtype=np.float32)
    expected = {f"only_{i}": np.full_like(x, i) for i in EIGHT_FILES}
    expected |= {f"part_{i}.apply": (i + 1) * x for i in range(5)}
    expected |= {f"part_{i}.shift": x + 10 * i for i in range(4, 8)}
    for name, values in expected.items():
        np.testing.assert_array_equal(call(f"eight.{name}", like(x), x), values, err_msg=name)


@pytest.mark.parametrize("flag", ["-rdc=true", "-dlto"])
def test_relocatable_device_code(flag: str):
    name = "relocatable" + flag.replace("=", "_")
    try:
        module = be_runtime.load_cuda_dir(KERNELS / "relocatable", name=name, extra_cuda_cflags=[flag])
    except be_runtime.BuildError as error:
        if NO_LTO_LINKER in str(error):
            pytest.skip(OPTIONAL + "nvvm/lib64/libnvvm.so, for nvlink to optimize")
        raise
    assert module.function_names == ["apply"]
    x = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(call(f"{name}.apply", like(x), x), 10 * x + 0.5)


@pytest.fixture(scope="module")
def _events() -> None:
    be_runtime.load_cuda_inline("events", source("events"))


@pytest.mark.usefixtures("_events")
@pytest.mark.parametrize("indices_type", [np.int32, np.int64])
@pytest.mark.parametrize("indptr_type", [np.int32, np.int64])
def test_sparse_rows_and_spikes(indices_type: type, indptr_type: type):
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, (37, 100)) * (rng.random((37, 100)) < 0.4)
    spikes = rng.random(100) < 0.3
    indptr = np.concatenate([[0], np.count_nonzero(dense, axis=1).cumsum()])
    indices = np.nonzero(dense)[1]
    with enable_x64(True):
        out = call(
            "events.gather",
            jax.ShapeDtypeStruct((37,), jnp.float32),
            dense[dense != 0].astype(np.float32),
            indices.astype(indices_type),
            indptr.astype(indptr_type),
            spikes,
        )
    np.testing.assert_array_equal(out, dense @ spikes)


@pytest.mark.usefixtures("_events")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_scattered_events(dtype: str):
    rng = np.random.default_rng(1)
    weights = rng.integers(-3, 4, (20, 15)).astype(jnp.dtype(dtype))
    indices = rng.integers(0, 50, (20, 15)).astype(np.int32)
    spikes = (rng.random(20) < 0.5).astype(np.float32)
    expected = np.zeros(50)
    np.add.at(expected, indices, weights.astype(np.float64) * spikes[:, None])
    with enable_x64(True):
        out = call("events.scatter", jax.ShapeDtypeStruct((50,), weights.dtype), weights, indices, spikes)
        assert out.dtype == weights.dtype
    np.testing.assert_array_equal(np.asarray(out).astype(np.float64), expected)


TEXT = source("failures")
CHECKED_LINE = next(number for number, line in enumerate(TEXT.splitlines(), 1) if "the line of a checked" in line)
REFUSED = r"cudaErrorInvalid(?:Configuration \(9\)|Value \(1\))"
"""What CUDA says of a launch with too many threads: the second since 13.0."""
X = np.arange(3, dtype=np.float32)


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    # A graph can't be recorded across BE_CHECK_KERNEL_LAUNCH_SYNC.
    be_runtime.load_cuda_inline("failures", TEXT, allow_cuda_graph=False)


@pytest.fixture(autouse=True)
def _goes_on() -> Generator[None]:
    yield
    np.testing.assert_array_equal(run("good", factor=np.float32(2)), 2 * X)
    assert (jnp.arange(4) + 1).sum() == 10


def run(function: str, **attrs: Any) -> Any:
    return call(f"failures.{function}", jax.ShapeDtypeStruct(X.shape, X.dtype), X, **attrs)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("checked_launch", rf"failures:{CHECKED_LINE}: kernel launch failed: {REFUSED}"),
        ("unchecked_launch", rf"kernel launch failed: {REFUSED}: .*too large"),
        ("too_much_shared", r"kernel launch failed: cudaError\w+ \(\d+\)"),
        ("cuda_call", r"cudaSetDevice\(1 << 20\) failed: cudaErrorInvalidDevice \(101\)"),
        ("condition", r"check failed: x\.numel\(\) == 7: x has 3 elements of float32"),
        ("standard_exception", "a standard exception"),
        ("other_exception", "threw a C\\+\\+ exception"),
    ],
)
def test_failure_names_its_function(function: str, words: str):
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=rf"failures\.{function}: .*{words}"):
            run(function)


def test_check_that_waits():
    np.testing.assert_array_equal(run("waits"), 3 * X)


def test_failure_inside_a_larger_program():
    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        y = jax.ffi.ffi_call("failures.good", like)(x + 1, factor=np.float32(2))
        return jax.ffi.ffi_call("failures.condition", like)(y) * 2

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"failures\.condition: .*x has 3 elements"):
        jax.block_until_ready(program(jnp.asarray(X)))


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
