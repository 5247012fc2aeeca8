"""Grids and blocks from what callers write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime import cuda_kernel
from be_runtime.errors import ArgumentError
from be_runtime.kernels.cuda.describe import Geometry
from be_runtime.kernels.cuda.geometry import automatic_block, automatic_geometry, choose_geometry, explicit_geometry


def test_numbers_and_tuples_fill_up_with_ones():
    found = explicit_geometry((2, 3), np.int64(64), shared_mem=100, cluster=(2, 1))
    assert found.encode() == (2, 3, 1, 64, 1, 1, 100, 2, 1, 1, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grid": 0}, "0 is below 1"),
        ({"grid": -4}, "-4 is below 1"),
        ({"grid": (1, 70_000)}, "70000 blocks along y; the most is 65535"),
        ({"grid": 2**31}, "the most is 2147483647"),
        ({"grid": (1, 1, 1, 1)}, "has 4 dimensions"),
        ({"grid": ()}, "has 0 dimensions"),
        ({"grid": 1.5}, "must be a whole number"),
        ({"grid": "4"}, "must be a whole number"),
        ({"grid": True}, "must be a whole number"),
        ({"grid": None}, "must be a whole number"),
        ({"block": 2048}, "2048 threads along x; the most is 1024"),
        ({"block": (1, 1, 128)}, "along z; the most is 64"),
        ({"block": (32, 33)}, "has 1056 threads"),
        ({"shared_mem": -1}, "shared_mem"),
        ({"shared_mem": 256 * 1024}, "shared_mem=262144 is too much"),
        ({"shared_mem": (100, 200)}, r"shared_mem must be one whole number, not \(100, 200\)"),
        ({"shared_mem": "48k"}, "shared_mem must be one whole number, not '48k'"),
        ({"cluster": 32}, "has 32 blocks"),
        ({"cluster": 3}, "does not divide grid=4"),
    ],
)
def test_what_no_gpu_can_do_is_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        explicit_geometry(**({"grid": 4, "block": 32} | arguments))


def test_a_long_axis_belongs_first():
    with pytest.raises(ArgumentError, match="put the longest dimension first"):
        automatic_geometry((16, 2_000_000))


def test_what_some_gpu_may_have_is_left_to_the_launcher():
    assert explicit_geometry(4, 32, shared_mem=256 * 1024 - 1).encode()[6] == 256 * 1024 - 1


def test_a_grid_of_no_blocks_where_there_is_nothing_to_compute():
    assert explicit_geometry(0, 32, is_empty=True).grid == (0, 1, 1)


@given(
    st.lists(st.integers(0, 60_000), min_size=1, max_size=3),
    st.integers(1, 1024),
)
def test_automatic_grids_cover_the_dimensions(dims: list[int], threads: int):
    found = automatic_geometry(tuple(dims), threads)
    for size, blocks, width in zip(dims, found.grid, found.block, strict=False):
        assert blocks * width >= size
        assert (blocks - 1) * width < max(size, 1)
    assert np.prod(found.block) <= threads


@given(st.integers(1, 3), st.integers(0, 10))
def test_powers_of_two_are_used_up(ndim: int, bits: int):
    assert np.prod(automatic_block(ndim, 2**bits)) == 2**bits


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "neither"),
        ({"grid": 1}, "grid is given without block"),
        ({"block": 1}, "block is given without grid"),
        ({"grid": 1, "block": 1, "launch_dims": 1}, "both"),
        ({"launch_dims": 0}, "launches nothing"),
        ({"launch_dims": 8, "threads_per_block": 2000}, "threads_per_block=2000 is too large"),
        ({"launch_dims": 8, "threads_per_block": (16, 16)}, r"threads_per_block must be one whole number, not \(16"),
        ({"grid": 1, "block": 32, "threads_per_block": 0}, "threads_per_block=0 is not allowed"),
        (
            {"grid": 1, "block": 32, "threads_per_block": "many"},
            "threads_per_block must be one whole number, not 'many'",
        ),
        ({"grid": 1, "block": 32, "threads_per_block": 2000}, "threads_per_block=2000 is too large"),
        ({"grid": 1, "block": (32, 2), "threads_per_block": 32}, "=32 is given with a block of 64 threads"),
    ],
)
def test_exactly_one_way_to_say_what_to_launch(given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        choose(**given)


def choose(**given: Any) -> Geometry:
    """`choose_geometry` with the defaults of `numba_cuda_kernel`."""
    arguments = {"grid": None, "block": None, "launch_dims": None, "threads_per_block": 256, "shared_mem": 0} | given
    return choose_geometry(**arguments, is_empty=False)


@pytest.mark.parametrize("threads", [256, 64])
def test_threads_per_block_may_be_the_default_or_what_the_block_has(threads: int):
    assert choose(grid=4, block=(16, 4), threads_per_block=threads).block == (16, 4, 1)


@pytest.mark.parametrize("argument", [{"grid": 0}, {"block": 2048}, {"shared_mem": 10**6}, {"shared_mem": "48k"}])
def test_a_raw_kernel_with_such_numbers_is_not_made(argument: dict[str, Any]):
    launch: dict[str, Any] = {"grid": 1, "block": 32} | argument
    with pytest.raises(ArgumentError):
        cuda_kernel("__global__ void f(float* y) {}", "f", outs=lambda: np.zeros(1), **launch)
