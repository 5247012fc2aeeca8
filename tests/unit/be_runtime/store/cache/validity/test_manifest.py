"""What an entry writes down, its manifest and its key: it is read as it was written, and nothing else is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.store import manifest as records
from be_runtime.store.keys import CacheKey, make_key
from be_runtime.store.manifest import Files, Manifest, parse_manifest, render_manifest
from be_toolchain.machine.files import seal, unseal

TEXT, NUMBER = st.text(max_size=4), st.integers()
RECORD = st.builds(records.FileRecord, TEXT, NUMBER, NUMBER, NUMBER, NUMBER, TEXT)
FILES = st.lists(RECORD, max_size=2).map(Files.of)
NAMES = st.lists(TEXT, max_size=2).map(tuple)
ABSENT = st.lists(st.builds(records.AbsentNames, TEXT, NUMBER, NUMBER, NUMBER, NAMES), max_size=2).map(tuple)
MADE = st.builds(records.Making, TEXT, st.floats(allow_nan=False, allow_infinity=False), TEXT, TEXT)
MANIFESTS = st.builds(
    Manifest, TEXT, TEXT, TEXT, NUMBER, NUMBER, FILES, FILES, FILES, absent=ABSENT, uncertain=NAMES, made=MADE
)


def document() -> dict[str, Any]:
    files = Files.of([records.FileRecord("m.so", 3, 1, 2, 9, "ab")])
    whole = Manifest(digest="d", kind="k", name="n", created_ns=1, recorded_ns=2, outputs=files, dependencies=files)
    found: dict[str, Any] = unseal(render_manifest(whole))
    return found


@given(MANIFESTS, st.data())
def test_parse_is_the_inverse_of_render_and_every_truncation_is_a_value_error(whole: Manifest, data: st.DataObject):
    text = render_manifest(whole)
    assert parse_manifest(text) == whole
    with pytest.raises(ValueError):
        parse_manifest(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("schema", [999, None]),
        ("outputs", [None, [], [7], [["m.so"], [3]], [["m.so"], [3], [1], [2], [9], []]]),
        ("dependencies", [[[0], [3], [1], [2], [9], ["ab"]], [["x.h"], [3], [1], [2], [None]]]),
        ("dependencies", [[["x.h"], [size], [1], [2], [9], ["ab"]] for size in ("3", True)]),
        ("absent", [5, [1], ["a"], [["/a", 1, 2, 3, [4]]], [["/a", 1, 2, "3", ["x.h"]]], [[7, 1, 2, 3, ["x.h"]]]]),
        ("digest", [5]),
        ("recorded_ns", ["now", 1.5]),
        ("made", [None, ["host", 1.5, "", 7], ["host", 1.5, ""]]),
        ("made", [["host", seconds, "", ""] for seconds in ("1.5", float("nan"))]),
        ("surprise", [1]),
    ],
)
def test_a_damaged_field_is_a_value_error(field: str, values: list[Any]):
    parse_manifest(seal(document()))
    for value in values:
        with pytest.raises(ValueError):
            parse_manifest(seal({**document(), field: value}))


def test_a_missing_field_a_flipped_bit_and_garbage_are_value_errors():
    """Also one in a path that must not exist: the next load would not notice that it is gone, but a later one would."""
    whole = document()
    text = seal(whole).encode()
    fewer = [seal({name: whole[name] for name in whole if name != field}).encode() for field in whole]
    flipped = [(int.from_bytes(text) ^ 1 << at).to_bytes(len(text)) for at in range(8 * len(text))]
    for other in (*fewer, *flipped, b"", b"\xff\xfe", b"null", b"[]", b"1", b"[" * 100_000):
        with pytest.raises(ValueError):
            parse_manifest(other)


LABELS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=4)
TEXTS = st.text(st.sampled_from("ab\0\n\ud800\udc00é"), max_size=4)
VALUES = TEXTS | st.binary(max_size=12) | st.lists(TEXTS, max_size=3).map(tuple)
INPUTS = st.tuples(st.sampled_from(["module", "object", "m"]), st.dictionaries(LABELS, VALUES, max_size=4))
BYTES = st.lists(st.binary(max_size=3), max_size=4)
Inputs = tuple[str, dict[str, Any]]


@given(INPUTS, INPUTS)
def test_equal_digests_mean_equal_inputs_and_explain_names_exactly_the_fields_that_differ(one: Inputs, other: Inputs):
    keys = [make_key(kind, *fields.items()) for kind, fields in (one, other)]
    assert (keys[0].digest == keys[1].digest) is (keys[0] == keys[1]) is (one == other)
    for key in keys:
        read = CacheKey.from_json(key.to_json())
        assert (read, read.digest) == (key, key.digest)
    lines = keys[0].explain(keys[1])
    differing = {label for label in one[1].keys() | other[1].keys() if one[1].get(label) != other[1].get(label)}
    assert len(lines) == len(differing) + (one[0] != other[0])
    assert all(any(line.startswith(f"{label}: ") for line in lines) for label in differing)


@given(BYTES, BYTES)
def test_fields_of_any_bytes_are_framed(left: list[bytes], right: list[bytes]):
    keys = [CacheKey("k", tuple((str(i), value) for i, value in enumerate(values))) for values in (left, right)]
    assert (keys[0].digest == keys[1].digest) is (left == right)


def test_types_are_part_of_a_value_and_the_order_of_fields_is_not():
    values: list[Any] = ["a", b"a", ("a",), ("a", ""), ("", "a"), "", b"", ()]
    assert len({make_key("k", ("x", value)).digest for value in values}) == len(values)
    assert make_key("k", ("a", "1"), ("b", "2")) == make_key("k", ("b", "2"), ("a", "1"))
    assert [make_key("k", (label, "add")).name for label in ("name", "title")] == ["add", ""]


def test_json_leaves_text_readable():
    found = json.loads(make_key("k", ("name", "add"), ("flags", ["-O2"]), ("blob", b"\xff")).to_json())["fields"]
    rows = (("blob", "hex", "62ff"), ("flags", "items", ["-O2"]), ("name", "text", "add"))
    assert found == [{"label": label, kind: value} for label, kind, value in rows]


LINES = [f"  out[{number}] = {number};" for number in range(300)]


def sources(lines: list[str]) -> tuple[str, ...]:
    return ("k", "/a/k.cc", "k.cc", "\n".join(lines), "l", "", "l.cc", "int l;\n")


EXPLAINED: dict[tuple[Any, Any], str] = {
    ("-O2", "-O3"): "'-O2' -> '-O3'",
    (("a", "b"), ("b", "c")): "removed 'a'; added 'c'",
    (("a", "b"), ("b", "a")): "('a', 'b') -> ('b', 'a')",
    ("int a;\nint b;\n", "int a;\nint c;\n"): "line 2: 'int b;' -> 'int c;'",
    ("a\n", "a\nb"): "line 2: '' -> 'b'",
    (b"\0", b"\1"): "b'\\x00' -> b'\\x01'",
    ("a" * 500, "b"): "<500 bytes, sha256 372930e5a5eb> -> 'b'",
    (sources(LINES), sources([*LINES[:200], "", *LINES[201:]])): "k.cc: line 201: 'out[200] = 200;' -> ''",
}


def test_explain_shows_what_changed():
    for (old, new), change in EXPLAINED.items():
        assert make_key("k", ("x", old)).explain(make_key("k", ("x", new))) == (f"x: {change}",)


@pytest.mark.parametrize("added", [(), ("l.cc", "c" * 9000), ("l.cc", "d\n" * 9000)])
def test_no_line_of_an_explanation_is_long_and_it_shows_the_part_that_differs(added: tuple[str, ...]):
    old, new = ("/a" * 900, "x\n" * 9000), ("/b" * 900, "y\n" * 9000, *added)
    (line,) = make_key("k", ("sources", old)).explain(make_key("k", ("sources", new)))
    assert 40 < len(line) <= 300
    old, new = (("k.cc", f"{'a ' * 5000}{end}\nb") for end in ("one", "two"))
    (line,) = make_key("k", ("sources", old)).explain(make_key("k", ("sources", new)))
    assert ("one'" in line, "two'" in line, len(line) < 200) == (True, True, True)


def test_what_cant_be_part_of_a_key_is_refused():
    values = (None, 1, 1.5, True, Path("/x"), {"a"}, {"a": "b"}, ("a", 1), ("a", b"b"), bytearray())
    for value in values:
        with pytest.raises(TypeError, match="field 'flags'"):
            make_key("k", ("flags", value))  # type: ignore[arg-type]
    for label in ("", "a\nb", "\ud800"):
        for kind, field in (("k", label), (label, "a")):
            with pytest.raises(ValueError, match="printable"):
                make_key(kind, (field, "x"))
    with pytest.raises(ValueError, match="'flags' twice"):
        make_key("k", ("flags", "a"), ("flags", "b"))


FIELDS = ('{"kind": "k", "fields": [{}]}', '{"kind": 1, "fields": []}', '{"kind":"k","fields":[1]}')


@pytest.mark.parametrize("text", ["[" * 100_000, "", "[]", "{}", *FIELDS], ids=range(7))
def test_damaged_json_is_refused(text: str):
    with pytest.raises(ValueError):
        CacheKey.from_json(text)
