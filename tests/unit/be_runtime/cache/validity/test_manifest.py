from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.cache.validity.manifest import (
    AbsentNames,
    FileRecord,
    Files,
    Making,
    Manifest,
    parse_manifest,
    render_manifest,
)
from be_toolchain.machine.sealed_json import seal, unseal

RECORDS = st.lists(
    st.builds(FileRecord, st.text(), st.integers(), st.integers(), st.integers(), st.integers(), st.text()), max_size=3
).map(Files.of)
NAMES = st.lists(st.text(), max_size=3).map(tuple)
ABSENT = st.lists(
    st.builds(AbsentNames, st.text(), st.integers(), st.integers(), st.integers(), NAMES), max_size=3
).map(tuple)
MANIFESTS = st.builds(
    Manifest,
    digest=st.text(),
    kind=st.text(),
    name=st.text(),
    created_ns=st.integers(),
    recorded_ns=st.integers(),
    outputs=RECORDS,
    dependencies=RECORDS,
    others=RECORDS,
    absent=ABSENT,
    uncertain=NAMES,
    made=st.builds(Making, st.text(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.text()),
)


def _document() -> dict[str, Any]:
    files = Files.of([FileRecord("m.so", 3, 1, 2, 9, "ab")])
    manifest = Manifest(digest="d", kind="k", name="n", created_ns=1, recorded_ns=2, outputs=files, dependencies=files)
    document: dict[str, Any] = unseal(render_manifest(manifest))
    return document


@given(MANIFESTS)
def test_parse_is_the_inverse_of_render(manifest: Manifest):
    assert parse_manifest(render_manifest(manifest)) == manifest


@given(MANIFESTS, st.data())
def test_every_truncation_is_a_value_error(manifest: Manifest, data: st.DataObject):
    text = render_manifest(manifest)
    with pytest.raises(ValueError):
        parse_manifest(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 999),
        ("schema", None),
        ("outputs", None),
        ("outputs", [["m.so"], [3]]),
        ("outputs", [7]),
        ("absent", ["a"]),
        ("absent", [["/a", 1, 2, 3, [4]]]),
        ("absent", [["/a", 1, 2, "3", ["x.h"]]]),
        ("absent", [[7, 1, 2, 3, ["x.h"]]]),
        ("outputs", []),
        ("outputs", [["m.so"], [3], [1], [2], [9], []]),
        ("dependencies", [[0], [3], [1], [2], [9], ["ab"]]),
        ("dependencies", [["x.h"], ["3"], [1], [2], [9], ["ab"]]),
        ("dependencies", [["x.h"], [True], [1], [2], [9], ["ab"]]),
        ("dependencies", [["x.h"], [3], [1], [2], [None]]),
        ("absent", [1]),
        ("absent", 5),
        ("digest", 5),
        ("recorded_ns", "now"),
        ("recorded_ns", 1.5),
        ("made", None),
        ("made", ["host", 1.5, "", 7]),
        ("made", ["host", "1.5", "", ""]),
        ("made", ["host", float("nan"), "", ""]),
        ("made", ["host", 1.5, ""]),
        ("surprise", 1),
    ],
)
def test_a_damaged_field_is_a_value_error(field: str, value: object):
    parse_manifest(seal(_document()))
    with pytest.raises(ValueError):
        parse_manifest(seal({**_document(), field: value}))


@pytest.mark.parametrize(
    "field", ["schema", "outputs", "dependencies", "absent", "uncertain", "digest", "created_ns", "made"]
)
def test_a_missing_field_is_a_value_error(field: str):
    document = _document()
    del document[field]
    with pytest.raises(ValueError):
        parse_manifest(seal(document))


def test_a_flipped_bit_is_a_value_error():
    """Also one in a path that must not exist: the next load would not notice that it is gone, but a later one would."""
    text = seal(_document()).encode()
    for at in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(ValueError):
            parse_manifest(bytes(flipped))


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"null", b"[]", b"1", b"[" * 100_000])
def test_garbage_is_a_value_error(text: bytes):
    with pytest.raises(ValueError):
        parse_manifest(text)
