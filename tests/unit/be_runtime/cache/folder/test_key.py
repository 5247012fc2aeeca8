from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.cache.folder.key import CacheKey, make_key

LABELS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=4)
TEXTS = st.text(st.sampled_from("ab\0\n\ud800\udc00é"), max_size=4)
VALUES = TEXTS | st.binary(max_size=12) | st.lists(TEXTS, max_size=3).map(tuple)
FIELDS = st.dictionaries(LABELS, VALUES, max_size=4)
KINDS = st.sampled_from(["module", "object", "m"])


def _make(kind: str, fields: dict[str, Any]) -> CacheKey:
    return make_key(kind, *fields.items())


@given(KINDS, FIELDS, KINDS, FIELDS)
def test_equal_digests_mean_equal_inputs(kind: str, fields: dict[str, Any], other: str, others: dict[str, Any]):
    same = kind == other and fields == others
    assert (_make(kind, fields).digest == _make(other, others).digest) is same
    assert (_make(kind, fields) == _make(other, others)) is same


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_fields_of_any_bytes_are_framed(left: list[bytes], right: list[bytes]):
    keys = [CacheKey("k", tuple((str(i), value) for i, value in enumerate(values))) for values in (left, right)]
    assert (keys[0].digest == keys[1].digest) is (left == right)


@given(KINDS, FIELDS)
def test_json_is_an_inverse_and_keeps_the_digest(kind: str, fields: dict[str, Any]):
    key = _make(kind, fields)
    assert CacheKey.from_json(key.to_json()) == key
    assert CacheKey.from_json(key.to_json()).digest == key.digest


@given(KINDS, FIELDS, KINDS, FIELDS)
def test_explain_names_exactly_the_fields_that_differ(
    kind: str, fields: dict[str, Any], other: str, others: dict[str, Any]
):
    lines = _make(kind, fields).explain(_make(other, others))
    differing = {label for label in fields.keys() | others.keys() if fields.get(label) != others.get(label)}
    assert len(lines) == len(differing) + (kind != other)
    assert all(any(line.startswith(f"{label}: ") for line in lines) for label in differing)


def test_types_are_part_of_a_value():
    values: list[Any] = ["a", b"a", ("a",), ("a", ""), ("", "a"), "", b"", ()]
    assert len({make_key("k", ("x", value)).digest for value in values}) == len(values)


def test_the_order_of_fields_does_not_matter():
    assert make_key("k", ("a", "1"), ("b", "2")) == make_key("k", ("b", "2"), ("a", "1"))


def test_json_leaves_text_readable():
    document = json.loads(make_key("k", ("name", "add"), ("flags", ["-O2"]), ("blob", b"\xff")).to_json())
    assert document["fields"] == [
        {"label": "blob", "hex": "62ff"},
        {"label": "flags", "items": ["-O2"]},
        {"label": "name", "text": "add"},
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("-O2", "-O3", "x: '-O2' -> '-O3'"),
        (("a", "b"), ("b", "c"), "x: removed 'a'; added 'c'"),
        (("a", "b"), ("b", "a"), "x: ('a', 'b') -> ('b', 'a')"),
        ("int a;\nint b;\n", "int a;\nint c;\n", "x: line 2: 'int b;' -> 'int c;'"),
        ("a\n", "a\nb", "x: line 2: '' -> 'b'"),
        (b"\0", b"\1", "x: b'\\x00' -> b'\\x01'"),
    ],
)
def test_explain_shows_what_changed(old: Any, new: Any, line: str):
    assert make_key("k", ("x", old)).explain(make_key("k", ("x", new))) == (line,)


def test_explain_shortens_long_values():
    (line,) = make_key("k", ("x", "a" * 500)).explain(make_key("k", ("x", "b")))
    assert line.startswith("x: <500 bytes, sha256 ")


@pytest.mark.parametrize(
    "value", [None, 1, 1.5, True, Path("/x"), {"a"}, {"a": "b"}, ("a", 1), ("a", b"b"), bytearray()]
)
def test_values_that_cannot_be_observed_are_refused(value: Any):
    with pytest.raises(TypeError, match="field 'flags'"):
        make_key("k", ("flags", value))


@pytest.mark.parametrize("label", ["", "a\nb", "\ud800"])
def test_bad_labels_are_refused(label: str):
    with pytest.raises(ValueError, match="printable"):
        make_key("k", (label, "x"))
    with pytest.raises(ValueError, match="printable"):
        make_key(label, ("a", "x"))


def test_a_label_given_twice_is_refused():
    with pytest.raises(ValueError, match="'flags' twice"):
        make_key("k", ("flags", "a"), ("flags", "b"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "",
        "[]",
        "{}",
        '{"kind": "k", "fields": [{}]}',
        '{"kind": 1, "fields": []}',
        '{"kind":"k","fields":[1]}',
    ],
)
def test_damaged_json_is_refused(text: str):
    with pytest.raises(ValueError):
        CacheKey.from_json(text)


def test_the_name_is_the_field_name():
    assert make_key("k", ("name", "add")).name == "add"
    assert make_key("k", ("title", "add")).name == ""
    assert len(make_key("k").digest) == 64


def test_explain_names_the_lines_that_differ_in_a_list_of_files():
    lines = [f"  out[{number}] = {number};" for number in range(300)]
    changed = [*lines[:200], "  out[0] = 7;", *lines[201:]]
    old, new = (("k", "/a/k.cc", "k.cc", "\n".join(text), "l", "", "l.cc", "int l;\n") for text in (lines, changed))
    (line,) = make_key("k", ("sources", old)).explain(make_key("k", ("sources", new)))
    assert line == "sources: k.cc: line 201: 'out[200] = 200;' -> 'out[0] = 7;'"


def test_explain_shows_the_part_of_a_long_line_that_differs():
    old, new = (("k.cc", f"{'a ' * 5000}{end}\nb") for end in ("one", "two"))
    (line,) = make_key("k", ("sources", old)).explain(make_key("k", ("sources", new)))
    assert "one'" in line
    assert "two'" in line
    assert len(line) < 200


@pytest.mark.parametrize("added", [(), ("l.cc", "c" * 9000), ("l.cc", "d\n" * 9000)])
def test_no_line_of_an_explanation_is_long(added: tuple[str, ...]):
    old, new = ("/a" * 900, "x\n" * 9000), ("/b" * 900, "y\n" * 9000, *added)
    (line,) = make_key("k", ("sources", old)).explain(make_key("k", ("sources", new)))
    assert 40 < len(line) <= 300
