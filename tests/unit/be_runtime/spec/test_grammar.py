"""The arg_spec grammar: every token and alias, every rule, and rendering as the inverse of parsing."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.dtypes import ATTR_TYPES, BY_NAME
from be_runtime.errors import SpecError
from be_runtime.spec.grammar import parse_spec, render_spec
from tests.unit.be_runtime.spec.conftest import each

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "outs")
SCALARS = st.sampled_from([*ATTR_TYPES])
TYPES = (
    SCALARS
    | SCALARS.map("{}[]".format)
    | st.sampled_from(["", "string", "dtype", "enum(a b)", "enum(a b)=b", "string=x", "int8=-3", "float32=0.5"])
    | st.sampled_from(["{lr:float32 n:int32=3 mode:enum(a b)}", "bool=true", "dtype=float16"])
)
ATTRS = st.lists(st.tuples(NAMES, TYPES), max_size=4, unique_by=lambda pair: pair[0]).map(
    lambda pairs: [f"attr.{name}{':' if kind else ''}{kind}" for name, kind in pairs]
)
AXES = st.just("") | st.builds(
    lambda leading, axes: f"[{' '.join([*leading, *map(str, axes)])}]",
    st.sampled_from([(), ("...",)]),
    st.lists(st.sampled_from(["n", "k", "2*n+1", "ceil(n/256)", "n*attr.bins"]) | st.integers(0, 10**12), max_size=3),
)
OTHERS = st.lists(
    st.builds("{}{}{}".format, st.sampled_from(["arg", "arg?", "ret"]), AXES, st.sampled_from(["", ":float32"]))
    | st.sampled_from(["ret:like(0)", "ret[n]:attr.type", "scratch", "scratch[n*4]"]),
    max_size=4,
)
ONCE = st.lists(st.sampled_from(["stream", "state", "arg..."]), unique=True)
BINDING = ["ret", "arg[n k]", "attr.bins:int32", "attr.type:dtype"]
SPECS = (
    st.tuples(ATTRS, OTHERS, ONCE)
    .flatmap(lambda parts: st.permutations([*BINDING, *parts[0], *parts[1], *parts[2]]))
    .filter(
        lambda tokens: (
            len({token.split(":")[0] for token in tokens if token.startswith("attr.")})
            == sum(token.startswith("attr.") for token in tokens)
        )
    )
)


@given(SPECS)
def test_parsing_what_was_rendered(tokens: list[str]) -> None:
    params = parse_spec(tokens)
    assert list(render_spec(params)) == tokens
    assert parse_spec(render_spec(params)) == params


SPELLINGS = {
    "arg ret": "args rets",
    "ret stream arg": "ret ctx.stream arg",
    "attr.n ret": "attrs.n ret",
    "attr.n:int32 ret": "attrs.n:int32 ret",
    "attr.arg:int8 attr.stream ret": "attr.arg:int8 attr.stream ret",
}


@pytest.mark.parametrize(("written", "first_spelling"), each(SPELLINGS))
def test_spellings(written: str, first_spelling: str) -> None:
    assert " ".join(render_spec(parse_spec(written.split()))) == first_spelling


@pytest.mark.parametrize("name", sorted(ATTR_TYPES))
def test_every_type(name: str) -> None:
    (param, _) = parse_spec([f"attr.x:{name}", "ret"])
    assert param.dtype is BY_NAME[name]


@pytest.mark.parametrize("name", sorted(set(BY_NAME).difference(ATTR_TYPES)))
def test_a_type_for_arrays_only_is_refused_by_name(name: str) -> None:
    assert parse_spec([f"ret[3]:{name}"])[0].dtype is BY_NAME[name]
    instead = "float32" if "float" in name else "int32"
    for spelt in (name, f"{name}[]", f"{{a:{name}}}"):
        with pytest.raises(SpecError, match=f"XLA has no attributes of {name}; take an? {instead}"):
            parse_spec([f"attr.x:{spelt}", "ret"])


@pytest.mark.parametrize("text", ["1or 2", "0x1for", "2if n else 3", "'\\d'", "1.real"])
def test_arithmetic_of_which_python_would_warn_is_refused_in_silence(text: str) -> None:
    with (
        warnings.catch_warnings(record=True, action="always") as said,
        pytest.raises(SpecError, match="is not an axis"),
    ):
        parse_spec(["arg[n]", f"ret[({text})]"])
    assert said == []


def test_a_token_of_any_length_is_no_work() -> None:
    with pytest.raises(SpecError, match="a token has more than 10000 characters: 'arg"):
        parse_spec([f"arg[{'(' * 30_000}{'(b)' * 10_000}]", "ret"])


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("false", False), ("False", False)])
def test_a_truth_value_is_written_as_in_cpp_or_python(text: str, value: bool):
    for kind in ("", ":bool"):
        params = parse_spec(["ret", f"attr.a{kind}={text}"])
        assert params[1].default is value
        assert render_spec(params)[1] == f"attr.a{kind}={'true' if value else 'false'}"
