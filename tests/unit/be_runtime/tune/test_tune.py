"""Sizes that share a choice, configurations, the choice among samples, and choices as JSON and as a package's file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from be_runtime.errors import ArgumentError
from be_runtime.kernels import benchmark
from be_runtime.tune import timing, winners
from be_runtime.tune.timing import choose, differs
from be_runtime.tune.winners import (
    TunedDevice,
    Winner,
    bucket_of,
    expand,
    find_winner,
    name_of,
    nearest,
    parse_winners,
    render_winners,
)
from tests.support.hostile_files import full_disk


def test_extents_are_rounded_up_to_powers_of_two():
    rounded = {0: 0, 1: 1, 2: 2, 3: 4, 1000: 1024, 1024: 1024, 1025: 2048}
    assert [bucket_of([("float32", (each,))]) for each in rounded] == [f"float32[{up}]" for up in rounded.values()]


def test_types_and_axes_are_told_apart():
    shapes = [("float32", (4, 4)), ("float16", (4, 4)), ("float32", (4, 4, 1)), ("float32", (16,)), ("float32", ())]
    assert len({bucket_of([each]) for each in shapes}) == len(shapes)


def test_the_nearest_is_that_of_the_smallest_ratio_over_all_extents():
    known = ["float32[1024,64]", "float32[4096,4096]", "float32[2048,128]"]
    assert (nearest("float32[2048,64]", known), nearest("float32[4096,1024]", known)) == tuple(known[:2])
    assert nearest("float32[8]", ["int32[8]", "float32[8,8]", "float32[8] float32[8]", "small"]) is None
    assert [nearest("small", known) for known in (["small"], ["large"], [])] == ["small", None, None]


def test_configurations_are_all_combinations_in_the_authors_order_or_a_list_without_repetition():
    found = expand({"block": [256, 64], "vector": (1, 4)})
    assert [(each["block"], each["vector"]) for each in found] == [(256, 1), (256, 4), (64, 1), (64, 4)]
    assert expand([{"a": 1}, {"a": 2}, {"a": 1}]) == ({"a": 1}, {"a": 2})
    assert expand({}) == ({},), "no choice is one configuration"
    assert name_of({"a": 1, "b": "x"}) == name_of({"b": "x", "a": 1})


def test_what_is_no_configuration_is_refused():
    refused: list[tuple[Any, str]] = [
        *(([], "names no configuration"), ({"block": []}, "names no configuration")),
        *(({"block": 64}, "configs['block'] is 64"), ([64], "configs[0] is 64"), ([{1: 2}], "configs[0] is {1: 2}")),
        ([{"kind": object}], "kept as JSON"),
    ]
    for configs, said in refused:
        with pytest.raises(ArgumentError, match=re.escape(said)) as caught:
            expand(configs)
        assert caught.value.hints


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
        *("", "[]", "{}", '{"schema": 1, "rows": [{"name": "x"}]}', '{"schema": 2, "rows": []}', b"\xff\xfe"),
        *(render_winners([ROW]).replace('"float32[1024]"', "7"), render_winners([ROW]).replace('"9.0"', "null")),
        *(render_winners([ROW]).replace('{"block": 256}', '"block"'), "[" * 100_000),
    ],
    ids=lambda text: None if len(text) < 50 else f"{len(text)} characters",
)
def test_other_text_is_refused(text: str | bytes):
    with pytest.raises(ArgumentError) as refused:
        parse_winners(text, "pkg/tuned.json")
    assert "pkg/tuned.json" in str(refused.value)
    assert "python -m be_runtime tune" in refused.value.hints[0]


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
    for bucket in ("int32[1024]", f"float32[{'9' * 6000}]"):
        assert find_winner([row(1, bucket=bucket)], ROW.bucket, H200) is None


def test_a_new_row_replaces_that_of_its_thing_bucket_and_device():
    new = row(512)
    other = row(64, device="NVIDIA A100", sm="8.0")
    assert winners.merged([ROW, other], [new]) == (new, other)


def test_a_package_keeps_the_rows_of_other_devices(tmp_path: Path):
    winners.write_package(tmp_path, [row(64, device="NVIDIA A100", sm="8.0")])
    with full_disk(), pytest.raises(ArgumentError, match="can't be written"):
        winners.write_package(tmp_path, [ROW])
    assert [each.name for each in tmp_path.iterdir()] == ["tuned.json"]
    path = winners.write_package(tmp_path, [ROW])
    assert {each["device"] for each in json.loads(path.read_text())["rows"]} == {"NVIDIA H200", "NVIDIA A100"}
    assert [each.name for each in tmp_path.iterdir()] == ["tuned.json"]


def test_the_sources_of_a_package_are_the_same_wherever_it_is(tmp_path: Path):
    for place in ("here", "there"):
        texts = {"kernels/a.cu": "a", "b.cuh": "b", "notes.txt": place, "_kernels/c.cc": place}
        for name, text in texts.items():
            (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place / name).write_text(text)
    assert winners.sources_digest(tmp_path / "here") == winners.sources_digest(tmp_path / "there")
    (tmp_path / "there" / "b.cuh").write_text("c")
    assert winners.sources_digest(tmp_path / "here") != winners.sources_digest(tmp_path / "there")


def test_the_fastest_wins():
    assert choose({0: [4.0, 4.0], 1: [2.0, 2.0], 2: [1.0, 1.0]}) == 2
    assert choose({0: [1.0, 1.0], 1: [0.99, 0.99]}) == 0, "of equals the first"
    assert choose({3: [1.0]}) == 3
    assert choose({0: [1.0, 10.0, 1.0, 10.0], 1: [0.9, 9.0, 0.9, 9.0]}) == 1, "rounds are compared with each other"
    assert choose({0: [1.0, 1.0, 1.0, 1.0], 1: [0.2, 0.2, 1.5, 1.5]}) == 0, "one that wins half of them does not win"


def test_runners_take_turns_in_opposite_orders(monkeypatch: pytest.MonkeyPatch):
    called: list[str] = []
    monkeypatch.setattr(benchmark, "seconds_of", lambda run, count: run(count) or count)
    runners = {name: lambda count, name=name: called.append(f"{name}{count}") for name in ("a", "b")}
    assert benchmark.sample_runners(runners, 0, 2, 1) == {"a": [1, 1], "b": [1, 1]}
    assert called == ["a2", "a1", "b2", "b1", "b2", "b1", "a2", "a1"]


@pytest.mark.parametrize(
    ("noise", "calls", "expected"), [((0, 9), 8, 1.0), ((0, 9, 0, 99), 32, 1.0), ((0, 9, 0, 99, 0, 999), 32, 33 / 32)]
)
def test_a_call_never_takes_less_than_no_time(
    monkeypatch: pytest.MonkeyPatch, noise: tuple[int, ...], calls: int, expected: float
):
    """A loop costs one second, and as many as its calls; the noise comes on top."""
    left, counts = [*noise, *([0] * 9)], list[int]()

    def seconds_of(_run: benchmark.Runner, count: int) -> float:
        counts.append(count)
        return 1 + count + left.pop(0)

    monkeypatch.setattr(benchmark, "seconds_of", seconds_of)
    assert benchmark.seconds_of_call(counts.append, 1) == expected
    assert counts[-2:] == [calls, calls // 2]


def test_the_flush_alone_is_taken_off_what_is_shown(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def runner(seconds: float) -> benchmark.Runner:
        def run(count: int) -> None:
            now[0] += 1e-4 + count * seconds  # a loop has a cost of its own too

        return run

    samples, warm_us, cold_us = timing.time_variants({0: runner(1e-3)}, {0: runner(6e-3)}, runner(2e-3), 4)
    assert samples == {0: pytest.approx([6e-3] * 4)}
    assert (cold_us[0], warm_us[0]) == pytest.approx((4000, 1000))
    assert timing.time_variants({0: runner(1e-3)}, {}, None, 2)[2] == {}


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def small(*values: int) -> np.ndarray:
    return np.array(values, ml_dtypes.uint4)


EQUAL = (
    *((np.arange(3), np.arange(3)), (floats(1, 1e6), floats(1.5, 1e6)), (small(15, 3), small(15, 3))),
    *((np.array([1.0], np.float16), np.array([1.001], np.float16)), (np.array([1 + 1j]), np.array([1 + 1j]))),
    *((np.array([np.nan, np.inf]), np.array([np.nan, np.inf])), (np.zeros(0), np.zeros(0))),
)
DIFFERENT = (
    *((np.arange(3), np.array([0, 1, 3])), (floats(1, 1e6), floats(1, 1e6 + 20)), (small(15, 3), small(15, 4))),
    *((np.array([1.0]), np.array([1.0 + 1e-9])), (np.array([1.0], np.float16), np.array([1.01], np.float16))),
    *((np.array([np.nan, 1.0]), np.array([1.0, 1.0])), (np.array([np.inf, 1.0]), np.array([-np.inf, 1.0]))),
    *((np.array([1 + 1j]), np.array([1 - 1j])), (np.array([True]), np.array([False]))),
    *((np.zeros(3), np.zeros(4)), (np.zeros(3, np.float32), np.zeros(3, np.float16))),
)


def test_results_are_compared_with_the_first_and_an_author_may_check_them():
    assert not any(differs([expected], [found]) for expected, found in EQUAL)
    assert all(differs([expected], [found]) for expected, found in DIFFERENT)
    assert differs([np.zeros(2)], [np.ones(2)], lambda _first, _other: True) == ""
    assert differs([np.zeros(2)], [np.zeros(2)], lambda _first, _other: False) == "result 0 does not pass the check"
