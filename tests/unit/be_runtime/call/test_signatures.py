"""Signatures: of entry points as `help` and `inspect` show them, and ``signature=`` of kernels without host code."""

from __future__ import annotations

import inspect
from pathlib import Path

from be_runtime.call.function import KernelFunction
from be_runtime.call.kernel_signature import read_signature
from be_runtime.call.resolve import CallSignature
from be_runtime.dtypes import BY_NAME
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


SPECS = """
arg; ret | arg?; arg?; ret | arg?; arg; arg?; ret | arg; arg...; arg?; ret | ret; stream; state; scratch[4]
attr.a:float16; attr.b:uint8; attr.c:complex64; ret | attr.a:bool=true; attr.b:string=x; ret | attr.a:float32=inf; ret
attr.a:enum(up down)=up; ret | attr.a:int64[]; attr.b:dtype=int8; ret | attr.a:{n:int32}; ret
attr.x:int32; attr.lambda:int32; arg; ret | arg[n]; ret[n] | arg; ret:like(0) | arg; ret:float32
attr.n:int32; ret[attr.n] | attr.n:int32; ret[attr.n]:float32 | attr.t:dtype; arg...; ret[3]:attr.t
arg; ret:like(0); ret:like(0) | arg; ret:like(0); ret | arg[n]; ret...[n]
"""


def test_signatures_as_python_has_them():
    """Results that do not follow from the call make `outs` an argument that is required, until it is given."""
    given = [(spec, "x,y,z") for spec in SPECS.strip().replace("\n", " | ").split(" | ")]
    given.append(("arg; arg; arg; arg; ret", "lambda,,outs,x"))
    text = "".join(f"{spec}, {names}\n  {inspect.signature(function(spec, names))}\n" for spec, names in given)
    check_golden(GOLDEN / "python_signatures.txt", text)
    for spec, _ in given:
        described = function(spec).with_options(outs=lambda *_: None)
        assert inspect.signature(described).parameters["outs"].default is None


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
    rows += [f"{given!r}\n  {answer(read, given)}\n" for given in (3, ["arg", 3], b"arg ret", {"x": 1})]
    check_golden(GOLDEN / "kernel_signatures.txt", "".join(rows))
    assert read(["arg[n k]", "ret[ceil(n / 2)  k]:float32"]) == read("arg[n k] ret[ceil(n / 2)  k]:float32")
