"""cuTile kernels, compiled and lowered without a device."""

# ruff: noqa: ANN001, N803 - cuTile finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, cutile_kernel
from be_runtime.kernels import cutile
from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError
from be_toolchain.machine.local_system import LocalSystem
from tests.support.cuda import run_json
from tests.support.kernel_calls import attributes, kernel_calls
from tests.support.requirements import OPTIONAL

ct: Any = pytest.importorskip("cuda.tile", reason=f"{OPTIONAL}cuda.tile", exc_type=ImportError)


@ct.kernel
def add(x, y, out, scale, BLOCK: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, index=(i,), shape=(BLOCK,)) + scale * ct.load(y, index=(i,), shape=(BLOCK,))
    ct.store(out, index=(i,), tile=ct.astype(tile, out.dtype))


ADD = "arg[n] arg[n] ret[n] attr.scale:float32"
X = np.zeros(4000, np.float32)


def function(kernel: Any = add, signature: str = ADD, **options: Any) -> Any:
    defaults: dict[str, Any] = {"grid": "ceil(n/BLOCK)", "BLOCK": 1024}
    return cutile_kernel(kernel, signature, **defaults | options)


def test_a_call_for_cuda_has_the_arrays_and_the_scalar_and_blocks_of_one_thread():
    call = function()
    (equation,) = kernel_calls(lambda x: call(x, x, scale=2), X)
    given = attributes(equation)
    assert given["launch"].tolist() == [4, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0]
    two = int(np.float32(2).view(np.int32))
    assert given["params"].reshape(-1, 4).tolist() == [[4, 0, 1, 32], [4, 1, 1, 32], [4, 2, 1, 32], [2, two, 0, 0]]
    text = jax.jit(lambda x: call(x, x, scale=2)).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call @be_runtime.launch(" in text
    assert f'kernel = "{given["kernel"]}"' in text


def test_a_kernel_may_begin_before_the_one_before_it_ends():
    call = function(programmatic_dependent_launch=True)
    (equation,) = kernel_calls(lambda x: call(x, x, scale=2), X)
    assert attributes(equation)["launch"].tolist()[-2:] == [2, 0]


def test_another_dtype_shape_class_constant_or_option_is_another_kernel():
    def id_of(x: Any, **options: Any) -> Any:
        (equation,) = kernel_calls(lambda x: function(**options)(x, x, scale=2), x)
        return attributes(equation)["kernel"]

    assert id_of(X) == id_of(X)
    assert id_of(X[:3984]) == id_of(X), "both have extents that are divisible by 16"
    others = id_of(X.astype(np.float16)), id_of(X[:17]), id_of(X, BLOCK=512), id_of(X, occupancy=2)
    assert len({id_of(X), *others}) == 5


def test_options_and_settings_of_the_decorator_count():
    kernels = [add, add.replace_hints(opt_level=1)]
    ids = [attributes(kernel_calls(lambda x, k=k: function(k)(x, x, scale=2), X)[0])["kernel"] for k in kernels]
    assert ids[0] != ids[1]


@ct.kernel
def wide(x: ct.IndexedWithInt64, n, m: ct.ScalarInt64, out, flag, small, half, BLOCK: ct.Constant[int] = 16):
    tile = ct.load(x, index=(0, 0), shape=(1, BLOCK)) + n + m + flag + small + half
    ct.store(out, index=(0, 0), tile=ct.astype(tile, out.dtype))


def test_each_kind_of_parameter_has_the_sizes_of_its_code():
    """`compile_cutile` compares the sizes of wide indices, axes as numbers, a default constant, and small numbers."""
    x, half = np.zeros((4, 16), np.float32), int(np.float16(1.5).view(np.uint16))
    wanted = [[4, 0, 2, 32], [2, 4, 0, 0], [2, 16, 0, 0], [4, 1, 2, 32], [2, 1, 0, 0], [2, 255, 0, 0], [2, half, 0, 0]]
    for arrays in ("arg[n m] ret[n m]", "arg[k m] =k ret[k m]"):
        call = cutile_kernel(wide, f"{arrays} attr.flag:bool attr.small:int8 attr.half:float16", grid=1)
        (equation,) = kernel_calls(lambda x, call=call: call(x, flag=True, small=-1, half=1.5), x)
        assert attributes(equation)["params"].reshape(-1, 4).tolist() == wanted


@ct.kernel
def product(a, b, c, TILE: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.full((TILE, TILE), 0, ct.float32)
    for at in range(ct.num_tiles(a, axis=1, shape=(TILE, TILE))):
        x = ct.load(a, index=(i, at), shape=(TILE, TILE))
        total = ct.mma(x, ct.load(b, index=(at, j), shape=(TILE, TILE)), total)
    ct.store(c, index=(i, j), tile=total)


def test_code_with_descriptors_has_its_parameters_in_the_newer_form():
    call = cutile_kernel(
        product,
        "arg[m k] arg[k n] ret[m n]:float32",
        grid=("ceil(m/TILE)", "ceil(n/TILE)"),
        TILE=64,
        num_ctas=1,
        compute_capability=["sm_80", "sm_90"],
    )
    half = np.zeros((128, 192), np.float16)
    (equation,) = kernel_calls(call, half, half.T)
    assert attributes(equation)["launch"].tolist() == [2, 2, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0]


@ct.kernel
def copy(x: Annotated[Any, ct.ArrayAnnotation(static_shape_dims=(-1,))], out):
    ct.store(out, index=(0,), tile=ct.load(x, index=(0,), shape=(x.shape[0],)))


def test_annotated_extents_are_constants():
    ids = []
    for size in (32, 64):
        call = cutile_kernel(copy, "arg[n] ret[n]", grid=1)
        (equation,) = kernel_calls(call, X[:size])
        ids.append(attributes(equation)["kernel"])
    assert ids[0] != ids[1]
    with pytest.raises(ArgumentError, match="copy: x has constant extents or strides, and the signature splits axes"):
        kernel_calls(cutile_kernel(copy, "arg[n] ret[n] parallel[n]", grid=1), X[:32])


def built_with(monkeypatch: pytest.MonkeyPatch, call: Any, *arrays: Any) -> dict[str, Any]:
    """The parameters that a call's kernel is compiled for."""
    seen: list[Any] = []
    build = cutile.TileKernel.build

    def noted(kernel: Any, *rest: Any, **options: Any) -> Any:
        seen.append(kernel)
        return build(kernel, *rest, **options)

    monkeypatch.setattr(cutile.TileKernel, "build", noted)
    kernel_calls(call, *arrays)
    return dict(seen[-1].parameters)


def test_a_result_in_the_memory_of_an_input_may_alias_it(monkeypatch: pytest.MonkeyPatch):
    call = function(input_output_aliases={1: 0})
    found = built_with(monkeypatch, lambda x: call(x, x + 1, scale=2), X)
    assert [found[name].alias_groups for name in ("x", "y", "out")] == [(), ("memory1",), ("memory1",)]


def test_slices_of_a_batch_may_begin_anywhere(monkeypatch: pytest.MonkeyPatch):
    batched = function(signature="arg[... n] arg[... n] ret[... n] attr.scale:float32")
    for call, size, wanted in ((batched, 301, 1), (batched, 304, 16), (function(), 301, 16)):
        found = built_with(monkeypatch, lambda x, call=call: call(x, x, scale=2), X[:size])
        assert found["x"].base_addr_divisible_by == wanted


def test_vmap_is_one_call():
    call = function(signature="arg[... n] arg[... n] ret[... n] attr.scale:float32")
    (equation,) = kernel_calls(jax.vmap(lambda x: call(x, x, scale=2)), np.stack([X, X]))
    assert [str(var.aval) for var in equation.outvars] == ["float32[2,4000]"]


def test_outs_of_leading_axes_are_whole_results():
    x = np.zeros((2, 3, 400), np.float32)
    wanted = jax.ShapeDtypeStruct(x.shape, np.float32)
    for outs in (wanted, [wanted], lambda x, y: jax.ShapeDtypeStruct(x.shape, y.dtype)):
        call = function(signature="arg[... n] arg[... n] ret[... n] attr.scale:float32", outs=outs)
        (equation,) = kernel_calls(lambda x, call=call: call(x, x, scale=2), x)
        assert [str(var.aval) for var in equation.outvars] == ["float32[2,3,400]"]
    with pytest.raises(ArgumentError, match=r"add: the leading axes of argument 0, .*, and of argument 1, "):
        jax.eval_shape(lambda x: call(np.zeros((4, 3, 400), np.float32), x, scale=2), x)
    call = function(signature="arg[... n] arg[... n] ret[... n] attr.scale:float32", outs=wanted)
    with pytest.raises(ArgumentError, match=r"argument 0, float32\[4,3,400\], and of outs\[0\], float32\[2,3,400\]"):
        jax.eval_shape(lambda x: call(x, x, scale=2), np.zeros((4, 3, 400), np.float32))


def test_a_split_call_assumes_nothing_of_a_devices_extents(monkeypatch: pytest.MonkeyPatch):
    call = function(signature="arg[n] arg[n] ret[n] attr.scale:float32 parallel[n]")
    found = built_with(monkeypatch, lambda x: call(x, x, scale=2), X)
    assert found["x"].shape_divisible_by == (1,)
    (equation,) = kernel_calls(lambda x: call(x, x, scale=2), X)
    assert dict(equation.params["call"].split.computed)["launch"][0] == "ceil(n/1024)"


PROGRAM = """
import json, sys
import cuda.tile as ct, cuda.tile.compilation
import jax, numpy as np
from be_runtime import cutile_kernel
from tests.support.kernel_calls import attributes, kernel_calls


@ct.function
def twice(tile):
    return ct.mul(tile, FACTOR)


FACTOR = 2


@ct.kernel
def double(x, out, BLOCK: ct.Constant[int]):
    ct.store(out, index=(ct.bid(0),), tile=twice(ct.load(x, index=(ct.bid(0),), shape=(BLOCK,))))


def refused(*args, **options):
    raise AssertionError("compiled again")


if sys.argv[1] == "again":
    cuda.tile.compilation.export_kernel = refused
FACTOR = int(sys.argv[2])
call = cutile_kernel(double, "arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=256)
(equation,) = kernel_calls(call, np.zeros(300, np.float32))
print(json.dumps(attributes(equation)["kernel"]))
"""


def test_a_second_process_compiles_nothing_and_a_changed_global_is_another_kernel(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    place = str(Path(ct.__file__).parents[2])
    code = f"import runpy, sys; sys.path.insert(0, {place!r}); runpy.run_path({str(program)!r})"
    first, again, other = (run_json(code, *words) for words in (("first", "2"), ("again", "2"), ("first", "3")))
    assert first == again != other


@ct.kernel
def paired(x: tuple[Any, Any], out):
    ct.store(out, index=(0,), tile=ct.load(x[0], index=(0,), shape=(16,)))


def test_what_does_not_fit_is_refused():
    for options, message in (
        ({"signature": "arg[n] ret[n] attr.scale:float32"}, "add takes x, y, out, scale, .* 3 tokens"),
        ({"signature": "arg[n] arg[n] ret[n] attr.by:float32"}, "attr.by is in the place of the parameter scale"),
        ({"signature": "arg[n] arg[n] ret[n] =1"}, "the token of scale is a constant"),
        ({"SIZE": 3}, "add has no constant SIZE; its constants are: BLOCK"),
        ({"num_ctas": 3}, "cuTile refuses the options {'num_ctas': 3}"),
        ({"num_ctas": "2"}, "cuTile refuses the options {'num_ctas': '2'}"),
        ({"kernel": len}, "must be decorated with @ct.kernel"),
        ({"kernel": paired, "signature": "arg[n] ret[n]"}, "paired has no constant BLOCK"),
    ):
        with pytest.raises(ArgumentError, match=message):
            function(**options)
    for options, message in (
        ({"num_ctas": "2"}, "num_ctas must be a whole number or a ct.ByTarget of them, not '2'"),
        ({"occupancy": 1.5}, "occupancy must be a whole number or .* not 1.5"),
        ({"num_ctas": 3}, r"cuTile refuses the options {'num_ctas': 3}: num_ctas should be power of 2"),
        ({"opt_level": ct.ByTarget(sm_90="x")}, "cuTile refuses the options .*"),
    ):
        with pytest.raises(ArgumentError, match=message):
            function(**options)
    with pytest.raises(ArgumentError, match="needs the constant BLOCK"):
        cutile_kernel(add, ADD, grid=1)
    with pytest.raises(ArgumentError, match="paired: x is a tuple or a list, which has no token"):
        cutile_kernel(paired, "arg[n] ret[n]", grid=1)
    with pytest.raises(BuildError, match="cuTile can't compile the kernel add"):
        kernel_calls(lambda x: function(BLOCK=1000)(x, x, scale=2), X)


def test_an_architecture_that_tileiras_does_not_know_is_refused_before():
    kernel = cutile.TileKernel.of(add, {})
    with pytest.raises(
        ArchError, match=r"tileiras 13[\d.]+ can't compile add for sm_75; its architectures are sm_80, "
    ):
        cutile.compile_cutile(kernel, Arch(7, 5), LocalSystem())
