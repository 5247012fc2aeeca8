"""Signatures: of entry points as `help` and `inspect` show them, and ``signature=`` of kernels without host code."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from be_runtime.call.function import KernelFunction
from be_runtime.call.kernel_signature import read_signature
from be_runtime.call.resolve import CallSignature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.spec.grammar import parse_spec, render_spec
from be_runtime.spec.model import Param, Role
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

GOLDEN = Path(__file__).parent / "golden"
SIBLINGS: dict[str, KernelFunction[..., object]] = {}


def function(spec: str, names: str = "", doc: str = "") -> KernelFunction[..., object]:
    """A function that is never called; `names` are those of its arrays."""
    given = iter(names.split(","))
    params = (p if p.role is Role.ATTR else p._replace(name=next(given, "")) for p in parse_spec(spec.split("; ")))
    return KernelFunction(CallSignature("ops.f", tuple(params), doc), lambda: (), SIBLINGS.__getitem__)


@pytest.mark.parametrize(
    ("spec", "names", "text"),
    [
        ("arg; ret", "x", "x: ArrayLike"),
        ("arg?; arg?; ret", "x,y", "x: ArrayLike | None = None, y: ArrayLike | None = None"),
        ("arg?; arg; arg?; ret", "x,y,z", "x: ArrayLike | None, y: ArrayLike, z: ArrayLike | None = None"),
        ("arg; arg...; arg?; ret", "x,y,z", "x: ArrayLike, y: Sequence[ArrayLike], z: ArrayLike | None = None"),
        ("ret; stream; state; scratch[4]", "x", ""),
        ("attr.a:float16; attr.b:uint8; attr.c:complex64; ret", "", "a: float, b: int, c: complex"),
        ("attr.a:bool=true; attr.b:string=x; ret", "", "a: bool = True, b: str = x"),
        ("attr.a:float32=inf; ret", "", "a: float = Ellipsis"),
        ("attr.a:enum(up down)=up; ret", "", 'a: "Literal[up, down]" = up'),
        ("attr.a:int64[]; attr.b:dtype=int8; ret", "", "a: Sequence[int] | NDArray[Any], b: DTypeLike = int8"),
        ("attr.a:{n:int32}; ret", "", "a: dict[str, Any]"),
        ("attr.x:int32; attr.lambda:int32; arg; ret", "x", "x_: ArrayLike, x: int, **attributes: Any"),
        ("arg; arg; arg; ret", "lambda,,outs,x", "lambda_: ArrayLike, argument1: ArrayLike, outs_: ArrayLike"),
    ],
)
def test_arrays_and_attributes_as_python_names_them(spec: str, names: str, text: str) -> None:
    found = inspect.signature(function(spec, names)).parameters.values()
    assert ", ".join(str(each).replace("'", "") for each in found if each.name != "outs") == text


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
    assert inspect.signature(kernel.with_options(outs=lambda *_: None)).parameters["outs"].default is None


def test_help_begins_with_the_call() -> None:
    kernel = function("arg[n]; ret[n]; attr.a:float32=1", "x", doc="Scale.\n\n    More.")
    call = "f(x: ArrayLike, /, *, a: float = 1.0, outs: ShapeDtypeStruct | Callable[..., Any] | None = None) -> Array"
    assert kernel.__doc__ == f"{call}\n\nScale.\n\n    More.\n\narg_spec: arg[n] ret[n] attr.a:float32=1.0"
    assert not hasattr(kernel, "__wrapped__")
    assert {"signature", "targets", "options"} <= inspect.signature(KernelFunction).parameters.keys()


TYPES = {"n": "int32", "by": "float32"}
SCALARS = tuple(Param(role=Role.ATTR, name=name, dtype=BY_NAME[kind]) for name, kind in TYPES.items())
TEXTS = """
arg ret | arg ret[attr.n] attr.by=2 | arg ret scratch[4*attr.n] | arg[n k] ret[ceil(n / 2)  k]:float32
arg ret stream | arg ret state | arg... ret | arg? ret | arg ret scratch | ret arg | arg scratch[4] ret
arg ret attr.m | arg ret attr.n:int64 | arg ret attr.n:string | arg ret attr.n=1.5 | arg ret[attr.by]
arg[n] ret[m] | arg[n | arg
"""


def read(text: object, scalars: tuple[Param, ...] = SCALARS) -> str:
    signature = read_signature("f", text, ("x", "y"), scalars)
    assert signature is not None
    names = ", ".join(param.name or "-" for param in signature.params)
    return f"{' '.join(render_spec(signature.params))} of {names}"


def test_what_a_kernel_without_host_code_takes_and_what_it_can_not_have():
    """Its scalars are those of the source, and numba's kernels have none."""
    texts = [text.strip() for text in TEXTS.strip().replace("\n", "|").split("|")]
    rows = [f"{text}\n  {answer(read, text)}\n" for text in texts]
    rows += [
        f"{text}, without scalars\n  {answer(read, text, scalars=())}\n" for text in (*texts[3:4], "arg ret attr.n")
    ]
    check_golden(GOLDEN / "kernel_signatures.txt", "".join(rows))
    assert read(["arg[n k]", "ret[ceil(n / 2)  k]:float32"]) == read("arg[n k] ret[ceil(n / 2)  k]:float32")


@pytest.mark.parametrize("given", [3, ["arg", 3], b"arg ret", {"x": 1}])
def test_a_signature_is_text(given: object):
    with pytest.raises(ArgumentError, match="signature must be a text or a list of tokens"):
        read(given)
