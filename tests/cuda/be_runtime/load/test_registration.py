"""CUDA targets on a machine without a device: registered beside those of the CPU, and never mixed up with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

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

LOADS: dict[str, Callable[[str], be_runtime.CompiledModule]] = {
    "cpp": lambda name: be_runtime.load_cpp_inline(name, CPP),
    "cuda": lambda name: be_runtime.load_cuda_inline(name, CUDA),
}


def transform(name: str) -> np.ndarray:
    x = jnp.arange(5, dtype=jnp.float32)
    run = jax.jit(lambda x: jax.ffi.ffi_call(f"{name}.transform", jax.ShapeDtypeStruct(x.shape, x.dtype))(x))
    return np.asarray(run(jax.device_put(x, jax.devices("cpu")[0])))


@pytest.mark.parametrize("order", list(itertools.permutations(LOADS)), ids="-".join)
def test_one_name_serves_both_platforms(order: tuple[str, ...]):
    name = "both_" + "_".join(order)
    modules = [LOADS[language](name) for language in order]
    assert modules[0].path != modules[1].path
    np.testing.assert_array_equal(transform(name), 3 * np.arange(5))
    assert be_runtime.list_registered_targets().count(f"{name}.transform") == 1


def test_a_cuda_target_does_not_exist_for_the_cpu():
    LOADS["cuda"]("only_cuda")
    assert "only_cuda.transform" in be_runtime.list_registered_targets()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"only_cuda\.transform"):
        transform("only_cuda")


@pytest.mark.usefixtures("tmp_cache")
def test_builds_of_one_source_are_one_content_and_may_add_functions():
    """The first build reads CUDA's headers, later ones what it kept of them, in another order."""
    for functions in (["plus_1"], ["plus_2", "plus_1"], ["plus_2"], None):
        be_runtime.load_cuda_inline("added", source("styles"), functions)
    found = [name for name in be_runtime.list_registered_targets() if name.startswith("added.")]
    assert found == [f"added.plus_{number}" for number in range(1, 7)]
    modules = [be_runtime.load_cuda_inline("added", source("styles"), force_rebuild=True) for _ in range(2)]
    assert modules[0].content_hash == modules[1].content_hash


def test_loading_again_changes_nothing():
    first = LOADS["cuda"]("again")
    before = be_runtime.list_registered_targets()
    second = LOADS["cuda"]("again")
    assert (second.path, second.content_hash) == (first.path, first.content_hash)
    assert be_runtime.list_registered_targets() == before


def test_the_graph_trait_belongs_to_the_registration():
    first = be_runtime.load_cuda_inline("trait", CUDA)
    with pytest.raises(be_runtime.RegistrationError, match=r"trait\.transform.*CUDA") as caught:
        be_runtime.load_cuda_inline("trait", CUDA, allow_cuda_graph=False)
    assert "target_prefix" in " ".join(caught.value.hints)
    other = be_runtime.load_cuda_inline("trait", CUDA, allow_cuda_graph=False, target_prefix="untrait")
    assert (other.path, other.content_hash) == (first.path, first.content_hash)
    assert "untrait.transform" in be_runtime.list_registered_targets()


def test_changed_content_under_a_live_name_is_refused_whole():
    be_runtime.load_cuda_inline("changed", CUDA)
    more = CUDA.replace("3.0f", "4.0f") + source("half").replace("widen", "extra")
    with pytest.raises(be_runtime.RegistrationError, match=r"changed\.transform"):
        be_runtime.load_cuda_inline("changed", more)
    assert not {"changed.fused", "changed.extra"} & set(be_runtime.list_registered_targets())


def test_a_handler_registered_by_hand():
    module = be_runtime.load_cuda_inline("by_hand", CUDA, auto_register=False)
    assert "by_hand.transform" not in be_runtime.list_registered_targets()
    be_runtime.register_ffi_target(
        "hand.transform", module.get_handler("transform"), "gpu", content=module.content_hash
    )
    assert "hand.transform" in be_runtime.list_registered_targets()
    with pytest.raises(KeyError, match="no function 'gone'"):
        module.get_handler("gone")
