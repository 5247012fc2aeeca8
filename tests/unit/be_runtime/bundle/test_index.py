"""The index of a bundle: what was written is read, and nothing else is taken for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from be_runtime.abi import ABI
from be_runtime.bundle.index import (
    FORMAT,
    CodeImage,
    ImageTarget,
    Index,
    parse_index,
    reading,
    render_index,
    target_name,
)
from be_runtime.errors import ArgumentError, LoadError

DIGEST = "ab" * 32
INDEX = Index(
    machine="x86_64",
    images={DIGEST: CodeImage("library", "CUDA", 12, ("8.0", "9.0"), "x86-64-v3")},
    targets={target_name(DIGEST, "f"): ImageTarget(DIGEST, "CUDA", {"execute": "f", "instantiate": "g"})},
    modules={"ops": {"language": "cuda"}},
)


def test_what_was_written_is_read():
    assert parse_index(render_index(INDEX), "here") == INDEX


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": FORMAT + 1}, "update brainevent-toolchain here"),
        ({"format": FORMAT - 1}, "build it again with this release"),
        ({"abi": ABI + 1}, "update brainevent-toolchain here"),
        ({"abi": 0}, "build here again with this"),
        ({"abi": "1"}, "damaged"),
        ({"images": {DIGEST: {"kind": "script", "platform": "cpu", "size": 1}}}, "damaged"),
        ({"images": []}, "damaged"),
        ({"targets": {"f": {}}}, "damaged"),
        ({"modules": None}, "damaged"),
        ({"machine": 64}, "damaged"),
        ({"images": {"../../elsewhere": INDEX.images[DIGEST]._asdict()}, "targets": {}}, "damaged"),
        ({"images": {DIGEST: INDEX.images[DIGEST]._asdict() | {"archs": [9]}}}, "damaged"),
        ({"images": {DIGEST: INDEX.images[DIGEST]._asdict() | {"size": None}}}, "damaged"),
        ({"images": {DIGEST: INDEX.images[DIGEST]._asdict() | {"kind": "cubin"}}}, "damaged"),
        (
            {"targets": {"lapack_sgetrf_ffi": {"image": DIGEST, "platform": "cpu", "stages": {"execute": "f"}}}},
            "damaged",
        ),
        ({"targets": {target_name(DIGEST, "f"): {"image": DIGEST, "platform": "cpu", "stages": {}}}}, "damaged"),
        ({"targets": {target_name("00" * 32, "f"): {"image": "00" * 32, "platform": "cpu", "stages": {}}}}, "damaged"),
    ],
)
def test_another_format_or_abi_says_which_side_to_update(changes: dict[str, Any], message: str):
    text = json.dumps(json.loads(render_index(INDEX)) | changes)
    with pytest.raises(LoadError) as caught:
        parse_index(text, "here")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", render_index(INDEX)[:-20], "[" * 100_000])
def test_a_damaged_index_is_named(text: str):
    with pytest.raises(LoadError, match="some/place has a damaged index"):
        parse_index(text, "some/place")


def test_a_value_that_means_nothing_is_damage_and_errors_of_ours_pass():
    with pytest.raises(LoadError, match="some/place has a damaged index: KeyError: 'x'"), reading("some/place"):
        INDEX.modules["x"]
    with pytest.raises(ArgumentError, match="ours"), reading("some/place"):
        raise ArgumentError("ours")
