"""State: one object for each call site, made from attributes when a program is compiled, deleted with it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import be_runtime
from tests.compile.be_runtime.include.conftest import KERNELS
from tests.support.jax_names import shard_map

X = jnp.ones(3, jnp.float32)
Call = Callable[..., Any]


@pytest.fixture(name="scaled")
def _scaled(call: Call) -> Call:
    """Call ``scaled``, whose results are the scale, the number of its object, and how often that was used."""

    def scaled(x: Any, scale: float = 2.0, function: str = "scaled") -> Any:
        return call(function, X, x, scale=np.float64(scale), vmap_method="sequential")

    return scaled


@pytest.fixture(name="counts")
def _counts(module: be_runtime.CompiledModule) -> Callable[[], tuple[int, int]]:
    """How many objects were made and deleted."""
    out = jax.ShapeDtypeStruct((2,), jnp.int32)
    caller = jax.jit(jax.ffi.ffi_call(f"{module.name}.counts", out, has_side_effect=True))
    return lambda: tuple(caller().tolist())


def test_ten_thousand_calls_make_one_object(scaled: Call, counts: Call):
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 10_000, lambda _, y: scaled(y, 1.0), x))
    made, _ = counts()
    assert run(X).tolist() == [1, made + 1, 10_000]
    assert run(X)[2] == 20_000
    assert counts()[0] == made + 1


def test_each_call_site_has_its_own_which_is_deleted_with_the_program(scaled: Call, counts: Call):
    run = jax.jit(lambda x: (scaled(x, 4.0), scaled(x, 5.0), scaled(x, 4.0, "other")))
    results = np.asarray(run(X))
    assert results[:, 0].tolist() == [4, 5, 4]
    assert len(set(results[:, 1])) == 3
    gc.collect()
    made, deleted = counts()
    del run
    gc.collect()
    assert counts() == (made, deleted + 3)


def test_scan_and_sequential_vmap_share_one(scaled: Call, counts: Call):
    made, _ = counts()
    _, rows = jax.jit(lambda x: jax.lax.scan(lambda y, _: (scaled(y, 1.0),) * 2, x, None, length=5))(X)
    assert rows[:, 1:].tolist() == [[made + 1, used] for used in (1, 2, 3, 4, 5)]
    batch = jax.jit(jax.vmap(scaled))(jnp.ones((4, 3), jnp.float32))
    assert sorted(batch[:, 1:].tolist()) == [[made + 2, used] for used in (1, 2, 3, 4)]


def test_two_devices_of_a_program_share_one(scaled: Call, counts: Call):
    devices = jax.devices("cpu")[:2]
    mesh, spec = Mesh(np.array(devices), "d"), PartitionSpec("d")
    x = jax.device_put(jnp.ones(3 * len(devices), jnp.float32), NamedSharding(mesh, spec))
    made, _ = counts()
    both = np.asarray(jax.jit(shard_map(scaled, mesh=mesh, in_specs=spec, out_specs=spec))(x)).reshape(-1, 3)
    assert both[:, :2].tolist() == [[2, made + 1]] * len(devices)
    assert sorted(both[:, 2]) == [1, 2][: len(devices)]


def test_a_class_without_attributes_and_an_object_for_each_device(call: Call):
    assert call("counted", jax.ShapeDtypeStruct((1,), jnp.float32))[0] == 1010


def test_the_same_library_under_two_prefixes():
    for prefix in ("state_one", "state_two"):
        be_runtime.load_cpp_file(KERNELS / "state.cc", name="state_inlined", target_prefix=prefix)
        caller: Any = jax.ffi.ffi_call(f"{prefix}.scaled", X)
        assert caller(X, scale=np.float64(2))[0] == 2


@pytest.fixture(name="compiled")
def _compiled(call: Call) -> Call:
    """Compile a call of ``ask``."""

    def compiled(what: int, **changed: Any) -> Any:
        attributes = {"n": np.int32(300), "what": np.int32(what), "z": np.array([1.5, 2], np.float32), **changed}
        return jax.jit(lambda: call("ask", X[:1], **attributes)).lower().compile()

    return compiled


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (1, "the state asks for the attribute nothing as float64, but the call has no attribute of this name"),
        (2, "the state asks for the attribute n as string, but the call passes n: int32 300"),
        (3, "the state asks for the attribute n as int8, but the call passes n: int32 300"),
        (4, "the state asks for the attribute n as array of float32, but the call passes n: int32 300"),
        (5, "the state asks for the attribute z as float32, but the call passes z: array of float32"),
        (6, "threw a C\\+\\+ exception that is not derived from std::exception"),
    ],
)
def test_what_a_constructor_throws_fails_the_compilation(compiled: Call, what: int, message: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"\.ask: {message}"):
        compiled(what)


def test_wrong_attributes_fail_the_compilation(compiled: Call, scaled: Call):
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes the attributes \(n=np\.int32.*passes \(n: string"):
        compiled(0, n="text")
    with pytest.raises(jax.errors.JaxRuntimeError, match="a negative scale"):
        jax.jit(lambda x: scaled(x, -1.0)).lower(X).compile()


def test_attributes_are_read_by_name(compiled: Call):
    assert [compiled(what)()[0] for what in (7, 8, 9)] == [1, 600, 3.5]


def test_attributes_of_every_kind_and_their_defaults(module: be_runtime.CompiledModule, call: Call):
    for bias, given, expected in (
        (None, {"weights": [1.0, 2.0]}, [5, 5, 5]),
        (X, {"weights": [], "scale": 1.0, "mode": "slow"}, [-1, 2, 2]),
        (None, {"weights": [], "norm": "ortho"}, [2, 2, 2]),
    ):
        assert module.kinds(X, bias, **given).tolist() == expected
    outs = (X, jax.ShapeDtypeStruct((12,), jnp.uint8))
    attributes: dict[str, Any] = {"weights": np.ones(1, np.float32), "be_present": np.int64(0)}
    for norm, message in (
        ("wrong", 'the attribute norm as float32, but the call passes norm: string "wrong"'),
        ("default", "the attribute scale as string, but its default is none"),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            call("kinds", outs, X, norm=norm, **attributes)


def test_a_function_without_a_state_parameter_says_so():
    source = '#include "brainevent/common.h"\n// @BE f ret state\nvoid f(BE::Tensor y, int n) {}\n'
    with pytest.raises(be_runtime.SpecError, match="'state' is at the position of parameter 'n'"):
        be_runtime.load_cpp_inline("state_missing", source)
    hidden = source.replace("int n", "Plan n").replace("// @BE", "struct Plan {};\n// @BE")
    with pytest.raises(be_runtime.BuildError, match=r"has no parameter BE::State<T>"):
        be_runtime.load_cpp_inline("state_missing", hidden)


SHAPES = r"""
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include "brainevent/common.h"
#include "brainevent/state.h"
std::atomic<int> made{0}, deleted{0};
struct Plan {
  Plan(const BE::Attributes& attributes, const BE::Shapes& shapes)
      : rows(shapes.arg(0).shape(0)), columns(shapes.ret(0).shape(1)), scale(attributes.get<int>("scale")) {
    BE_CHECK(shapes.arg(0).data() == nullptr && shapes.arg(0).dtype() == BE::DType::Float32);
    if (scale == 13) throw std::runtime_error("thirteen");
    if (scale == 14) shapes.arg(7);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++made;
  }
  ~Plan() { ++deleted; }
  int64_t rows, columns;
  int scale;
};
// @BE planned arg[n k]:float32 ret[n k]:float32 state attr.scale:int32=2
void planned(const BE::Tensor x, BE::Tensor y, const BE::State<Plan>& plan, int) {
  BE_CHECK(plan->rows == x.shape(0) && plan->columns == x.shape(1));
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = static_cast<float>(plan->scale);
}
// @BE biased arg[n k]:float32 arg?[k]:float32 ret[n k]:float32 state attr.scale:int32
void biased(const BE::Tensor x, const BE::Tensor*, BE::Tensor y, const BE::State<Plan>& plan, int scale) {
  planned(x, y, plan, scale);
}
// @BE totals ret[2]:int32
void totals(BE::Tensor y) { y.at<int>(0) = made, y.at<int>(1) = deleted; }
"""


@pytest.fixture(name="shaped", scope="module")
def _shaped() -> Any:
    return be_runtime.load_cpp_inline("state_from_shapes", SHAPES)


def test_a_state_that_asks_for_shapes_is_made_once_by_the_first_call_and_deleted_with_the_program(shaped: Any):
    totals = shaped.totals.with_options(has_side_effect=True)
    before = totals()
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, y: shaped.planned(y, scale=3), x))
    for rows in (2, 4):
        for _ in range(3):
            np.testing.assert_array_equal(run(jnp.ones((rows, 3))), np.full((rows, 3), 3))
    assert (totals() - before).tolist() == [2, 0]
    del run
    gc.collect()
    assert (totals() - before).tolist() == [2, 2]
    np.testing.assert_array_equal(shaped.biased(jnp.ones((2, 2)), scale=5), np.full((2, 2), 5))
    np.testing.assert_array_equal(shaped.biased(jnp.ones((2, 2)), jnp.ones(2), scale=6), np.full((2, 2), 6))


def test_threads_that_call_first_at_once_share_one(shaped: Any):
    totals, call = shaped.totals.with_options(has_side_effect=True), jax.jit(lambda x: shaped.planned(x, scale=9))
    x = jnp.ones((5, 5))
    compiled = call.lower(x).compile()
    before = totals()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(compiled, [x] * 16))
    assert all((each == 9).all() for each in found)
    assert (totals() - before).tolist() == [1, 0]


@pytest.mark.parametrize(("scale", "message"), [(13, "thirteen"), (14, "shape of array 7, which the call does not")])
def test_what_a_constructor_with_shapes_throws_fails_each_call(shaped: Any, scale: int, message: str):
    call = jax.jit(lambda x: shaped.planned(x, scale=scale)).lower(jnp.ones((2, 2))).compile()
    for _ in range(2):
        with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=f"state_from_shapes.planned: .*{message}"):
            jax.block_until_ready(call(jnp.ones((2, 2))))
