"""CuTe DSL's functions, compiled, loaded and lowered without a device."""

# ruff: noqa: ANN001, N803 - CuTe DSL reads the annotations of arrays and numbers
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from be_runtime import ArgumentError, BuildError, GeneratorError, cute_kernel, export
from be_runtime.store.artifact import unpack
from tests.support.cuda import run_json
from tests.support.kernel_calls import kernel_calls
from tests.support.requirements import OPTIONAL

cutlass: Any = pytest.importorskip("cutlass", reason=f"{OPTIONAL}nvidia-cutlass-dsl", exc_type=ImportError)
from cutlass import cute  # noqa: E402


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale, BLOCK: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * BLOCK + thread
    if i < cute.size(x):
        out[i] = (x[i] + scale * y[i]).to(out.element_type)


@cute.jit
def add(
    x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32, stream, BLOCK: cutlass.Constexpr = 256
):
    grid = [cute.ceil_div(cute.size(x), BLOCK), 1, 1]
    add_kernel(x, y, out, scale, BLOCK).launch(grid=grid, block=[BLOCK, 1, 1], stream=stream)


@cute.jit
def add_alone(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32):
    add_kernel(x, y, out, scale, 32).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.jit
def wrong(x: cute.Tensor, stream):
    x.no_such_method()


SHAPES: list[str] = []


@cute.jit
def noted(x: cute.Tensor, out: cute.Tensor, stream):
    SHAPES.append(f"{x.layout} {x.iterator.alignment} {out.layout}")


ADD = "arg[n] arg[n] ret[n] attr.scale:float32"
X = jax.ShapeDtypeStruct((4000,), jnp.float32)


def function(kernel: Any = add, signature: str = ADD, **options: Any) -> Any:
    return cute_kernel(kernel, signature, **{"compute_capability": "sm_90", **options})


def target(call: Any, *arrays: Any) -> str:
    (equation,) = kernel_calls(call, *arrays)
    ((platform, name),) = equation.params["call"].targets
    assert platform == "cuda"
    return str(name)


def test_a_call_is_lowered_for_cuda():
    call = function()
    text = jax.jit(lambda x: call(x, x, scale=2)).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "be_graph_add_add" in text
    assert "scale = 2.0" in text


def test_dtypes_constants_and_architectures_make_other_libraries_and_extents_do_not():
    def of(x: Any = X, **options: Any) -> str:
        return target(lambda x: call(x, x, scale=2), x) if (call := function(**options)) else ""

    others = (
        of(jax.ShapeDtypeStruct((4000,), jnp.bfloat16)),
        *(of(BLOCK=128), of(compute_capability="sm_80"), of(divisible={"n": 8}), of(compile_options="--opt-level 1")),
        of(allow_cuda_graph=False),
    )
    assert of() == of(jax.ShapeDtypeStruct((17,), jnp.float32)) == of(BLOCK=256) == of(compute_capability="sm_90a")
    assert len({of(), *others}) == 1 + len(others)


def test_tensors_are_row_major_aligned_and_have_the_declared_axes():
    SHAPES.clear()
    call = function(noted, "arg[... n 8]:float32 ret[n]:float16")
    shape = jax.ShapeDtypeStruct((2, 3, 16, 8), jnp.float32)
    assert jax.eval_shape(call, shape) == jax.ShapeDtypeStruct((16,), jnp.float16)
    assert SHAPES == ["(?,?,8):(?{i64 div=8},8,1) 16 (?):(1)"]


def test_vmap_is_one_call():
    for signature in ("arg[... n] arg[... n] ret[... n] attr.scale:float32", f"{ADD} parallel[n]"):
        kernel = add_rows if "..." in signature else add
        call = function(kernel, signature)
        x = jax.ShapeDtypeStruct((3, 40), jnp.float32)
        run = jax.jit(jax.vmap(lambda x, call=call: call(x, x, scale=2)))
        assert run.trace(x).lower(lowering_platforms=("cuda",)).as_text().count("custom_call @be") == 1


@cute.kernel
def add_rows_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale):
    thread, _, _ = cute.arch.thread_idx()
    block, row, _ = cute.arch.block_idx()
    i = block * 128 + thread
    if i < cute.size(x, mode=[1]):
        out[row, i] = x[row, i] + scale * y[row, i]


@cute.jit
def add_rows(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32, stream):
    grid = [cute.ceil_div(cute.size(x, mode=[1]), 128), cute.size(x, mode=[0]), 1]
    add_rows_kernel(x, y, out, scale).launch(grid=grid, block=[128, 1, 1], stream=stream)


def test_a_derivative_by_another_function():
    call, backward = function(), function(add, "arg[n] arg[n] ret[n] attr.scale:float32=1")
    call.defvjp(None, lambda residuals, cotangent, scale: (cotangent, backward(cotangent, cotangent, scale=scale - 1)))
    text = jax.jit(jax.grad(lambda x, y: call(x, y, scale=3).sum(), 1)).trace(X, X)
    assert text.lower(lowering_platforms=("cuda",)).as_text().count("custom_call @be") == 1


PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
import jax, jax.numpy as jnp
import cutlass
import cutlass.cute as cute
from be_runtime import cute_kernel
from tests.support.kernel_calls import kernel_calls

FACTOR = int(sys.argv[3])


class Tile:
    size = 64

    @cute.kernel
    def run(self, x: cute.Tensor, out: cute.Tensor):
        i = self.size * cute.arch.block_idx()[0] + cute.arch.thread_idx()[0]
        if i < cute.size(x):
            out[i] = FACTOR * x[i]


@cute.jit
def scale(x: cute.Tensor, out: cute.Tensor, stream):
    Tile().run(x, out).launch(grid=[cute.ceil_div(cute.size(x), Tile.size), 1, 1], block=[64, 1, 1], stream=stream)


def refused(*args, **options):
    raise AssertionError("compiled again")


if sys.argv[1] == "again":
    cute.compile = refused
call = cute_kernel(scale, "arg[n] ret[n]", compute_capability="sm_90")
found = []
for dtype in ("float32", "int32"):
    (equation,) = kernel_calls(call, jax.ShapeDtypeStruct((300,), dtype))
    found.append(equation.params["call"].targets[0][1])
print(json.dumps(found))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code = f"import runpy; runpy.run_path({str(program)!r})"
    first, again = (run_json(code, word, json.dumps(sys.path), "3") for word in ("first", "again"))
    assert first == again
    elsewhere = run_json(code, "first", json.dumps(sys.path), "3", BE_CACHE_DIR=str(tmp_path / "cache"))
    assert first == elsewhere, "the program is the same on another host"
    other = run_json(code, "first", json.dumps(sys.path), "4")
    assert not {*first} & {*other}, "a global name that a method reads is part of the function"


def test_an_exported_program_has_the_code_of_one_architecture(tmp_path: Path):
    program, shape = jax.jit(lambda x: function()(x, x, scale=2.0)), jax.ShapeDtypeStruct((4,), jnp.float32)
    path = export(program, shape, platforms="cuda", archs="9.0").save(tmp_path / "p.be")
    images = unpack(path.read_bytes(), "p.be").table.images.values()
    assert [image.archs for image in images if image.kind == "library"] == [("9.0a",)]
    with pytest.raises(GeneratorError, match=r"code for 9\.0a alone, and not for 8\.0"):
        export(program, shape, platforms="cuda", archs="8.0,9.0")


def test_what_does_not_fit_is_refused():
    for options, message in (
        ({"signature": "arg[n] ret[n] attr.scale:float32"}, "add takes x, y, out, scale, .* 3 tokens"),
        ({"signature": "arg[n] arg[n] ret[n] attr.by:float32"}, "attr.by is in the place of the parameter scale"),
        ({"signature": "arg arg[n] ret[n] attr.scale:float32"}, "x needs axes"),
        ({"signature": "arg[n] scratch[4] ret[n] attr.scale:float32"}, r"can't take 'scratch\[4\]' for y"),
        ({"SIZE": 3}, "add has no parameter SIZE; its constants are: BLOCK"),
        ({"divisible": {"m": 8}}, "'m': 8} is not a positive number for one of the axes n"),
        ({"kernel": len}, "must be decorated with @cute.jit"),
        ({"kernel": add_kernel}, "(?s)must be decorated with @cute.jit.*launches the kernel"),
        ({"kernel": add_alone}, "(?s)has 0 streams, not 1.*stream=stream"),
    ):
        with pytest.raises(ArgumentError, match=message):
            function(**options)


def test_errors_of_a_call():
    words = r"(?s)CuTe DSL can't compile wrong for sm_90a.*no_such_method.*test_cute_kernel\.py\", line"
    with pytest.raises(BuildError, match=words):
        jax.eval_shape(function(wrong, "inout[n]"), X)
    for options, message in (
        ({"compute_capability": ["sm_80", "sm_90"]}, "compiled for sm_80, sm_90, and CuTe DSL makes code for one"),
        ({"divisible": {"n": 3}}, "n is 4000, which is not a multiple of 3"),
        ({"signature": "arg[n] arg[n] ret[n]:complex64 attr.scale:float32"}, "no type for out, which is complex64"),
    ):
        call = function(**options)
        with pytest.raises(ArgumentError, match=message):
            jax.eval_shape(lambda x, call=call: call(x, x, scale=2), X)


def test_a_function_that_cannot_be_told_from_another_is_refused():
    with pytest.raises(ArgumentError, match=r"uses <unlocked _thread.lock .*, whose content can't be read"):
        function(opaque, "inout[n]")


LOCK = threading.Lock()


@cute.jit
def opaque(x: cute.Tensor, stream):
    LOCK.acquire()
