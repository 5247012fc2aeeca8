"""Arrays of a call against their declaration, and the results that follow."""

from __future__ import annotations

import pytest

from be_runtime.call import shapes
from be_runtime.call.resolve import CallSignature, resolve
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.spec.grammar import parse_spec
from be_runtime.xla.arrays import ArraySpec


def array(text: str) -> ArraySpec:
    """``f32[3,4]`` and so on."""
    kind, _, extents = text.rstrip("]").partition("[")
    dtype = {"f32": "float32", "f64": "float64", "i32": "int32", "f16": "float16"}[kind]
    return ArraySpec(BY_NAME[dtype], tuple(map(int, extents.split(","))) if extents else ())


class Struct:
    """An array without elements."""

    def __init__(self, spec: ArraySpec) -> None:
        self.shape, self.dtype = spec.shape, spec.dtype.name


def call(spec: str, arrays: str, outs: object = None, **attributes: object) -> tuple[str, ...]:
    """The results of a call, as texts, scratch memory included."""
    signature = CallSignature("f", parse_spec(tokens(spec)))
    given = [None if each == "None" else Struct(array(each)) for each in arrays.split()]
    found = resolve(signature, given, outs, attributes, as_array=lambda value: value, aliases={})
    return tuple(map(str, found.results))


def tokens(spec: str) -> list[str]:
    """Split a spec at the spaces outside of brackets."""
    parts, depth = [""], 0
    for char in spec:
        depth += (char in "[{(") - (char in "]})")
        if char == " " and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


@pytest.mark.parametrize(
    ("spec", "arrays", "results"),
    [
        ("arg[n k] arg[k] ret[n]:like(0)", "f32[3,4] f64[4]", "float32[3]"),
        ("arg[n k] arg[k] ret[n]", "f32[3,4] f32[4]", "float32[3]"),
        ("arg ret:like(0)", "i32[5,6]", "int32[5,6]"),
        ("arg[n] ret[n//2 n%2]", "f32[5]", "float32[2,1]"),
        ("arg[n] ret[n/2]", "f32[6]", "float32[3]"),
        ("arg[n] ret[2*n+1] ret[ceil(n/4)]:int32", "f32[5]", "float32[11] int32[2]"),
        ("arg[n] ret[max(n,8) min(n,2) (n-1)*3]", "f32[5]", "float32[8,2,12]"),
        ("arg[n m] arg[n+1] ret[m]:like(0)", "f32[5,3] i32[6]", "float32[3]"),
        ("arg[... n] arg[... n] ret[... 2*n]", "f32[7,8,3] f32[7,8,3]", "float32[7,8,6]"),
        ("arg[] ret[3]:float64", "f32[]", "float64[3]"),
        ("arg[0] ret[0]", "f32[0]", "float32[0]"),
        ("arg[n] arg?[n] ret[n]:like(0)", "f32[3] None", "float32[3]"),
        ("arg[n] arg?[n] ret[n]:like(0)", "f32[3]", "float32[3]"),
        ("arg[n] ret[n] scratch[n*4]", "f32[3]", "float32[3] uint8[12]"),
        ("arg[n] ret[n] scratch", "f32[3]", "float32[3]"),
    ],
)
def test_results_follow_from_the_inputs(spec: str, arrays: str, results: str) -> None:
    assert call(spec, arrays) == tuple(results.split())


def test_attributes_are_extents_and_dtypes() -> None:
    spec = "arg ret[attr.bins 2*attr.bins]:attr.type attr.bins:int32 attr.type:dtype"
    assert call(spec, "f32[9]", bins=4, type="float16") == ("float16[4,8]",)
    assert call("arg ret[attr.bins]:int32 attr.bins:int32=10", "f32[9]") == ("int32[10]",)


@pytest.mark.parametrize(
    ("spec", "arrays", "message"),
    [
        (
            "arg[n k] arg[k] ret[n]",
            "f32[3,4] f32[5]",
            "f: axis k is 4 in argument 0 (axis 1) and 5 in argument 1 (axis 0)",
        ),
        ("arg[n] ret[n]", "f32[3,4]", "f: argument 0 has the shape (3, 4), but its axes are declared as [n]"),
        ("arg[n 3] ret[n]", "f32[3,4]", "f: an axis is declared as 3 and is 4 in argument 0 (axis 1)"),
        ("arg[n]:float32 ret[n]", "f64[3]", "f: argument 0 is float64[3], but float32 is declared"),
        ("arg[n m] arg[n+1] ret[m]:like(0)", "f32[5,3] i32[5]", "declared as n+1 = 6 and is 5 in argument 1 (axis 0)"),
        ("arg[... n] arg[... n] ret[n]", "f32[7,3] f32[8,3]", "leading axes of argument 1 are (8,), others are (7,)"),
        ("arg[n] ret[n/2]", "f32[5]", "f: n/2 can't be computed for n = 5: 5 is not divisible by 2"),
        ("arg[n] ret[n-4]", "f32[3]", "f: n-4 can't be computed for n = 3: it is -1"),
        ("arg[n] ret[8//n]", "f32[0]", "f: 8//n can't be computed for n = 0: it divides by zero"),
        ("arg[n] ret[n]", "None", "f: argument 0 is None, but the kernel takes an array"),
        ("arg[n] arg[n] ret[n]", "f32[3]", "f takes 2 arrays (argument 0, argument 1), but the call has 1"),
        ("arg[n] arg?[n] ret[n]", "f32[3] f32[3] f32[3]", "f takes 1 to 2 arrays"),
        ("arg... ret[3]", "f32[3]", "argument 0 is an array, but the kernel takes a sequence of arrays"),
        ("arg ret", "f32[3]", "the shape of result 0 does not follow from the arg_spec"),
        (
            "arg[n] arg[n] ret[n]",
            "f32[3] f64[3]",
            "dtype of result 0 does not follow from the arg_spec: argument 0 is float32[3], argument 1 is float64[3]",
        ),
        ("arg[n] ret[n]", "f32[3] f32[3]", "f takes 1 array (argument 0), but the call has 2"),
        ("arg[n] ret[n] scratch[-1]", "f32[3]", "-1 can't be computed: it is -1"),
        ("arg[n] ret[n] scratch[4*n-100]", "f32[3]", "4*n-100 can't be computed for n = 3: it is -88"),
        ("arg[n] ret[n] scratch[n*9223372036854775807]", "f32[3]", "can't be computed for n = 3"),
        ("arg[n] ret[n] scratch[n*281474976710656]", "f32[3]", "scratch[n*281474976710656] is 844424930131968 bytes"),
    ],
)
def test_a_call_that_is_not_as_declared_says_where(spec: str, arrays: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(spec, arrays)
    assert message in caught.value.message


def test_described_results_are_checked() -> None:
    def out(text: str) -> Struct:
        return Struct(array(text))

    assert call("arg ret", "f32[3]", out("f32[2]")) == ("float32[2]",)
    assert call("arg ret ret", "f32[3]", [out("f32[2]"), out("i32[]")]) == ("float32[2]", "int32[]")
    assert call("arg ret...", "f32[3]", [out("f32[2]"), out("i32[]")]) == ("float32[2]", "int32[]")
    assert call("arg ret", "f32[3]", lambda x, n: out(f"f32[{x.shape[0] + n}]"), n=4) == ("float32[7]",)
    for spec, outs, message in (
        ("arg ret ret", [out("f32[2]")], "f has 2 results, but outs describes 1"),
        ("arg[n] ret[n]", out("f32[2]"), "outs[0] is float32[2], but [n] is (3,) in this call"),
        ("arg ret:int32", out("f32[2]"), "outs[0] is float32[2], but int32 is declared"),
        ("arg ret:like(0)", out("i32[3]"), "outs[0] is int32[3], but float32 is declared"),
        ("arg ret", [], "outs is empty"),
        ("arg ret", "x", "outs[0] is 'x', which has no shape and dtype"),
    ):
        with pytest.raises(ArgumentError) as caught:
            call(spec, "f32[3]", outs)
        assert message in caught.value.message


def test_nothing_to_compute_needs_no_memory() -> None:
    assert call("arg[n] ret[n] scratch[4+n]", "f32[3]") == ("float32[3]", "uint8[7]")
    assert call("arg[n] ret[n] scratch[4+n]", "f32[0]") == ("float32[0]", "uint8[0]")


def test_presence_of_optional_arrays_is_an_attribute() -> None:
    signature = CallSignature("f", parse_spec(["arg?", "arg", "arg?", "ret:like(0)"]))
    x = Struct(array("f32[3]"))
    found = resolve(signature, [None, x, x], None, {}, as_array=lambda value: value, aliases={})
    ((name, mask),) = found.attributes
    assert name == "be_present"
    assert int.from_bytes(mask.data, "little") == 0b10  # type: ignore[union-attr]
    assert found.operands == [x, x]
    assert resolve(signature, [x, x, x], None, {}, as_array=lambda value: value, aliases={}).attributes == ()


def test_extents_stay_what_they_are() -> None:
    """Binding a call leaves the values of another one alone."""
    params = parse_spec(["arg[n]", "ret[n]"])[:1]
    first = shapes.bind("f", params, [array("f32[3]")], {})
    second = shapes.bind("f", params, [array("f32[4]")], {})
    assert (first.values(), second.values()) == ({"n": 3}, {"n": 4})
