"""Choices as JSON, which of them is taken, and a package's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.tune.winners import (
    TunedDevice,
    Winner,
    find_winner,
    merged,
    parse_winners,
    render_winners,
    sources_digest,
    write_package,
)

H200 = TunedDevice("NVIDIA H200", "9.0", "580.1")
ROW = Winner("csr", "float32[1024]", {"block": 256}, 1.5, 3.0, *H200, "abc")


def row(block: int, **changes: object) -> Winner:
    return ROW._replace(config={"block": block}, **changes)  # type: ignore[arg-type]


def test_rows_come_back_from_json_sorted():
    rows = (row(64, bucket="float32[2048]"), ROW)
    assert parse_winners(render_winners(rows), "here") == (ROW, rows[0])
    assert render_winners(parse_winners(render_winners(rows), "here")) == render_winners(reversed(rows))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 1, "rows": [{"name": "x"}]}',
        '{"schema": 2, "rows": []}',
        pytest.param("[" * 100_000, id="nested"),
        b"\xff\xfe",
        pytest.param(render_winners([ROW]).replace('"float32[1024]"', "7"), id="bucket"),
        pytest.param(render_winners([ROW]).replace('{"block": 256}', '"block"'), id="config"),
        pytest.param(render_winners([ROW]).replace('"9.0"', "null"), id="sm"),
    ],
)
def test_other_text_is_refused(text: str | bytes):
    with pytest.raises(ArgumentError) as refused:
        parse_winners(text, "pkg/tuned.json")
    assert "pkg/tuned.json" in str(refused.value)
    assert "python -m be_runtime tune" in refused.value.hints[0]


def test_a_number_that_is_none_is_not_near():
    assert find_winner([row(1, bucket=f"float32[{'9' * 6000}]")], ROW.bucket, H200) is None


def test_the_same_device_comes_first_then_its_architecture():
    others = [row(1, device="NVIDIA H100"), row(2, driver="570.0"), row(3)]
    assert find_winner(others, ROW.bucket, H200) == others[2]
    assert find_winner(others[:2], ROW.bucket, H200) == others[1], "of another driver"
    assert find_winner(others[:1], ROW.bucket, H200) == others[0], "of another GPU of 9.0"
    assert find_winner([row(1, device="NVIDIA A100", sm="8.0")], ROW.bucket, H200) is None


def test_the_bucket_itself_on_a_like_gpu_is_better_than_a_near_one_on_this():
    like, near = row(1, device="NVIDIA H100"), row(2, bucket="float32[2048]")
    assert find_winner([near, like], ROW.bucket, H200) == like
    assert find_winner([near], ROW.bucket, H200) == near
    assert find_winner([row(1, bucket="int32[1024]")], ROW.bucket, H200) is None


def test_a_new_row_replaces_that_of_its_thing_bucket_and_device():
    new = row(512)
    other = row(64, device="NVIDIA A100", sm="8.0")
    assert merged([ROW, other], [new]) == (new, other)


def test_a_package_keeps_the_rows_of_other_devices(tmp_path: Path):
    other = row(64, device="NVIDIA A100", sm="8.0")
    write_package(tmp_path, [other])
    path = write_package(tmp_path, [ROW])
    assert {each["device"] for each in json.loads(path.read_text())["rows"]} == {"NVIDIA H200", "NVIDIA A100"}
    assert [each.name for each in tmp_path.iterdir()] == ["tuned.json"]


def test_the_sources_of_a_package_are_the_same_wherever_it_is(tmp_path: Path):
    for place in ("here", "there"):
        (tmp_path / place / "kernels").mkdir(parents=True)
        (tmp_path / place / "kernels" / "a.cu").write_text("a")
        (tmp_path / place / "b.cuh").write_text("b")
        (tmp_path / place / "notes.txt").write_text(place)
        (tmp_path / place / "_kernels").mkdir()
        (tmp_path / place / "_kernels" / "c.cc").write_text(place)
    assert sources_digest(tmp_path / "here") == sources_digest(tmp_path / "there")
    (tmp_path / "there" / "b.cuh").write_text("c")
    assert sources_digest(tmp_path / "here") != sources_digest(tmp_path / "there")
