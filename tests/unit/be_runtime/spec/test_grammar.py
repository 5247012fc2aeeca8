"""The arg_spec grammar: every token and alias, every rule, and rendering as the inverse of parsing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.dtypes import BY_NAME, DTYPES
from be_runtime.errors import SpecError
from be_runtime.spec import Param, Role, parse_spec, render_spec

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
ATTRS = st.lists(
    st.builds(Param, role=st.just(Role.ATTR), name=NAMES, dtype=st.sampled_from(DTYPES) | st.none(), axes=st.none()),
    max_size=4,
    unique_by=lambda param: param.name,
)
AXES = st.none() | st.builds(
    lambda leading, axes: (*leading, *axes),
    st.sampled_from([(), ("...",)]),
    st.lists(st.sampled_from(["n", "k"]) | st.integers(0, 10**12), max_size=3).map(tuple),
)
BOUND = Param(role=Role.ARG, axes=("n", "k"))
OTHERS = st.lists(
    st.builds(Param, role=st.sampled_from([Role.ARG, Role.RET]), name=st.just(""), dtype=st.none(), axes=AXES),
    max_size=4,
)
STREAMS = st.lists(st.just(Param(role=Role.STREAM)), max_size=1)
SPECS = (
    st.tuples(ATTRS, OTHERS, STREAMS)
    .flatmap(lambda parts: st.permutations([Param(role=Role.RET), BOUND, *parts[0], *parts[1], *parts[2]]))
    .map(tuple)
)


@given(SPECS)
def test_parsing_what_was_rendered(params: tuple[Param, ...]) -> None:
    assert parse_spec(render_spec(params)) == params


@pytest.mark.parametrize(
    ("written", "first_spelling"),
    [
        ("args rets", "arg ret"),
        ("ret ctx.stream arg", "ret stream arg"),
        ("attrs.n ret", "attr.n ret"),
        ("attrs.n:int32 ret", "attr.n:int32 ret"),
        ("ret", "ret"),
        ("ret ret arg arg", "ret ret arg arg"),
        ("stream attr.a:bool ret arg", "stream attr.a:bool ret arg"),
        ("attr.arg:int8 attr.stream ret", "attr.arg:int8 attr.stream ret"),
    ],
)
def test_spellings_and_orders(written: str, first_spelling: str) -> None:
    assert " ".join(render_spec(parse_spec(written.split()))) == first_spelling


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_type(name: str) -> None:
    (param, _) = parse_spec([f"attr.x:{name}", "ret"])
    assert param.dtype is BY_NAME[name]


@pytest.mark.parametrize(
    ("tokens", "part", "hint"),
    [
        ("arg[n] ret[m]", "'ret[m]' has the axis 'm', which no 'arg' has", "brackets"),
        ("arg[n,k] ret", "'n,k' is not an axis", ""),
        ("arg[-1] ret", "'-1' is not an axis", ""),
        ("arg[01] ret", "'01' is not an axis", ""),
        ("arg[1e3] ret", "'1e3' is not an axis", ""),
        ("stream[n] ret", "unknown arg_spec token 'stream[n]'", "'stream'"),
        ("agr ret", "unknown arg_spec token 'agr'", "'arg'"),
        ("rett", "unknown arg_spec token 'rett'", "'ret'"),
        ("ret cuda.stream", "'cuda.stream'", "'ctx.stream'"),
        ("ret ctx.strem", "'ctx.strem'", "'ctx.stream'"),
        ("ret atr.n:int32", "'atr.n:int32'", "'attr.n:int32'"),
        ("ret n:int32", "'n:int32'", "'attr.n:int32'"),
        ("ret attr", "unknown arg_spec token 'attr'", "attr.NAME"),
        ("ret arg,", "unknown arg_spec token 'arg,'", "'arg'"),
        ("ret attr.", "which is not an identifier", "attr.NAME"),
        ("ret attr.2n:int32", "'2n', which is not an identifier", "attr.NAME"),
        ("ret attr.a-b", "'a-b', which is not an identifier", "attr.NAME"),
        ("ret attr.a.b:int8", "'a.b', which is not an identifier", "attr.NAME"),
        ("ret attr.é:int8", "not an identifier", "attr.NAME"),
        ("ret attr.n:", "unknown type ''", "types: "),
        ("ret attr.n:float", "unknown type 'float'", "'attr.n:float32'"),
        ("ret attr.n:double", "unknown type 'double'", "'attr.n:float64'"),
        ("ret attr.n:int", "unknown type 'int'", "'attr.n:int32'"),
        ("ret attr.n:int32_t", "unknown type 'int32_t'", "'attr.n:int32'"),
        ("ret attr.n:flaot32", "unknown type 'flaot32'", "'attr.n:float32'"),
        ("ret attr.n:Float32", "unknown type 'Float32'", "'attr.n:float32'"),
        ("arg stream", "no 'ret'", ""),
        ("", "no 'ret'", ""),
        ("ret stream stream", "a second 'stream'", ""),
        ("ret stream ctx.stream", "a second 'ctx.stream'", ""),
        ("ret attr.n:int8 attrs.n:int16", "'attrs.n:int16' names the attribute 'n' again", ""),
    ],
)
def test_errors_name_function_and_token(tokens: str, part: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(tokens.split(), function="my_op")
    assert caught.value.message.startswith("my_op: ")
    assert part in caught.value.message
    assert hint in "\n".join(caught.value.hints)
