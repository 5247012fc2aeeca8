"""Triton kernels, compiled and lowered without a device."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, SpecError, export, triton_kernel
from be_runtime.kernels.geometry import descriptor_param
from be_runtime.kernels.launcher import archs_of
from be_runtime.store import artifact
from tests.support.cuda import run_json
from tests.support.kernel_calls import attributes, kernel_calls
from tests.support.requirements import OPTIONAL

triton: Any = pytest.importorskip("triton", reason=f"{OPTIONAL}triton", exc_type=ImportError)
import triton.language as tl  # noqa: E402

from tests.support.triton_kernels import add, described  # noqa: E402


@triton.jit
def product(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A matrix product with tensor descriptors that the caller makes."""
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        total = tl.dot(a.load([i, at]), b.load([at, j]), total)
    c.store([i, j], total)


BLOCKS = {"a": ("BM", "BK"), "b": ("BK", "BN"), "c": (64, 64)}
HALF = np.zeros((256, 128), np.float16)
ADD = "arg[n] arg[n] ret[n] attr.scale:float32"
X = np.zeros(4000, np.float32)


@pytest.fixture(autouse=True)
def _fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # else Triton 3.9 warns


def function(kernel: Any = add, signature: str = ADD, **options: Any) -> Any:
    defaults: dict[str, Any] = {"grid": "ceil(n/BLOCK)", "BLOCK": 1024}
    return triton_kernel(kernel, signature, **defaults | options)


def test_a_call_for_cuda_has_the_arrays_the_axis_the_scalar_and_two_null_pointers():
    call = function()
    (equation,) = kernel_calls(lambda x: call(x, x, scale=2), X)
    given = attributes(equation)
    assert given["launch"].tolist() == [4, 1, 1, 128, 1, 1, 0, 1, 1, 1, 0, 0]
    two = int(np.float32(2).view(np.int32))
    wanted = [[0, 0], [0, 1], [0, 2], [2, 4000], [2, two], [2, 0], [2, 0]]
    assert given["params"].reshape(-1, 4)[:, :2].tolist() == wanted
    text = jax.jit(lambda x: call(x, x, scale=2)).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call @be_runtime.launch(" in text
    assert f'kernel = "{given["kernel"]}"' in text


def test_another_dtype_or_constant_is_another_kernel():
    def id_of(x: Any, **options: Any) -> Any:
        (equation,) = kernel_calls(lambda x: function(**options)(x, x, scale=2), x)
        return attributes(equation)["kernel"]

    assert id_of(X) == id_of(X)
    assert len({id_of(X), id_of(X.astype(np.float16)), id_of(X, BLOCK=512), id_of(X[:17]), id_of(X, num_warps=8)}) == 5


SHIFTS = ModuleType("shifts")


@triton.jit
def shifted(x):
    return x + SHIFTS.BY


@triton.jit
def shift(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, shifted(tl.load(x + i, i < n)), i < n)


def test_another_value_of_a_modules_attribute_is_another_kernel():
    def id_of(by: int) -> Any:
        vars(SHIFTS)["BY"] = tl.constexpr(by)
        (equation,) = kernel_calls(function(shift, "arg[n] ret[n]"), X)
        return attributes(equation)["kernel"]

    assert id_of(1) == id_of(1) != id_of(2)


def test_memory_that_triton_wants_is_from_xla():
    call = function(described, "arg[n]:float32 ret[n]", BLOCK=128)
    x = np.zeros(512, np.float32)
    (equation,) = kernel_calls(call, x)
    assert [str(var.aval) for var in equation.outvars] == ["float32[512]", "uint8[512]"]
    assert attributes(equation)["params"].reshape(-1, 4)[3].tolist() == [0, 2, 1, 8]


@pytest.mark.parametrize(
    ("asked", "archs"), [("8.0,9.0", ("8.0", "8.0+PTX", "9.0a")), ("9.0", ("9.0a",)), (None, ("9.0a",))]
)
def test_an_exported_program_has_the_architectures_that_are_asked_for(tmp_path: Path, asked: Any, archs: Any):
    call = function()
    made = export(jax.jit(lambda x: call(x, x, scale=2)), X, platforms=["cuda"], archs=asked)
    path = made.save(tmp_path / "program.be")
    (row,) = artifact.unpack(path.read_bytes(), str(path)).table.kernels.values()
    assert archs_of(row) == archs


def test_vmap_is_one_call():
    call = function(signature="arg[... n] arg[... n] ret[... n] attr.scale:float32")
    (equation,) = kernel_calls(jax.vmap(lambda x: call(x, x, scale=2)), np.stack([X, X]))
    assert [str(var.aval) for var in equation.outvars] == ["float32[2,4000]"]


def product_of(**options: Any) -> Any:
    defaults: dict[str, Any] = {
        "grid": ("ceil(m/BM)", "ceil(n/BN)"),
        "block_shapes": BLOCKS,
        "BM": 64,
        "BN": 64,
        "BK": 32,
    }
    signature = options.pop("signature", "arg[m k] arg[k n] ret[m n]:float32")
    return triton_kernel(product, signature, **{"compute_capability": "sm_90", **defaults, **options})


def test_descriptors_have_boxes_and_types_of_the_compiled_code():
    (equation,) = kernel_calls(product_of(), HALF, HALF.T)
    found = attributes(equation)["params"].reshape(-1, 4).tolist()
    # Of 128 bytes at most in a row, which are swizzled: 32 halves of 64 bytes, 64 of 128, 32 floats of 128
    boxes = [((64, 32), 16, 2, 6), ((32, 64), 16, 3, 6), ((64, 32), 32, 3, 7)]
    assert found[:3] == [list(descriptor_param(at, *each)) for at, each in enumerate(boxes)]
    assert found[3:] == [[2, 128, 0, 0], [2, 0, 0, 0], [2, 0, 0, 0]]


def test_descriptors_that_can_not_be_made_are_refused():
    for options, message in (
        ({"block_shapes": {"k": (1,)}}, "product: block_shapes has 'k'; the arrays are a, b, c"),
        ({"block_shapes": {"a": ("BX", 32)}}, r"block_shapes has \('BX', 32\) for a"),
        ({"block_shapes": {"a": ()}}, r"block_shapes has \(\) for a"),
    ):
        with pytest.raises(ArgumentError, match=message):
            product_of(**options)
    for blocks, b, message in (
        (BLOCKS | {"b": (32,)}, HALF.T, r"b is float16\[128,256\], and its block shape has 1 axis"),
        (BLOCKS, np.zeros((128, 12), np.float16), "b is .* but TMA needs rows of a multiple of 16 bytes"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernel_calls(product_of(block_shapes=blocks), HALF, b)
    copy = triton_kernel(copied, "arg[... n] ret[... n]", grid=1, block_shapes={"x": (16,)}, compute_capability="sm_90")
    with pytest.raises(ArgumentError, match=r"(?s)slices of a batch would not begin at .*vmap_method='sequential'"):
        kernel_calls(copy, X[:17])
    with pytest.raises(BuildError, match=r"takes descriptors \(a, b, c\), which need compute capability 9.0 or later"):
        kernel_calls(product_of(compute_capability="sm_80"), HALF, HALF.T)


@triton.jit
def copied(x, out):
    tl.store(out + tl.arange(0, 16), x.load([0]))


def test_a_kernel_may_begin_before_the_one_before_it_ends():
    (equation,) = kernel_calls(lambda x: function(launch_pdl=True)(x, x, scale=2), X)
    assert attributes(equation)["launch"].tolist() == [4, 1, 1, 128, 1, 1, 0, 1, 1, 1, 2, 0]


def test_slices_of_a_batch_may_begin_anywhere():
    ids = []
    for signature in (ADD, ADD.replace("[n]", "[... n]")):
        call = function(signature=signature)
        (equation,) = kernel_calls(lambda x, call=call: call(x, x, scale=2), X[:301])
        ids.append(attributes(equation)["kernel"])
    assert ids[0] != ids[1], "one may read whole words at once"


@triton.jit
def scalars(out, a, b, c, d, e, f, g):
    tl.store(out, a + b + c + d + e + f + g)


def test_leading_axes_of_a_call_are_a_batch():
    call = function(signature="arg[... n] arg[... n] ret[... n] attr.scale:float32")
    x = np.zeros((2, 3, 4000), np.float32)
    (direct,) = kernel_calls(lambda x: call(x, x, scale=2), x)
    (mapped,) = kernel_calls(jax.vmap(jax.vmap(lambda x: call(x, x, scale=2))), x)
    assert [str(var.aval) for var in direct.outvars] == ["float32[2,3,4000]"]
    assert direct.params == mapped.params
    (listed,) = kernel_calls(lambda: call([[1.0] * 300] * 2, [[1.0] * 300] * 2, scale=2))
    assert [str(var.aval) for var in listed.outvars] == ["float32[2,300]"]
    assert attributes(listed)["launch"][0] == 1, "a launch for each row"
    one = function(signature="arg[... n] arg[... n] ret[n]:float32 attr.scale:float32")
    with pytest.raises(ArgumentError, match="a result is declared without"):
        jax.eval_shape(lambda x: one(x, x, scale=2), x)
    with pytest.raises(ArgumentError, match="argument 1"):
        jax.eval_shape(lambda x: call(x, x[0], scale=2), x)


def test_numbers_have_the_sizes_of_their_types():
    numbers = "attr.a:bool attr.b:int8 attr.c:uint16 attr.d:int64 attr.e:float16 attr.f:float32 attr.g:float64"
    call = triton_kernel(scalars, f"ret[1]:float32 {numbers}", grid=1)
    (equation,) = kernel_calls(lambda: call(a=True, b=-1, c=2, d=-(2**40), e=1.5, f=2.5, g=3.5))
    found = attributes(equation)["params"].reshape(-1, 4)[1:8, 1].tolist()
    bits = [int(np.array(x, t).view(v)) for x, t, v in ((1.5, "f2", "u2"), (2.5, "f4", "u4"), (3.5, "f8", "u8"))]
    assert found == [1, 255, 2, -(2**40), *bits]


def test_axes_of_a_split_call_are_those_of_a_device():
    call = function(signature="arg[n] arg[n] ret[n] attr.scale:float32 parallel[n]")
    (equation,) = kernel_calls(lambda x: call(x, x, scale=2), X)
    computed = dict(equation.params["call"].split.computed)
    assert computed["launch"][0] == "1*(ceil(n/1024))"
    assert computed["params"][13] == "n"


PROGRAM = """
import json, sys
import jax, numpy as np, triton
import triton.language as tl
from be_runtime import triton_kernel
from tests.support.kernel_calls import attributes, kernel_calls


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def refused(*args, **options):
    raise AssertionError("compiled again")


if sys.argv[1] == "again":
    triton.compile = refused
call = triton_kernel(double, "arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=256)
(equation,) = kernel_calls(call, np.zeros(300, np.float32))
print(json.dumps([attributes(equation)["kernel"], attributes(equation)["launch"].tolist()]))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    place = str(Path(triton.__file__).parents[1])
    code = f"import runpy, sys; sys.path.append({place!r}); runpy.run_path({str(program)!r})"
    answers = [run_json(code, word) for word in ("first", "again")]
    assert answers[0] == answers[1]


@triton.jit
def apply(x, out, F: tl.constexpr, BLOCK: tl.constexpr = 64):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, F[0](tl.load(x + i)))


@triton.jit
def once(x):
    return x


@triton.jit
def twice(x):
    return x + x


def test_defaults_and_functions_among_constants_are_part_of_a_kernel(monkeypatch: pytest.MonkeyPatch):
    def id_of(**constants: Any) -> Any:
        call = triton_kernel(apply, "arg[n] ret[n]:float32", grid="ceil(n/BLOCK)", **constants)
        (equation,) = kernel_calls(call, X[:64])
        return attributes(equation)["kernel"]

    ids = [id_of(F=(once,)), id_of(F=(twice,)), id_of(F=(twice,), BLOCK=128), id_of(F=(twice,), BLOCK=64)]
    assert len({*ids}) == 3
    assert ids[1] == ids[3], "a default that is written out is no other constant"
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    assert id_of(F=(once,)) not in ids


@triton.jit
def linear(x, w, bias, out, m, stride_xm, stride_xk, stride_w, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr = 16):
    i, k = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + i * stride_xm + k * stride_xk) * tl.load(w + k * stride_w))
    if bias is not None:
        total += tl.load(bias + i)
    tl.store(out + i, total, mask=i < m)


def test_pointers_may_be_none_and_strides_are_axes_or_numbers():
    call = triton_kernel(linear, "arg[m k] arg[k 2] none ret[m] =k =1 =2 parallel[m]", grid="m", HAS_BIAS=False)
    x, w = np.zeros((8, 16), np.float32), np.zeros((16, 2), np.float32)
    (equation,) = kernel_calls(call, x, w)
    found = attributes(equation)["params"].reshape(-1, 4)[:, :2].tolist()
    assert found == [[0, 0], [0, 1], [0, 2], [2, 8], [2, 16], [2, 0], [2, 0]], "neither the pointer nor the numbers"
    computed = dict(equation.params["call"].split.computed)
    assert (computed["params"][13], computed["params"][17]) == ("m", "k")
    biased = triton_kernel(linear, "arg[m k] arg[k 2] arg[m] ret[m] =k =1 =2", grid="m", HAS_BIAS=True)
    (equation,) = kernel_calls(biased, x, w, x[:, 0])
    assert len(attributes(equation)["params"]) == 4 * 8
    for signature, message in (
        ("arg[m k] arg[k 2] none ret[m] =j =1 =2", "(?s)'=j' is not a constant.*an axis of an input: m, k"),
        ("arg[m k] arg[k 2] none ret[m] =k =1.5 =2", "'=1.5' is not a constant"),
        ("arg[m k] arg[k 2] none ret[m] =k =1", "beside the axes m, but the signature has 6 tokens for them: .* none"),
        ("arg[m k] arg[k 2] arg?[m] ret[m] =k =1 =2", "is optional; declare .* which in Triton has the token none"),
    ):
        with pytest.raises((ArgumentError, SpecError), match=message):
            triton_kernel(linear, signature, grid="m", HAS_BIAS=False)


FACTOR = tl.constexpr(2)


@triton.jit
def scaled(x, out):
    tl.store(out, tl.load(x) * FACTOR)


def test_a_global_constant_does_not_change(monkeypatch: pytest.MonkeyPatch):
    call = triton_kernel(scaled, "arg[1] ret[1]", grid=1)
    kernel_calls(call, X[:1])
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3))
    with pytest.raises(
        ArgumentError, match=r"(?s)scaled: the global variable FACTOR has changed from .*2.* to .*3.*define"
    ):
        kernel_calls(call, X[:1].astype(np.float16))


def test_a_grid_names_whole_constants_and_axes():
    call = function(apply, "arg[n] ret[n]:float32", F=(once,), BLOCK=tl.constexpr(32))
    (equation,) = kernel_calls(call, X[:64])
    assert attributes(equation)["launch"][0] == 2
    for grid, message in (
        ("ceil(n/F)", r"grid='ceil\(n/F\)' names the constant F, which is \(.*\) and no whole number"),
        (lambda meta: (meta["BLOCK"],), "(?s)apply: grid is a function of meta, as in Triton.*grid='ceil"),
    ):
        with pytest.raises(ArgumentError, match=message):
            triton_kernel(apply, "arg[n] ret[n]:float32", grid=grid, F=(once,))


def test_a_traced_attribute_is_advised_to_be_a_pointer():
    with pytest.raises(
        ArgumentError, match=r"(?s)attribute, which is compiled into .*a pointer to the number: arg\[\]"
    ):
        kernel_calls(lambda scale: function()(X, X, scale=scale), np.float32(1))


def test_a_descriptor_holds_extents_and_strides_of_its_form():
    copy = triton_kernel(copied, "arg[n] ret[n]", grid=1, block_shapes={"x": (16,)}, compute_capability="sm_90")
    with pytest.raises(ArgumentError, match=r"extents below 2\*\*31 and strides below"):
        kernel_calls(copy, jax.ShapeDtypeStruct((2**31,), np.int8))


def test_what_does_not_fit_is_refused():
    refused: list[tuple[dict[str, Any], str]] = [
        (
            {"signature": "arg[n] ret[n] attr.scale:float32"},
            "add takes x, y, out, scale beside the axes n, .* 3 tok",
        ),
        ({"signature": "arg[n] arg[n] ret[n] attr.by:float32"}, "attr.by is in the place of the parameter scale"),
        ({"SIZE": 3}, "add has no constant SIZE; its constants are: BLOCK"),
        ({"kernel": len}, "must be decorated with @triton.jit"),
        *(
            ({name: value}, f"add: {name}={value!r} is not allowed")
            for name, value in (
                *(("num_warps", True), ("num_warps", 64), ("num_warps", 3), ("num_warps", 4.0)),
                *(("num_stages", -1), ("num_ctas", 0), ("maxnreg", 0)),
            )
        ),
        *(({"block_shapes": each}, "add: block_shapes is ") for each in ({"x": 64}, {"x": "BLOCK"}, [64])),
    ]
    for options, message in refused:
        with pytest.raises(ArgumentError, match=message):
            function(**options)
    with pytest.raises(ArgumentError, match="needs the constant BLOCK"):
        triton_kernel(add, ADD, grid=1)
