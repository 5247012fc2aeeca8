"""Sizes that share a choice, and the nearest of those that are known."""

from __future__ import annotations

import pytest

from be_runtime.tune.buckets import bucket_of, nearest


@pytest.mark.parametrize(
    ("extent", "rounded"), [(0, 0), (1, 1), (2, 2), (3, 4), (1000, 1024), (1024, 1024), (1025, 2048)]
)
def test_extents_are_rounded_up_to_powers_of_two(extent: int, rounded: int):
    assert bucket_of([("float32", (extent,))]) == f"float32[{rounded}]"


def test_types_and_axes_are_told_apart():
    shapes = [("float32", (4, 4)), ("float16", (4, 4)), ("float32", (4, 4, 1)), ("float32", (16,)), ("float32", ())]
    assert len({bucket_of([each]) for each in shapes}) == len(shapes)


def test_the_nearest_is_that_of_the_smallest_ratio_over_all_extents():
    known = ["float32[1024,64]", "float32[4096,4096]", "float32[2048,128]"]
    assert nearest("float32[2048,64]", known) == "float32[1024,64]"
    assert nearest("float32[4096,1024]", known) == "float32[4096,4096]"


def test_other_types_other_axes_and_names_of_an_author_are_not_near():
    assert nearest("float32[8]", ["int32[8]", "float32[8,8]", "float32[8] float32[8]", "small"]) is None
    assert nearest("small", ["small"]) == "small"
    assert nearest("small", ["large"]) is None
    assert nearest("float32[8]", []) is None
