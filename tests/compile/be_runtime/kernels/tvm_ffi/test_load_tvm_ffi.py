"""Functions of real TVM-FFI libraries, built by TVM-FFI's own C++ and by C alone, as functions of JAX arrays."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, SpecError
from be_runtime.kernels.tvm_ffi import load_source
from be_runtime.kernels.tvm_ffi_source import Function, Word, render
from be_runtime.ship.declaration import parse_declaration
from tests.compile.be_runtime.processes import python
from tests.support.requirements import OPTIONAL
from tests.support.runtime import real_compiler, run_python

tvm_ffi = pytest.importorskip("tvm_ffi", reason=f"{OPTIONAL}apache-tvm-ffi")

SOURCE = r"""
#include <tvm/ffi/tvm_ffi.h>
using tvm::ffi::Array, tvm::ffi::Optional, tvm::ffi::String, tvm::ffi::Tensor, tvm::ffi::TensorView;

static float* floats(const TensorView& x) { return static_cast<float*>(x.data_ptr()); }

void add(TensorView a, TensorView b, TensorView y) {
  for (int64_t i = 0; i < y.numel(); ++i) floats(y)[i] = floats(a)[i] + floats(b)[i];
}
void scale(TensorView x, TensorView y, double by) {
  for (int64_t i = 0; i < y.numel(); ++i) floats(y)[i] = static_cast<float>(by) * floats(x)[i];
}
void mixed(TensorView y, String mode, bool negate, TensorView x, int64_t n, double by, Optional<TensorView> bias) {
  TVM_FFI_CHECK(mode == "add" || mode == "a text of more than sixteen characters", ValueError) << "mode is " << mode;
  TVM_FFI_ICHECK(x.size(0) == n && x.stride(0) == 1) << "extents";
  for (int64_t i = 0; i < n; ++i) {
    const float value = mode == "add" ? floats(x)[i] + static_cast<float>(by) : floats(x)[i] * static_cast<float>(by);
    floats(y)[i] = (negate ? -value : value) + (bias.has_value() ? floats(bias.value())[i] : 0.0f);
  }
}
void grow(TensorView x) {
  for (int64_t i = 0; i < x.numel(); ++i) floats(x)[i] += 1;
}
void copy(Tensor x, Tensor y) {
  const Array<Tensor> both = {x, y};
  for (int64_t i = 0; i < y.numel(); ++i)
    static_cast<float*>(both[1].data_ptr())[i] = static_cast<const float*>(both[0].data_ptr())[i];
}
void keep(Tensor x, Tensor y) { static auto* kept = new Tensor(x); }
Tensor same(Tensor x) { return x; }
Array<Tensor> both(Tensor x, Tensor y) { return {y, x}; }
double total(TensorView x) {
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += floats(x)[i];
  return sum;
}
String named(TensorView x, TensorView y) { return "a text longer than seven characters"; }
"""
NAMES = ["add", "scale", "mixed", "grow", "copy", "keep", "same", "both", "total", "named"]

C_SOURCE = r"""
#include <tvm/ffi/c_api.h>
int __tvm_ffi_twice(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  if (count != 2 || args[0].type_index != kTVMFFIDLTensorPtr) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "twice takes 2 tensors");
    return -1;
  }
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  for (int64_t i = 0; i < x->shape[0]; ++i) ((float*)y->data)[i] = 2 * ((const float*)x->data)[i];
  return 0;
}
int __tvm_ffi_layout(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  int32_t* out = y->data;
  *out++ = x->ndim;
  for (int i = 0; i < x->ndim; ++i) *out++ = x->shape[i];
  for (int i = 0; i < x->ndim; ++i) *out++ = x->strides[i];
  return 0;
}
"""

pytestmark = pytest.mark.xdist_group("tvm-ffi")  # whose library takes ten seconds to build

DECLARED = {
    "add": "arg[... n]:float32 arg[... n]:float32 ret[... n]:float32",
    "scale": "arg[n]:float32 ret[n]:float32 attr.by=2",
    "mixed": "ret[n]:float32 attr.mode=add attr.negate=false arg[n]:float32 =n attr.by arg?[n]:float32",
    "grow": "inout[n]:float32",
    "copy": "arg[n]:float32 ret[n]:float32",
    "keep": "arg[n]:float32 ret[n]:float32",
    "same": "arg[n]:float32 returned[n]:float32",
    "both": "arg[n]:float32 arg[m]:float32 returned[m]:float32 returned[n]:float32",
    "total": "arg[n]:float32 returned[]:float64",
    "named": "arg[n]:float32 ret[n]:float32",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that states its types."""
    import tvm_ffi.cpp

    folder = tmp_path_factory.mktemp("tvm")
    flags = ["-DTVM_FFI_DLL_EXPORT_INCLUDE_METADATA=1"]
    built = tvm_ffi.cpp.build_inline(
        "tvm_kernels", cpp_sources=SOURCE, functions=NAMES, extra_cflags=flags, build_directory=str(folder)
    )
    return Path(built)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of C alone, which states nothing."""
    from tvm_ffi import libinfo

    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain.c").write_text(C_SOURCE)
    made = folder / "libplain.so"
    include = [f"-I{path}" for path in {libinfo.find_include_path(), libinfo.find_dlpack_include_path()}]
    command = [
        real_compiler(),
        "-x",
        "c",
        "-shared",
        "-fPIC",
        "-O1",
        *include,
        str(folder / "plain.c"),
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True)
    return made


@pytest.fixture(scope="module")
def ops(library: Path) -> be_runtime.CompiledModule:
    return be_runtime.load_tvm_ffi(library, DECLARED)


X = jnp.arange(4.0, dtype=jnp.float32)


def test_each_kind_of_parameter(ops: be_runtime.CompiledModule):
    assert ops.add(X, X).tolist() == [0, 2, 4, 6]
    assert ops.scale(X).tolist() == [0, 2, 4, 6]
    assert ops.scale(X, by=0.5).tolist() == [0, 0.5, 1, 1.5]
    assert ops.mixed(X, by=1).tolist() == [1, 2, 3, 4]
    long = "a text of more than sixteen characters"
    assert ops.mixed(X, X, by=2, mode=long, negate=True).tolist() == [0, -1, -2, -3]
    assert ops.grow(X).tolist() == [1, 2, 3, 4]
    assert X.tolist() == [0, 1, 2, 3]
    assert ops.copy(X).tolist() == X.tolist()


def test_results_that_the_function_returns(ops: be_runtime.CompiledModule):
    assert ops.same(X).tolist() == X.tolist()
    first, second = ops.both(X, jnp.ones(2, jnp.float32))
    assert (first.tolist(), second.tolist()) == ([1, 1], X.tolist())
    with jax.enable_x64(True):
        assert float(ops.total(X)) == 6
    assert ops.named(X).shape == (4,)  # the text is released


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ("arg[n]:float32 returned[n]:int32", "the function returned float32, but the declaration has int32"),
        ("arg[n]:float32 returned[2*n]:float32", "returned 4 for dimension 0, but the declaration has 8"),
        ("arg[n]:float32 returned[n 1]:float32", "an array with 1 dimensions, but the declaration has 2"),
        ("arg[n]:float32 returned[n]:float32 returned[n]:float32", "a value of kind 70, not 2 results"),
    ],
)
def test_a_result_that_differs_from_its_declaration(library: Path, declared: str, match: str):
    same = be_runtime.load_tvm_ffi(library, {"same": declared}, auto_register=False).same
    with pytest.raises(jax.errors.JaxRuntimeError, match=match):
        jax.block_until_ready(same(X))


def test_transformations(ops: be_runtime.CompiledModule):
    rows = jnp.ones((3, 4), jnp.float32)
    assert jax.jit(jax.vmap(ops.add))(rows, rows).tolist() == [[2] * 4] * 3
    looped = jax.lax.fori_loop(0, 5, lambda _i, x: ops.add(x, x), X)
    assert looped.tolist() == [0, 32, 64, 96]


def test_errors_of_a_function_and_a_kept_tensor(ops: be_runtime.CompiledModule):
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"tvm_kernels\.mixed: ValueError: .*mode is subtract"):
        ops.mixed(X, by=1, mode="subtract").block_until_ready()
    with pytest.raises(jax.errors.JaxRuntimeError, match="keeps one of its tensors"):
        ops.keep(X).block_until_ready()


def test_a_call_that_does_not_fit_is_refused_before_the_function_runs(ops: be_runtime.CompiledModule):
    for bad in (X.astype(jnp.int32), jnp.ones((2, 2), jnp.float32), "x"):
        with pytest.raises((ArgumentError, TypeError, ValueError)):
            ops.scale(bad)
    with pytest.raises((ArgumentError, TypeError)):
        ops.mixed(X)  # by is missing


def test_a_library_of_c(plain: Path):
    ops = be_runtime.load_tvm_ffi(plain, {"twice": "arg[n]:float32 ret[n]:float32"})
    assert (ops.name, ops.twice(X).tolist()) == ("plain", [0, 2, 4, 6])
    wrong = be_runtime.load_tvm_ffi(plain, {"twice": "=1 arg[n]:float32 ret[n]:float32"}, name="wrong")
    with pytest.raises(jax.errors.JaxRuntimeError, match="TypeError: twice takes 2 tensors"):
        wrong.twice(X).block_until_ready()


@pytest.mark.parametrize(
    ("declared", "error", "match"),
    [
        ({"nope": "arg ret"}, ArgumentError, "(?s)no TVM-FFI function 'nope'.*add, both"),
        ({"add": "arg[n] ret[n]"}, SpecError, "(?s)takes 3 parameters, and 2 are declared.*DLTensor"),
        ({"scale": "arg[n] ret[n] arg[n]"}, SpecError, "parameter 2 is float, not"),
        ({"scale": "arg[n] attr.by ret[n]"}, SpecError, "parameter 1 is an array, not 'attr.by'"),
        ({"scale": "arg[n] ret[n] =m"}, SpecError, "'=m' is not an axis of an array; the axes are n"),
        ({"scale": "arg[n] ret[n] =1e999"}, SpecError, "finite"),
        ({"scale": "arg[n] ret[n] ='a"}, SpecError, "a quoted text or an axis"),
        ({"scale": "arg[n] ret[n] =9223372036854775808"}, SpecError, "64-bit"),
        ({"scale": "arg[n] ret[n] attr.by:float32[]"}, SpecError, "can't take the parameter 'by'"),
        ({"scale": "arg[n] ret[n] foo"}, SpecError, "unknown arg_spec token 'foo'"),
        ({"scale": 3}, SpecError, "a text or a list of tokens"),
        ({"no name": "ret"}, SpecError, "is not the name"),
        ({}, ArgumentError, "functions must be a dict"),
    ],
)
def test_a_wrong_declaration_is_named(library: Path, declared: dict[str, str], error: type[Exception], match: str):
    with pytest.raises(error, match=match):
        be_runtime.load_tvm_ffi(library, declared)


def test_an_attribute_needs_a_type_if_the_library_states_none(plain: Path):
    with pytest.raises(SpecError, match=r"does not state the type of attr\.by"):
        be_runtime.load_tvm_ffi(plain, {"twice": "arg[n] ret[n] attr.by"})


def test_a_file_that_is_no_library(tmp_path: Path):
    with pytest.raises(be_runtime.SourceNotFoundError, match="is not a file"):
        be_runtime.load_tvm_ffi(tmp_path / "none.so", {"f": "ret"})
    with pytest.raises(ArgumentError, match=r"(?s)library must be a path, not .*build_inline returns"):
        be_runtime.load_tvm_ffi(object(), {"f": "ret"})  # type: ignore[arg-type]
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(ArgumentError, match="is not a shared library"):
        be_runtime.load_tvm_ffi(tmp_path / "text.so", {"f": "ret"})
    (tmp_path / "tilelang.so").write_bytes(b"\x7fELF\0__tvm_ffi_f\0__tvm_ffi__library_bin\0")
    with pytest.raises(ArgumentError, match="only its compiler's run-time library can load") as raised:
        be_runtime.load_tvm_ffi(tmp_path / "tilelang.so", {"f": "ret"})
    assert "tvm_ffi_function" in str(raised.value)


def test_other_bytes_are_another_module(plain: Path, tmp_path: Path):
    """The module holds the bytes that it was built from, whatever happens to the file."""
    copy = tmp_path / "libplain.so"
    copy.write_bytes(plain.read_bytes())
    declared = {"twice": "arg[n]:float32 ret[n]:float32"}
    first = be_runtime.load_tvm_ffi(copy, declared, target_prefix="first")
    copy.write_bytes(plain.read_bytes() + b"more")
    second = be_runtime.load_tvm_ffi(copy, declared, target_prefix="second")
    with pytest.raises(be_runtime.RegistrationError, match=r"another library by that name: pass name="):
        be_runtime.load_tvm_ffi(copy, declared, target_prefix="first")
    copy.unlink()
    assert first.path != second.path
    assert first.twice(X).tolist() == second.twice(X).tolist() == [0, 2, 4, 6]


def test_an_exported_program_holds_the_library(plain: Path, tmp_path: Path):
    ops = be_runtime.load_tvm_ffi(plain, {"twice": "arg[n]:float32 ret[n]:float32"})
    be_runtime.export(jax.jit(ops.twice), X).save(tmp_path / "program")
    script = (
        "import sys, be_runtime, numpy as np\n"
        "if sys.argv[2] == 'with': import tvm_ffi\n"
        "print(be_runtime.load_exported(sys.argv[1]).call(np.arange(4, dtype=np.float32)))"
    )
    done = run_python(script, str(tmp_path / "program"), "with")
    assert done.stdout.strip() == "[0. 2. 4. 6.]", done.stderr
    done = run_python(script, str(tmp_path / "program"), "without", check=False)
    assert "libtvm_ffi.so is not loaded" in done.stderr


def test_function_objects(library: Path):
    module = tvm_ffi.load_module(str(library))
    scale = be_runtime.tvm_ffi_function(module.get_function("scale"), "arg[n]:float32 ret[n]:float32 attr.by:float64=2")
    other = be_runtime.tvm_ffi_function(module.get_function("scale"), "arg[n]:float32 ret[n]:float32 =0.5")
    copy = be_runtime.tvm_ffi_function(module.get_function("copy"), "arg[n]:float32 ret[n]:float32", owned=True)
    assert [each(X).tolist() for each in (scale, other, copy)] == [[0, 2, 4, 6], [0, 0.5, 1, 1.5], [0, 1, 2, 3]]
    with pytest.raises(be_runtime.RegistrationError, match="its code exists in this process alone"):
        be_runtime.export(jax.jit(scale), X)
    with pytest.raises(TypeError, match=r"must be a tvm_ffi\.Function"):
        be_runtime.tvm_ffi_function(print, "ret")


def test_a_function_of_tensor_objects_asks_for_owned(library: Path):
    """A function object states no types."""
    copy = tvm_ffi.load_module(str(library)).get_function("copy")
    function = be_runtime.tvm_ffi_function(copy, "arg[n]:float32 ret[n]:float32")
    with pytest.raises(jax.errors.JaxRuntimeError, match="the function takes Tensor objects: pass owned=True"):
        function(X).block_until_ready()


def test_functions_with_one_declaration_stay_apart():
    made = []
    for factor in (2, 3):

        def run(x: Any, y: Any, factor: int = factor) -> None:
            np.from_dlpack(y)[:] = factor * np.from_dlpack(x)

        made.append(be_runtime.tvm_ffi_function(tvm_ffi.convert(run), "arg[n]:float32 ret[n]:float32", owned=True))
    assert [each(X).tolist() for each in made] == [[0, 2, 4, 6], [0, 3, 6, 9]]


def test_an_exception_of_python_reaches_jax():
    def fail(_x: object, _y: object) -> None:
        raise ValueError("from Python")

    function = be_runtime.tvm_ffi_function(tvm_ffi.convert(fail), "arg[n]:float32 ret[n]:float32", owned=True)
    with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: from Python"):
        function(X).block_until_ready()


def test_a_package_ships_a_library(plain: Path, tmp_path: Path):
    """Once compiled while one develops, then built ahead and used without a compiler."""
    root = tmp_path / "shipped"
    root.mkdir()
    (root / "__init__.py").write_text(
        "import tvm_ffi\nfrom be_runtime import package_kernels\nops = package_kernels(__name__)\n"
    )
    (root / "libplain.so").write_bytes(plain.read_bytes())
    (root / "kernels.toml").write_text(
        '[modules.plain]\ntvm_ffi = "libplain.so"\nfunctions = { twice = "arg[n]:float32 ret[n]:float32" }\n'
    )
    call = "import jax.numpy as jnp, shipped; print(shipped.ops.twice(jnp.ones(2)).tolist())"
    assert python(tmp_path, "-c", call).stdout.strip() == "[2.0, 2.0]"
    python(tmp_path, "-m", "be_runtime", "build", "shipped")
    done = python(tmp_path, "-c", call, BE_CACHE_DIR="/proc/none", PATH="/nowhere", BE_JIT="never")
    assert done.stdout.strip() == "[2.0, 2.0]"


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('platform = "tpu"', "platform must be 'cpu' or 'cuda', not 'tpu'"),
        ('tvm_fi = "x"', "'tvm_fi' is unknown"),
    ],
)
def test_a_wrong_table_of_a_package_is_named(line: str, match: str):
    text = f'[modules.plain]\ntvm_ffi = "libplain.so"\nfunctions = {{}}\n{line}\n'
    with pytest.raises(ArgumentError, match=match):
        parse_declaration(text, "kernels.toml", lambda _path: False)


def test_leading_axes_may_be_one_axis_of_the_tensor(plain: Path):
    function = Function("layout", (Word("arg[... m n]:float32"), Word("ret[8]:int32")), merged=True)
    ops = load_source("layout", render([function], "cpu", plain.name), "cpu", {}, [(plain.name, plain.read_bytes())])
    for shape, leading in (((3, 4), 1), ((2, 3, 4), 2), ((5, 2, 3, 4), 10)):
        assert ops.layout(jnp.zeros(shape)).tolist()[:7] == [3, leading, 3, 4, 12, 4, 1]
