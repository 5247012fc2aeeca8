"""CUDA targets on a machine without a device: registered beside those of the CPU, and never mixed up with them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import source

CPP = """
#include "brainevent/common.h"
// @BE transform
void transform(const BE::Tensor x, BE::Tensor out) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = 3 * x.data_ptr<float>()[i];
}
"""
HEADER = "__device__ inline float transformed(float x) { return 3.0f * x; }\n"
CUDA = HEADER + source("sibling").replace('#include "sibling.cuh"\n', "")


def load(language: str, prefix: str, **options: Any) -> be_runtime.CompiledModule:
    if language == "cpp":
        return be_runtime.load_cpp_inline("registered", CPP, target_prefix=prefix)
    return be_runtime.load_cuda_inline("registered", CUDA, target_prefix=prefix, **options)


def transform(name: str) -> np.ndarray:
    x = jnp.arange(5, dtype=jnp.float32)
    run = jax.jit(lambda x: jax.ffi.ffi_call(f"{name}.transform", jax.ShapeDtypeStruct(x.shape, x.dtype))(x))
    return np.asarray(run(jax.device_put(x, jax.devices("cpu")[0])))


@pytest.mark.parametrize("order", [("cpp", "cuda"), ("cuda", "cpp")], ids="-".join)
def test_one_name_serves_both_platforms(order: tuple[str, ...]):
    name = "both_" + "_".join(order)
    modules = [load(language, name) for language in order]
    assert modules[0].path != modules[1].path
    np.testing.assert_array_equal(transform(name), 3 * np.arange(5))
    assert be_runtime.list_registered_targets().count(f"{name}.transform") == 1


def test_a_cuda_target_does_not_exist_for_the_cpu():
    first, again = (load("cuda", "only_cuda") for _ in range(2))
    assert (first.path, first.content_hash) == (again.path, again.content_hash)
    assert be_runtime.list_registered_targets().count("only_cuda.transform") == 1
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"only_cuda\.transform"):
        transform("only_cuda")


def test_the_graph_trait_belongs_to_the_registration():
    first = load("cuda", "trait")
    with pytest.raises(be_runtime.RegistrationError, match=r"trait\.transform.*CUDA") as caught:
        load("cuda", "trait", allow_cuda_graph=False)
    assert "target_prefix" in " ".join(caught.value.hints)
    other = load("cuda", "untrait", allow_cuda_graph=False)
    assert (other.path, other.content_hash) == (first.path, first.content_hash)
    assert "untrait.transform" in be_runtime.list_registered_targets()
