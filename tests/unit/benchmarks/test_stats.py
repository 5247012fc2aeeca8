from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stats import alternating, paired_ratio, summarize

DURATIONS = st.floats(min_value=1e-9, max_value=1e3)
PAIRS = st.lists(st.tuples(DURATIONS, DURATIONS), min_size=1, max_size=20)


def _columns(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


@pytest.mark.parametrize(
    ("rounds", "order"), [(0, ""), (1, "ABC"), (2, "ABCCBA"), (3, "ABCCBAABC"), (4, "ABCCBAABCCBA")]
)
def test_rounds_alternate(rounds: int, order: str):
    assert "".join(name for group in alternating("ABC", rounds) for name in group) == order


def test_a_summary_has_the_samples_in_few_numbers():
    summary = summarize([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (summary.count, summary.median, summary.minimum, summary.maximum) == (5, 3.0, 1.0, 5.0)
    assert summary.spread == pytest.approx(2 / 3)


def test_a_single_sample_has_no_spread():
    assert summarize([2.0]).spread == 0.0


def test_no_samples_have_no_summary():
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


def test_a_drift_of_the_machine_cancels_in_pairs():
    drift = [1.0, 2.0, 4.0, 8.0]
    ratio = paired_ratio([1.5 * value for value in drift], drift)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


def test_the_ratio_is_the_median_of_ratios_and_one_outlier_does_not_move_it():
    assert paired_ratio([1.1, 1.2, 1.0, 90.0, 1.1], [1.0] * 5).value == pytest.approx(1.1)


def test_more_pairs_narrow_the_interval():
    generator = random.Random(1)  # noqa: S311 - no secret
    ours = [1.1 + generator.gauss(0, 0.05) for _ in range(200)]
    few, many = (paired_ratio(ours[:count], [1.0] * count) for count in (10, 200))
    assert many.high - many.low < few.high - few.low
    assert many.low < 1.1 < many.high


def test_pairs_of_one_process_count_once():
    ours = [1.0] * 50 + [1.2] * 50 + [1.1] * 50
    alone, together = paired_ratio(ours, [1.0] * 150), paired_ratio(ours, [1.0] * 150, block=50)
    assert (together.low, together.high) == (1.0, 1.2)
    assert together.high - together.low > alone.high - alone.low


def test_a_single_process_is_resampled_by_pairs():
    ratio = paired_ratio([1.0, 1.2, 1.1], [1.0] * 3, block=3)
    assert ratio.low < ratio.high


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], []), ([1.0], [1.0, 2.0])])
def test_what_has_no_partner_is_refused(ours: list[float], theirs: list[float]):
    with pytest.raises(ValueError, match="pairs are needed"):
        paired_ratio(ours, theirs)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_a_duration_is_above_0(bad: float):
    with pytest.raises(ValueError, match="above 0"):
        paired_ratio([1.0], [bad])


@given(PAIRS, st.integers(1, 5))
def test_the_interval_is_within_the_ratios(pairs: list[tuple[float, float]], block: int):
    ours, theirs = _columns(pairs)
    ratios = [a / b for a, b in pairs]
    estimate = paired_ratio(ours, theirs, block=block, resamples=50)
    assert min(ratios) <= estimate.low <= estimate.high <= max(ratios)
    assert min(ratios) <= estimate.value <= max(ratios)


@given(PAIRS, st.floats(min_value=1e-3, max_value=1e3))
def test_the_unit_of_time_does_not_matter(pairs: list[tuple[float, float]], unit: float):
    ours, theirs = _columns(pairs)
    scaled = paired_ratio([unit * value for value in ours], [unit * value for value in theirs], resamples=50)
    assert scaled.value == pytest.approx(paired_ratio(ours, theirs, resamples=50).value)
