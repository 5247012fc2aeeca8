"""Sizes of scratch memory and results that a function of the source computes when a program is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.errors import ArgumentError, SpecError

SOURCE = r"""
#include <optional>
#include <stdexcept>
#include "brainevent/common.h"
namespace ops {
int64_t need(const BE::Tensor x, int k) {
  BE_CHECK(k < 100) << "k is " << k;
  if (k == 50) throw std::runtime_error("fifty");
  if (k == 51) throw 51;
  return k == 52 ? -1 : x.shape(0) * k;
}
template <typename T>
size_t rows(const BE::Tensor& x) { return sizeof(T) * static_cast<size_t>(x.ndim()); }
// @BE sizes<T> arg[b n]:T attr.k:int32=3 ret[rows()]:int32 scratch=need scratch[2*need()+8] T=float32|int8
template <typename T>
void sizes(const BE::Tensor x, int k, BE::Tensor y, BE::Workspace a, BE::Workspace b) {
  for (int64_t i = 0; i < y.numel(); ++i) y.at<int32_t>(i) = static_cast<int32_t>(1000 * a.size() + b.size());
}
}
int64_t count(const BE::Tensor* bias, const BE::Tensors all, float scale) {
  int64_t found = bias == nullptr ? 100 : bias->numel();
  for (const BE::Tensor& each : all) found += each.numel();
  return found * static_cast<int64_t>(scale);
}
// @BE several arg?[n] arg...[m] attr.scale:float32 ret[count()]:int8=0
void several(const BE::Tensor* bias, const BE::Tensors all, float scale, BE::Tensor y) {}

int64_t bytes(const BE::Tensor x) { return 16 * x.shape(0); }
// @BE row arg[b n]:float32 ret[b n]:float32 scratch=bytes parallel[b]
void row(const BE::Tensor x, BE::Tensor y, BE::Workspace w) {
  BE_CHECK(static_cast<int64_t>(w.size()) == 16 * x.shape(0)) << w.size();
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
}
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return be_runtime.load_cpp_inline("size_functions", SOURCE)


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 8), (np.int8, 2)])
def test_a_function_of_the_source_gets_shapes_and_numbers(module: Any, dtype: Any, size: int):
    x = jnp.ones((5, 2), dtype)
    for call in (module.sizes, jax.jit(module.sizes)):
        np.testing.assert_array_equal(call(x), np.full(size, 15_038))
    np.testing.assert_array_equal(module.sizes(x, k=0), np.full(size, 8))
    assert jax.vmap(module.sizes)(jnp.stack([x, x])).tolist() == [[15_038] * size] * 2


def test_absent_and_several_arrays(module: Any):
    two = [jnp.ones(3), jnp.ones(3)]
    assert module.several(None, two, scale=2.5).shape == (212,)
    assert module.several(jnp.ones(1), two, scale=1).shape == (7,)


@pytest.mark.parametrize(
    ("k", "message"),
    [(100, r"need\(\) failed: size_functions:\d+: check failed: k < 100: k is 100"), (50, "failed: fifty"),
     (51, "it throws an object that is not a std::exception"), (52, r"need\(\) is -1, which is not a size")],
)  # fmt: skip
def test_what_a_function_throws_is_an_error_of_the_call(module: Any, k: int, message: str):
    with pytest.raises(ArgumentError, match=f"size_functions.sizes: .*{message}"):
        module.sizes(jnp.ones((2, 2)), k=k)


@pytest.mark.parametrize(
    ("change", "message"),
    [(("int64_t bytes(", "int64_t other("), r"row: no function bytes\(\) in the sources"),
     (("bytes(const BE::Tensor x)", "bytes(const BE::Tensor z)"), "has the parameter 'z', which is not an input"),
     (("arg[b n]:float32 ret[b n]:float32 scratch=b", "arg[bytes() b]:float32 ret[b]:float32 scratch=b"), "an input")],
)  # fmt: skip
def test_a_wrong_declaration_is_named(change: tuple[str, str], message: str):
    with pytest.raises(SpecError, match=message):
        be_runtime.load_cpp_inline("size_functions_wrong", SOURCE.replace(*change))
    with pytest.raises(SpecError, match="takes the attribute name, but it can take inputs and numbers alone"):
        be_runtime.load_cpp_inline(
            "size_functions_wrong",
            '#include <string>\n#include "brainevent/common.h"\nint f(std::string name) { return 1; }\n'
            "// @BE g ret[f()]:int8 attr.name\nvoid g(BE::Tensor y, std::string name) {}",
        )


@pytest.mark.parametrize(
    ("function", "message"),
    [("float f(const BE::Tensor x)", "returns float, but a size is an integer"), ("void f(int k)", "returns void"),
     ("int f(int8_t k)", "f\\(\\) can't take k: 'int8_t' does not hold every int32"),
     ("int f(float lr)", "has the parameter 'lr'(.|\n)*lr changes from call to call, and a size is computed when")],
)  # fmt: skip
def test_a_size_function_that_would_lose_its_numbers_is_named(function: str, message: str):
    source = f'#include "brainevent/common.h"\n{function} {{ return 1; }}\n'
    source += "// @BE g arg[n]:float32 attr.k:int32 scalar.lr:float32 ret[f()]:int8\n"
    source += "void g(const BE::Tensor x, int k, float lr, BE::Tensor y) {}"
    with pytest.raises(SpecError, match=message):
        be_runtime.load_cpp_inline("size_functions_wrong", source)


def test_a_result_that_no_machine_has_is_refused(module: Any):
    with pytest.raises(ArgumentError, match=r"result 0 is int8\[\d+\], which is more than any machine has"):
        module.several(None, [jnp.ones(3)], scale=1e14)


def test_symbolic_shapes_are_refused(module: Any):
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, n"), np.float32)
    with pytest.raises(ArgumentError, match=r"bytes\(\) computes a size, which needs known extents"):
        jax.export.export(jax.jit(module.row))(shape)


def test_each_shard_has_its_own_size_in_this_process_and_in_an_exported_program(tmp_path: Path):
    (tmp_path / "source.cc").write_text(SOURCE)
    head = """
import jax, numpy as np, pathlib, be_runtime, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_num_cpu_devices", 4)
rows = NamedSharding(Mesh(np.array(jax.devices()), "d"), P("d"))
x = jax.device_put(jnp.arange(24.0).reshape(8, 3), rows)
"""
    script = """
row = jax.jit(be_runtime.load_cpp_inline("size_functions", pathlib.Path("source.cc").read_text()).row)
assert (row(x) == 2 * x).all() and row(x).sharding.is_equivalent_to(rows, 2)
be_runtime.export(row, x).save("program")
"""
    other = """
y = be_runtime.load_exported("program").call(x)
assert (y == 2 * x).all()
"""
    for text in (script, other):
        found = subprocess.run(
            [sys.executable, "-c", f"{head}{text}\nprint('right')"], cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert found.stdout == "right\n", found.stderr


def test_scratch_memory_has_the_leading_axes_of_vmap_and_not_of_the_call():
    source = r"""
#include "brainevent/common.h"
// @BE room arg[... n]:float32 ret[... n]:float32 scratch[4*n]
void room(const BE::Tensor x, BE::Tensor y, BE::Workspace w) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = static_cast<float>(w.size());
}
// @BE row arg[b n]:float32 ret[b n]:float32 scratch[4*n] parallel[b]
void row(const BE::Tensor x, BE::Tensor y, BE::Workspace w) { room(x, y, w); }
// @BE rows arg[b n]:float32 ret[b n]:float32 scratch[4*n*b] parallel[b]
void rows(const BE::Tensor x, BE::Tensor y, BE::Workspace w) { room(x, y, w); }
"""
    module = be_runtime.load_cpp_inline("scratch_room", source)
    room = module.room
    x = jnp.ones((4, 2, 3))
    assert [float(room(x[0, 0])[0]), float(room(x[0])[0, 0]), float(room(x)[0, 0, 0])] == [12, 12, 12]
    assert float(jax.vmap(room)(x)[0, 0, 0]) == 48
    # a batch of 4 extends the axis b to 4 * 2
    assert [float(jax.vmap(each)(x)[0, 0, 0]) for each in (module.row, module.rows)] == [12, 96]
    outs = [jax.ShapeDtypeStruct((2, 3), np.float32), jax.ShapeDtypeStruct((5, 12), np.uint8)]
    with pytest.raises(jax.errors.JaxRuntimeError, match="leading axes"):
        jax.ffi.ffi_call("scratch_room.room", outs)(x[0])
