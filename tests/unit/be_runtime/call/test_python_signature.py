"""The Python signature of an entry point, as `help` and `inspect` show it."""

from __future__ import annotations

import inspect

import pytest

from be_runtime.call.function import KernelFunction
from be_runtime.call.resolve import CallSignature
from be_runtime.spec.grammar import parse_spec
from be_runtime.spec.model import Role

SIBLINGS: dict[str, KernelFunction[..., object]] = {}


def function(spec: str, *names: str, doc: str = "") -> KernelFunction[..., object]:
    """A function that is never called; `names` are those of its arrays."""
    given = iter(names)
    params = (p if p.role is Role.ATTR else p._replace(name=next(given, "")) for p in parse_spec(spec.split("; ")))
    return KernelFunction(CallSignature("ops.f", tuple(params), doc), lambda: (), SIBLINGS.__getitem__)


def parameters(spec: str, *names: str) -> str:
    """The arguments but `outs`, as text."""
    found = inspect.signature(function(spec, *names)).parameters.values()
    return ", ".join(str(each).replace("'", "") for each in found if each.name != "outs")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("arg; ret", "x: ArrayLike"),
        ("arg?; arg?; ret", "x: ArrayLike | None = None, y: ArrayLike | None = None"),
        ("arg?; arg; arg?; ret", "x: ArrayLike | None, y: ArrayLike, z: ArrayLike | None = None"),
        ("arg; arg...; arg?; ret", "x: ArrayLike, y: Sequence[ArrayLike], z: ArrayLike | None = None"),
        ("ret; stream; state; scratch[4]", ""),
        ("attr.a:float16; attr.b:uint8; attr.c:complex64; ret", "a: float, b: int, c: complex"),
        ("attr.a:bool=true; attr.b:string=x; ret", "a: bool = True, b: str = x"),
        ("attr.a:float32=inf; ret", "a: float = Ellipsis"),
        ("attr.a:enum(up down)=up; ret", 'a: "Literal[up, down]" = up'),
        ("attr.a:int64[]; attr.b:dtype=float32; ret", "a: Sequence[int] | NDArray[Any], b: DTypeLike = float32"),
        ("attr.a:{n:int32}; ret", "a: dict[str, Any]"),
        ("attr.x:int32; attr.lambda:int32; arg; ret", "x_: ArrayLike, x: int, **attributes: Any"),
    ],
)
def test_arrays_and_attributes(spec: str, text: str) -> None:
    assert parameters(spec, "x", "y", "z") == text


def test_names_that_python_lacks() -> None:
    assert parameters("arg; arg; arg; arg; ret", "lambda", "", "outs", "x").replace(": ArrayLike", "") == (
        "lambda_, argument1, outs_, x"
    )


@pytest.mark.parametrize(
    ("spec", "is_required", "result"),
    [
        ("arg[n]; ret[n]", False, "Array"),
        ("arg; ret:like(0)", False, "Array"),
        ("arg; ret:float32", True, "Array"),
        ("arg; ret", True, "Array"),
        ("attr.n:int32; ret[attr.n]", True, "Array"),
        ("attr.n:int32; ret[attr.n]:float32", False, "Array"),
        ("attr.t:dtype; arg...; ret[3]:attr.t", False, "Array"),
        ("arg; ret:like(0); ret:like(0)", False, "tuple[Array, Array]"),
        ("arg; ret:like(0); ret", True, "tuple[Array, Array]"),
        ("arg[n]; ret...[n]", True, "tuple[Array, ...]"),
    ],
)
def test_outs_are_required_where_results_do_not_follow(spec: str, is_required: bool, result: str) -> None:
    kernel = function(spec)
    found = inspect.signature(kernel)
    assert (found.parameters["outs"].default is inspect.Parameter.empty) == is_required
    assert found.return_annotation == result
    described = kernel.with_options(outs=lambda *_: None)
    assert inspect.signature(described).parameters["outs"].default is None


def test_help_begins_with_the_call() -> None:
    kernel = function("arg[n]; ret[n]; attr.a:float32=1", "x", doc="Scale.\n\n    More.")
    assert kernel.__doc__ is not None
    call, *rest = kernel.__doc__.splitlines()
    assert call == (
        "f(x: ArrayLike, /, *, a: float = 1.0, outs: ShapeDtypeStruct | Callable[..., Any] | None = None) -> Array"
    )
    assert rest == ["", "Scale.", "", "    More.", "", "arg_spec: arg[n] ret[n] attr.a:float32=1.0"]


def test_a_function_lacks_other_attributes() -> None:
    assert not hasattr(function("ret"), "__wrapped__")
    assert {"signature", "targets", "options"} <= inspect.signature(KernelFunction).parameters.keys()
