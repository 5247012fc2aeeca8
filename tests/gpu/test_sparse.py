"""examples/sparse.py with its CUDA kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest

from tests.support.examples import SPARSE_SHAPES, check_currents, check_learning, check_split, load_module, run_program
from tests.support.requirements import OPTIONAL, device_count

LARGE = ((1, 500, 400, 60_000), (2, 1000, 512, 50_000), (300, 9000, 4, 12))
"""Sums that don't fit into shared memory, sums that do, and more spikes than a block lists at once."""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return load_module("sparse").load_kernels("gpu")


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["int32", "uint16"])
@pytest.mark.parametrize("shape", [*SPARSE_SHAPES, *LARGE], ids=str)
def test_currents_and_gradients_are_those_of_numpy(
    kernels: Any, shape: tuple[int, int, int, int], dtype: str, density: float
):
    check_currents(kernels, shape, dtype, density)


def test_weights_change_in_place(kernels: Any):
    check_learning(kernels)


def test_the_network_learns_and_agrees_with_plain_jax(tmp_path: Path):
    status, report = run_program("sparse", "--neurons", "4000", cwd=tmp_path)
    assert status == 0, report["checks"]
    assert report["platform"] == "gpu"
    ways = 2 if device_count() == 1 else 5
    assert len(report["runs"]) == ways, "the training is split over all devices, where there are several"


@pytest.mark.skipif(device_count() < 2, reason=OPTIONAL + "a second device")
@pytest.mark.filterwarnings("error::be_runtime.GatherWarning")
@pytest.mark.parametrize(("split", "exchanges"), [("samples", (0, 1)), ("neurons", (1, 1))])
def test_devices_exchange_currents_or_gradients_alone(kernels: Any, split: str, exchanges: tuple[int, int]):
    forward, backward = check_split(load_module("sparse"), kernels, jax.devices(), split)
    assert (len(forward), len(backward)) == exchanges, (forward, backward)
    assert {*forward, *backward} <= {"all-reduce", "reduce-scatter"}
