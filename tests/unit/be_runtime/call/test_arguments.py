"""Calls: values as attributes, arrays against their declaration, the results, and signatures."""

from __future__ import annotations

import enum
import inspect
import math
import struct
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from be_runtime.call.attributes import convert_attributes
from be_runtime.call.compiled_function import CompiledFunction, Converted
from be_runtime.call.extents import bind
from be_runtime.call.function import KernelFunction
from be_runtime.call.resolve import CallSignature, resolve
from be_runtime.call.signature import read_signature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec, Fields, Numbers, Value, as_jax
from be_runtime.signature.cpp.lexer import split_words
from be_runtime.signature.grammar import parse_spec, render_spec
from be_runtime.signature.model import Param, Role
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden

GOLDEN = Path(__file__).parent / "golden"


def convert(kind: str, value: object) -> Value:
    """The attribute ``a`` of a type."""
    params = [param for param in parse_spec([f"attr.a:{kind}", "ret"]) if param.name == "a"]
    ((name, converted),) = convert_attributes("f", params, {"a": value})
    assert name == "a"
    return converted


class Mode(enum.Enum):
    fast = 7
    slow = 8


class Text(str, enum.Enum):  # noqa: UP042 - its text is another than its value
    fast = "slow"


VALUES: list[tuple[str, list[Any]]] = [
    ("int8", [-128, 128]),
    ("uint8", [-1]),
    ("int32", [3.0, True, 1.5]),
    ("int64", [2**63 - 1, 2**63]),
    ("uint64", [2**64 - 1, 2**64]),
    ("bool", [1, 2]),
    ("float32", [0.1, math.inf, Fraction(1, 2), 1e39, 1j, "1", None, [1.0]]),
    ("float64", [1, np.array(1.5)]),
    *((kind, [0.1]) for kind in ("float16", "bfloat16")),
    ("complex64", [1 + 2j]),
    ("int32[]", [(1, 2, 3), [], [1, 2.5]]),
    ("int8[]", [[300], [[1], [2, 3]]]),
    ("float32[]", [np.array([[1.5, 2], [3, 4]])]),
    ("string", ["sum", Text.fast, 3, "a\0b", "\udc80"]),
    ("enum(fast slow)", ["slow", Mode.fast, Text.fast, "quick", np.array(["fast", "slow"]), np.array(["fast"])]),
    ("dtype", ["float32", np.float64, "float31", None, (np.int32, -1)]),
    ("{lr:float32}", [3, {"lr": "x"}, {"lr": 1, 2: 3}, {}, {"rl": 1, "lr": 2}]),
]


def shown(kind: str, value: object) -> str:
    """What JAX gets: its type, that of its numbers, and those."""
    found = as_jax(convert(kind, value))
    numbers = f"{found.dtype} {found.tolist()}" if hasattr(found, "dtype") else repr(found)
    return f"{type(found).__name__.rstrip('_')} {numbers}"


def test_values_of_each_type_or_why_not():
    rows = (f"{kind} <- {value!a}\n  {answer(shown, kind, value)}\n" for kind, values in VALUES for value in values)
    check_golden(GOLDEN / "attributes.txt", "".join(rows).encode("ascii", "backslashreplace").decode())


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("given", [np.int64, np.uint64, np.int8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("values", [[1, 0, 2], [-1, 3], [200, 127], [math.nan, math.inf, -0.0], [0.1, 1e-40], [1e39]])
def test_an_array_is_converted_as_its_numbers_one_by_one(kind: str, given: type, values: list[float]) -> None:
    with np.errstate(all="ignore"):
        array: np.ndarray[Any, Any] = np.array(values).astype(given)
    try:
        one_by_one = [as_jax(convert(kind, each)) for each in array]
    except ArgumentError:
        with pytest.raises(ArgumentError, match="not an array of"):
            convert(f"{kind}[]", array)
    else:
        assert as_jax(convert(f"{kind}[]", array)).tobytes() == b"".join(each.tobytes() for each in one_by_one)


def test_numbers_are_their_bits_and_fields_with_a_default_stay_with_the_kernel() -> None:
    assert convert("float32", 0.0) != convert("float32", -0.0)
    assert convert("int32", 3) == convert("int32", np.int64(3))
    assert convert("float32", 1) == convert("float32", np.float64(1))
    assert convert("float32", math.nan) == convert("float32", math.nan)
    fields = convert("{lr:float32 n:int8=3 mode:enum(a b)=a}", {"lr": 0.5})
    assert fields == Fields((("lr", Numbers("float32", struct.pack("<f", 0.5))),))
    assert as_jax(fields) == {"lr": np.float32(0.5)}


class Array:
    """An array without elements, such as ``f32[3,4]``."""

    def __init__(self, text: str) -> None:
        kind, _, extents = text.rstrip("]").partition("[")
        self.dtype = {"f32": "float32", "f64": "float64", "i32": "int32", "f16": "float16"}[kind]
        self.shape = tuple(map(int, extents.split(","))) if extents else ()


def call(spec: str, arrays: str, outs: object = None, **attributes: object) -> str:
    """The results of a call, scratch memory included."""
    signature = CallSignature("f", parse_spec([word for _, word in split_words(spec)]))
    given = [None if each == "None" else Array(each) for each in arrays.split()]
    found = resolve(signature, given, outs, attributes, as_array=lambda value: value, aliases={})
    return " ".join(map(str, found.results))


CALLS: list[tuple[str, str]] = [
    ("arg[n k] arg[k] ret[n]:like(0)", "f32[3,4] f64[4]"),
    ("arg[n k] arg[k] ret[n]", "f32[3,4] f32[4] | f32[3,4] f32[5]"),
    ("arg ret:like(0)", "i32[5,6]"),
    ("arg[n] ret[n]", "f32[3,4] | None | f32[3] f32[3]"),
    ("arg[n 3] ret[n]", "f32[3,4]"),
    ("arg[n]:float32 ret[n]", "f64[3]"),
    ("arg[n] ret[n//2 n%2]", "f32[5]"),
    ("arg[n] ret[n/2]", "f32[6] | f32[5]"),
    ("arg[n] ret[n-4]", "f32[3]"),
    ("arg[n] ret[8//n]", "f32[0]"),
    ("arg[n] ret[2*n+1] ret[ceil(n/4)]:int32", "f32[5]"),
    ("arg[n] ret[max(n,8) min(n,2) (n-1)*3]", "f32[5]"),
    ("arg[n m] arg[n+1] ret[m]:like(0)", "f32[5,3] i32[6] | f32[5,3] i32[5]"),
    ("arg[... n] arg[... n] ret[... 2*n]", "f32[7,8,3] f32[7,8,3] | f32[7,3] f32[8,3]"),
    ("arg[] ret[3]:float64", "f32[]"),
    ("arg[0] ret[0]", "f32[0]"),
    ("arg[n] arg?[n] ret[n]:like(0)", "f32[3] None | f32[3] | f32[3] f32[3] f32[3]"),
    ("arg[n] arg[n] ret[n]", "f32[3] | f32[3] f64[3]"),
    ("arg[n] ret[n] scratch", "f32[3]"),
    ("arg[n] ret[n] scratch[4+n]", "f32[3] | f32[0]"),
    *(
        (f"arg[n] ret[n] scratch[{size}]", "f32[3]")
        for size in ("n*4", "-1", "4*n-100", f"n*{2**63 - 1}", f"n*{2**48}")
    ),
    ("arg... ret[3]", "f32[3]"),
    ("arg ret", "f32[3]"),
]
OUTS: list[tuple[str, Any]] = [
    ("arg ret", Array("f32[2]")),
    ("arg ret ret", [Array("f32[2]"), Array("i32[]")]),
    ("arg ret...", [Array("f32[2]"), Array("i32[]")]),
    ("arg ret", lambda x: Array(f"f32[{x.shape[0] + 4}]")),
    ("arg ret ret", [Array("f32[2]")]),
    ("arg[n] ret[n]", Array("f32[2]")),
    ("arg ret:int32", Array("f32[2]")),
    ("arg ret:like(0)", Array("i32[3]")),
    ("arg ret", []),
    ("arg ret", "x"),
]


def test_results_follow_from_the_inputs_or_the_error_says_where():
    rows = [
        f"{spec} <- {arrays}\n" + "".join(f"  {answer(call, spec, each)}\n" for each in arrays.split("|"))
        for spec, arrays in CALLS
    ]
    rows += [f"{spec} with described results\n  {answer(call, spec, 'f32[3]', outs)}\n" for spec, outs in OUTS]
    spec = "arg ret[attr.bins 2*attr.bins]:attr.type attr.bins:int32=10 attr.type:dtype"
    rows += [
        f"{spec}\n  {answer(call, spec, 'f32[9]', **given)}\n"
        for given in ({"type": "float16"}, {"bins": 4, "type": "int8"})
    ]
    check_golden(GOLDEN / "calls.txt", "".join(rows))


def test_presence_of_optional_arrays_is_an_attribute() -> None:
    signature = CallSignature("f", parse_spec(["arg?", "arg", "arg?", "ret:like(0)"]))
    x = Array("f32[3]")
    found = resolve(signature, [None, x, x], None, {}, as_array=lambda value: value, aliases={})
    ((name, mask),) = found.attributes
    assert (name, as_jax(mask)) == ("be_present", 0b10)
    assert found.operands == [x, x]
    assert resolve(signature, [x, x, x], None, {}, as_array=lambda value: value, aliases={}).attributes == ()


def test_extents_stay_what_they_are() -> None:
    """Binding a call leaves the values of another one alone."""
    params = parse_spec(["arg[n]", "ret[n]"])[:1]
    first, second = (bind("f", params, [ArraySpec(BY_NAME["float32"], (size,))], {}) for size in (3, 4))
    assert (first.values(), second.values()) == ({"n": 3}, {"n": 4})


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
    few = (*texts[3:4], "arg ret attr.n")
    rows += [f"{text}, without scalars\n  {answer(read, text, scalars=())}\n" for text in few]
    rows += [f"{given!r}\n  {answer(read, given)}\n" for given in (3, ["arg", 3], b"arg ret", {"x": 1})]
    check_golden(GOLDEN / "kernel_signatures.txt", "".join(rows))
    assert read(["arg[n k]", "ret[ceil(n / 2)  k]:float32"]) == read("arg[n k] ret[ceil(n / 2)  k]:float32")


class Counted(CompiledFunction):
    """A function of one array that counts the conversions of its attributes."""

    converted = 0

    def _converted(self, attributes: Mapping[str, Any]) -> Converted:
        self.converted += 1
        return tuple((name, repr(value)) for name, value in sorted(attributes.items()))

    def _traced(self, outs: Any, attributes: Mapping[str, Any], converted: Converted) -> Any:
        return lambda x: x


def test_the_attributes_of_a_repeated_call_are_looked_up_by_type_and_value_and_not_converted() -> None:
    calls: list[dict[str, Any]] = [{}, {"a": 1}, {"a": 1, "b": 0.5}, {"a": True, "b": 0.5}, {"a": 0, "b": "x"}]
    calls += [{"a": 1, "b": 0.5, "c": 0.0}, {"a": 1, "b": 0.5, "c": -0.0}]
    function = Counted("f", "ops.f", None)
    for each in calls:
        function(1.0, **each)
        function(1.0, **each)
    assert function.converted == len(calls)
