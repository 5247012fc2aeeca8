"""The text of ``signature=``: tokens, names, scalars of the kernel, and what a kernel without host code can't have."""

from __future__ import annotations

import pytest

from be_runtime.call.kernel_signature import read_signature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, SpecError
from be_runtime.spec.grammar import render_spec
from be_runtime.spec.model import Param, Role

TYPES = {"n": "int32", "by": "float32"}
SCALARS = tuple(Param(role=Role.ATTR, name=name, dtype=BY_NAME[kind]) for name, kind in TYPES.items())


def read(text: object, names: tuple[str, ...] = (), scalars: tuple[Param, ...] = SCALARS) -> tuple[str, ...]:
    signature = read_signature("f", text, names, scalars)
    assert signature is not None
    return render_spec(signature.params)


@pytest.mark.parametrize("given", ["arg[n k] ret[ceil(n / 2)  k]:float32", ["arg[n k]", "ret[ceil(n / 2)  k]:float32"]])
def test_a_text_is_split_outside_of_brackets(given: object):
    assert read(given, scalars=()) == ("arg[n k]", "ret[ceil(n/2) k]:float32")


def test_scalars_are_those_of_the_kernel():
    assert read("arg ret") == ("arg", "ret", "attr.n:int32", "attr.by:float32")
    assert read("arg ret[attr.n] attr.by=2") == ("arg", "ret[attr.n]", "attr.by:float32=2", "attr.n:int32")
    assert read("arg ret scratch[4*attr.n]", scalars=SCALARS[:1]) == ("arg", "ret", "scratch[4*attr.n]", "attr.n:int32")


def test_arrays_have_the_names_of_the_kernel_s_parameters():
    signature = read_signature("f", "arg[n] attr.n ret[n] scratch[n]", ("x", "y"), SCALARS)
    assert signature is not None
    assert [param.name for param in signature.params] == ["x", "n", "y", "", "by"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arg ret stream", "'stream' is for functions with host code"),
        ("arg ret state", "'state' is for functions with host code"),
        ("arg... ret", "'arg...' stands for any number of arrays"),
        ("arg? ret", "'arg?' stands for any number of arrays"),
        ("arg ret scratch", "'scratch' does not say how many bytes"),
        ("ret arg", "'arg' comes too late"),
        ("arg scratch[4] ret", "'ret' comes too late"),
        ("arg ret attr.m", "'attr.m' names no scalar of the kernel; its scalars are n, by"),
        ("arg ret attr.n:int64", "'attr.n:int64' contradicts the kernel, whose parameter n is int32"),
        ("arg ret attr.n:string", "contradicts the kernel"),
        ("arg ret attr.n=1.5", "has a default that is not a valid int32"),
        ("arg ret[attr.by]", "attr.by has 'attr.by', which is not an integer attribute"),
        ("arg[n] ret[m]", "'ret[m]' has the axis 'm', which no 'arg' has"),
        ("arg[n", "unknown arg_spec token"),
        ("arg", "has no 'ret'"),
    ],
)
def test_what_a_kernel_can_not_have_is_named(text: str, message: str):
    with pytest.raises(SpecError) as caught:
        read(text)
    assert message in caught.value.message


def test_numba_s_kernels_take_numbers_as_arrays():
    with pytest.raises(SpecError, match=r"'attr\.n' names no scalar of the kernel, which has none: .*arg\[\]"):
        read("arg ret attr.n", scalars=())


@pytest.mark.parametrize("given", [3, ["arg", 3], b"arg ret", {"x": 1}])
def test_a_signature_is_text(given: object):
    with pytest.raises(ArgumentError, match="signature must be a text or a list of tokens"):
        read(given)
