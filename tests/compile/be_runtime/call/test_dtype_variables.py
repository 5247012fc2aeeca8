"""Dtype variables: one declaration for several dtypes, and the instances of a template."""

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
#include "brainevent/common.h"
#include "brainevent/state.h"
namespace ops {
// @BE scale<T, 2> arg[n k]:T arg[k]:T ret[n k]:T T=float32|float64|float16|bfloat16|int32|float8_e4m3fn
template <typename T, int N>
void scale(const BE::Tensor x, const BE::Tensor by, BE::Tensor y) {
  const T *from = x.data_ptr<T>(), *factor = by.data_ptr<T>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    y.data_ptr<T>()[i] = static_cast<T>(N * static_cast<float>(from[i]) * static_cast<float>(factor[i % x.shape(1)]));
  }
}
}  // namespace ops
// @BE take<T,Index> arg[n]:T arg?[n]:T arg[m]:Index ret[m]:T ret:attr.to scratch[sizeof(T)*m+sizeof(int32)] \
//   attr.to:dtype T=float32|complex64 Index=int32|uint8
template <class T, class Index>
void take(const BE::Tensor x, const BE::Tensor* bias, const BE::Tensor at, BE::Tensor y, BE::Tensor size,
          BE::Workspace memory, BE::DType) {
  for (int64_t i = 0; i < at.numel(); ++i) {
    const Index index = at.data_ptr<Index>()[i];
    y.data_ptr<T>()[i] = x.data_ptr<T>()[index];
    if (bias != nullptr) y.data_ptr<T>()[i] = bias->data_ptr<T>()[index];
  }
  size.data_ptr<int32_t>()[0] = static_cast<int32_t>(memory.size());
}
struct Calls {
  explicit Calls() {}
  int made = 0;
};
// @BE counted<T> arg[n]:T ret[n]:T state T=float32|int32
template <typename T>
void counted(const BE::Tensor x, BE::Tensor y, const BE::State<Calls>& calls) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<T>()[i] = x.data_ptr<T>()[i] + static_cast<T>(calls->made);
}
// @BE negated arg[n]:T arg[n]:like(0) inout[n]:T ret[n*sizeof(T)]:uint8 T=float32|int32
void negated(const BE::Tensor x, const BE::Tensor, BE::Tensor y, BE::Tensor bytes) {
  BE_DISPATCH_ALL_TYPES(x.dtype(), T, {
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<T>()[i] -= x.data_ptr<T>()[i];
  });
  for (int64_t i = 0; i < bytes.numel(); ++i) bytes.data_ptr<uint8_t>()[i] = 1;
}
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return be_runtime.load_cpp_inline("dtype_variables", SOURCE)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "float8_e4m3fn"])
def test_each_dtype_has_its_instance(module: Any, dtype: str):
    x, by = jnp.arange(6.0).reshape(2, 3).astype(dtype), jnp.array([1, 2, 0], dtype)
    for call in (module.scale, jax.jit(module.scale)):
        y = call(x, by)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.astype(np.float32), [[0, 4, 0], [6, 16, 0]])
    assert jax.vmap(module.scale, (0, None))(jnp.stack([x, x]), by).dtype == dtype


def test_a_python_number_becomes_the_variable_s_dtype(module: Any):
    declared = be_runtime.load_cpp_inline(
        "dtype_variables_numbers",
        """#include "brainevent/common.h"
        template <typename T> void add(const BE::Tensor a, const BE::Tensor x, BE::Tensor y) {
          for (int64_t i = 0; i < x.numel(); ++i)
            y.data_ptr<T>()[i] = static_cast<T>(static_cast<float>(x.data_ptr<T>()[i]) +
                                                static_cast<float>(a.data_ptr<T>()[0]));
        }""",
        functions={"add<T>": ["arg[]:T", "arg[n]:T", "ret[n]:T", "T=bfloat16|float32"]},
    )
    y = declared.add(3, jnp.ones(2, jnp.bfloat16))
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), [4, 4])
    assert declared.add(3.0, np.ones(1, np.float32)).dtype == jnp.float32


@pytest.mark.parametrize("index", [np.int32, np.uint8])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_two_variables_an_absent_array_and_the_size_of_a_dtype(module: Any, dtype: Any, index: Any):
    x, at = jnp.array([1, 2, 3], dtype), jnp.array([2, 0], index)
    y, size = module.take(x, None, at, to=np.int32, outs=outs(dtype))
    np.testing.assert_array_equal(y, [3, 1])
    assert size.tolist() == [np.dtype(dtype).itemsize * 2 + 4]
    y, _ = module.take(x, 2 * x, at, to=np.int32, outs=outs(dtype))
    np.testing.assert_array_equal(y, [6, 2])


def outs(dtype: Any) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct((2,), dtype), jax.ShapeDtypeStruct((1,), np.int32)]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_state_like_inout_and_dispatch(module: Any, dtype: Any):
    x = jnp.array([1, 2], dtype)
    np.testing.assert_array_equal(module.counted(x), x)
    y, size = module.negated(x, x, 4 * x)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, 3 * x)
    assert size.shape == (8,)


def test_other_dtypes_are_refused_by_name(module: Any):
    x = jnp.ones((2, 3))
    with pytest.raises(ArgumentError, match=r"argument 0 is int8\[2,3\], but T is float32 or float64 or float16"):
        module.scale(x.astype(np.int8), x[0])
    with pytest.raises(ArgumentError, match=r"argument 1 is int32\[3\], but T is float32"):
        module.scale(x, x[0].astype(np.int32))
    with pytest.raises(ArgumentError, match=r"argument 1 is int32\[2\], but float32 is declared"):
        module.negated(x[:, 0], x[:, 0].astype(np.int32), x[:, 0])
    with pytest.raises(ArgumentError, match=r"outs\[0\] is int32\[2,3\], but float32 is declared"):
        module.scale(x, x[0], outs=jax.ShapeDtypeStruct((2, 3), np.int32))
    direct = jax.ffi.ffi_call("dtype_variables.scale", jax.ShapeDtypeStruct((2, 3), np.int8))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"scale<T, 2> does not support dtype int8 of T"):
        direct(x.astype(np.int8), x[0].astype(np.int8))


def test_too_many_instances_and_numbers_like_another_array():
    every = "float32|float64|int8|int16|int32|int64|uint8"
    source = "template <class A, class B, class C> void f(const BE::Tensor a, const BE::Tensor b, BE::Tensor y) {}"
    tokens = ["arg:A", "arg:B", "ret:A", f"A={every}", f"B={every}", f"C={every}", "arg:C"]
    with pytest.raises(SpecError, match="343 instances, one for each combination of dtypes; the limit is 256"):
        be_runtime.load_cpp_inline(
            "instances",
            f'#include "brainevent/common.h"\n{source.replace("BE::Tensor y", "BE::Tensor y, const BE::Tensor c")}',
            functions={"f<A, B, C>": tokens},
        )
    like = be_runtime.load_cpp_inline(
        "like",
        """#include "brainevent/common.h"
        // @BE add arg[n]:float16 arg[]:like(0) ret[n]:like(0)
        void add(const BE::Tensor x, const BE::Tensor a, BE::Tensor y) { y.data_ptr<uint16_t>()[0] = 1; }""",
    )
    assert like.add(jnp.ones(1, np.float16), 2).dtype == np.float16


def test_a_derivative_by_another_instance_and_the_same_program_in_another_process(module: Any, tmp_path: Path):
    module.scale.defvjp(None, lambda inputs, g: (module.scale(g, inputs[1]), None))
    x, by = jnp.ones((2, 3), jnp.bfloat16), jnp.array([1, 2, 3], jnp.bfloat16)
    gradient = jax.grad(lambda x: module.scale(x, by).sum())(x)
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_array_equal(gradient[0].astype(np.float32), [2, 4, 6])
    be_runtime.export(module.scale, x, by).save(tmp_path / "program")
    script = """
import be_runtime, jax.numpy as jnp
program = be_runtime.load_exported("program")
print(program.call(jnp.ones((2, 3), jnp.bfloat16), jnp.array([1, 2, 3], jnp.bfloat16))[1].tolist())
"""
    found = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout == "[2.0, 4.0, 6.0]\n"


def test_scratch_memory_of_a_batch_that_is_split_over_devices_has_the_size_of_its_dtype(tmp_path: Path):
    script = """
import jax, numpy as np, be_runtime, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_num_cpu_devices", 4)
source = '''#include "brainevent/common.h"
// @BE f<T> arg[b n]:T ret[b n]:T scratch[sizeof(T)*b*n] parallel[b] T=float32|float16
template <typename T> void f(const BE::Tensor x, BE::Tensor y, BE::Workspace w) {
  BE_CHECK(w.size() == x.nbytes()) << w.size();
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<T>()[i] = x.data_ptr<T>()[i];
}'''
f = be_runtime.load_cpp_inline("split_variables", source).f
rows = NamedSharding(Mesh(np.array(jax.devices()), "d"), P("d"))
for dtype in (jnp.float32, jnp.float16):
    x = jax.device_put(jnp.arange(24, dtype=dtype).reshape(8, 3), rows)
    y = jax.jit(f)(x)
    assert y.sharding.is_equivalent_to(rows, 2) and (y == x).all()
print("right")
"""
    found = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout == "right\n", found.stderr
