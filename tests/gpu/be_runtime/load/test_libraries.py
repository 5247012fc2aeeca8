"""Kernels as people write them: CUDA's libraries and headers, several files, relocatable code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import EIGHT_FILES, KERNELS, NO_LTO_LINKER, call, source, write_eight_files
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
