"""What an entry writes down of itself: it is read as it was written, and nothing else is believed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.cache.validity import manifest as records
from be_runtime.cache.validity.manifest import Files, Manifest, parse_manifest, render_manifest
from be_toolchain.machine.sealed_json import seal, unseal

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
        (
            "made",
            [None, ["host", 1.5, "", 7], ["host", 1.5, ""], *(["host", s, "", ""] for s in ("1.5", float("nan")))],
        ),
        ("surprise", [1]),
    ],
)
def test_a_damaged_field_is_a_value_error(field: str, values: list[Any]):
    parse_manifest(seal(document()))
    for value in values:
        with pytest.raises(ValueError):
            parse_manifest(seal({**document(), field: value}))


@pytest.mark.parametrize("field", document())
def test_a_missing_field_is_a_value_error(field: str):
    fields = document()
    del fields[field]
    with pytest.raises(ValueError):
        parse_manifest(seal(fields))


def test_a_flipped_bit_and_garbage_are_value_errors():
    """Also one in a path that must not exist: the next load would not notice that it is gone, but a later one would."""
    text = seal(document()).encode()
    flipped = [(int.from_bytes(text) ^ 1 << at).to_bytes(len(text)) for at in range(8 * len(text))]
    for other in (*flipped, b"", b"\xff\xfe", b"null", b"[]", b"1", b"[" * 100_000):
        with pytest.raises(ValueError):
            parse_manifest(other)
