"""examples/sparse.py with its C++ kernels, on one device and on several."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.examples import SPARSE_SHAPES, check_currents, check_learning, check_split, load_module, run_program


@pytest.fixture(scope="module")
def sparse() -> ModuleType:
    return load_module("sparse")


@pytest.fixture(scope="module")
def kernels(sparse: ModuleType) -> Any:
    return sparse.load_kernels("cpu")


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["int32", "uint16"])
@pytest.mark.parametrize("shape", SPARSE_SHAPES, ids=str)
def test_currents_and_gradients_are_those_of_numpy(
    kernels: Any, shape: tuple[int, int, int, int], dtype: str, density: float
):
    check_currents(kernels, shape, dtype, density)


def test_derivatives_are_those_of_differences(kernels: Any):
    random = np.random.default_rng(0)
    spikes = random.choice([0.0, 1.0], (3, 20)).astype(np.float32)
    targets = random.integers(0, 7, (20, 4)).astype(np.int32)
    weights = random.standard_normal((20, 4)).astype(np.float32)
    be_runtime.gradcheck(kernels.currents, [spikes, targets, weights], post=7)


def test_weights_change_in_place(kernels: Any):
    check_learning(kernels)


def test_a_neuron_has_different_targets(sparse: ModuleType):
    targets = np.asarray(sparse.connect(jax.random.key(0), 50, 7))
    assert targets.shape == (50, 7)
    assert targets.min() >= 0
    assert targets.max() < 50
    assert (np.diff(targets, axis=1) > 0).all()
    assert len({tuple(row) for row in targets}) > 1


@pytest.mark.filterwarnings("error::be_runtime.GatherWarning")
@pytest.mark.parametrize(
    ("split", "forward", "backward"),
    [("samples", [], ["all-reduce"]), ("neurons", ["all-reduce"], ["all-reduce"])],
)
def test_devices_exchange_currents_or_gradients_alone(
    sparse: ModuleType, kernels: Any, split: str, forward: list[str], backward: list[str]
):
    found = check_split(sparse, kernels, jax.devices("cpu")[:2], split)
    assert found == (forward, backward)


def test_eight_devices_learn_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    small = ("--neurons", "800", "--batch", "16", "--steps", "30", "--cpu-devices", "8")
    status, report = run_program("sparse", *small, cwd=tmp_path)
    assert status == 0, report["checks"]
    split = ["samples split over 8", "neurons split over 8", "in place, neurons split over 8"]
    assert list(report["runs"]) == ["in place", "by jax.grad", *split]
    assert len(report["checks"]) == 7
    assert 0.005 < report["runs"]["in place"]["rate"] < 0.2
    assert set(report["plain_s"]) == {"dense matrices", "scatter-add"}


def test_a_check_that_fails_is_the_exit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    status, report = run_program("sparse", "--neurons", "80", "--steps", "1", "--cpu-devices", "1", cwd=tmp_path)
    assert status == 1
    assert [check["passed"] for check in report["checks"]] == [False, True, True, True]
