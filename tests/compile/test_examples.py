"""The examples with their C++ kernels, on one device and on several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.examples import (
    EXAMPLES,
    SHAPES,
    SPARSE_SHAPES,
    check_currents,
    check_learning,
    check_product,
    check_split,
    load_module,
    run_program,
)
from tests.support.requirements import in_full


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


@pytest.fixture(scope="module")
def train() -> ModuleType:
    module = load_module("train")
    be_runtime.load_cpp_inline("events", module.CPP_SOURCE)
    return module


@pytest.fixture(scope="module")
def sparse() -> ModuleType:
    return load_module("sparse")


@pytest.fixture(scope="module")
def kernels(sparse: ModuleType) -> Any:
    return sparse.load_kernels("cpu")


def some(shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    """One with sizes that are no multiples, and an empty one; the others in full."""
    return [shape if number == 1 or shape == shapes[-1] else in_full(shape) for number, shape in enumerate(shapes)]


@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", some(SHAPES), ids=str)
def test_the_product_of_train_is_that_of_numpy(train: ModuleType, shape: tuple[int, int, int], density: float):
    check_product(train, shape, density)


@pytest.mark.parametrize("density", [in_full(0.0), 0.3, in_full(1.0)])
@pytest.mark.parametrize("dtype", ["int32", "uint16"])
@pytest.mark.parametrize("shape", some(SPARSE_SHAPES), ids=str)
def test_currents_and_gradients_of_sparse_are_those_of_numpy(
    kernels: Any, shape: tuple[int, int, int, int], dtype: str, density: float
):
    check_currents(kernels, shape, dtype, density)


def test_derivatives_are_those_of_differences_and_weights_change_in_place(kernels: Any):
    random = np.random.default_rng(0)
    spikes = random.choice([0.0, 1.0], (3, 20)).astype(np.float32)
    targets = random.integers(0, 7, (20, 4)).astype(np.int32)
    weights = random.standard_normal((20, 4)).astype(np.float32)
    be_runtime.gradcheck(kernels.currents, [spikes, targets, weights], post=7)
    check_learning(kernels)


def test_a_neuron_has_different_targets(sparse: ModuleType):
    targets = np.asarray(sparse.connect(jax.random.key(0), 50, 7))
    assert targets.shape == (50, 7)
    assert 0 <= targets.min() <= targets.max() < 50
    assert (np.diff(targets, axis=1) > 0).all()
    assert len({tuple(row) for row in targets}) > 1


@pytest.mark.filterwarnings("error::be_runtime.GatherWarning")
@pytest.mark.parametrize(("split", "forward"), [in_full("samples", []), ("neurons", ["all-reduce"])])
def test_devices_exchange_currents_or_gradients_alone(sparse: ModuleType, kernels: Any, split: str, forward: list[str]):
    assert check_split(sparse, kernels, jax.devices("cpu")[:2], split) == (forward, ["all-reduce"])


@pytest.mark.full
def test_eight_devices_learn_what_one_does(tmp_path: Path):
    small = ("--neurons", "800", "--batch", "16", "--steps", "30", "--cpu-devices", "8")
    status, report = run_program("sparse", *small, cwd=tmp_path)
    assert status == 0, report["checks"]
    split = ["samples split over 8", "neurons split over 8", "in place, neurons split over 8"]
    assert list(report["runs"]) == ["in place", "by jax.grad", *split]
    assert len(report["checks"]) == 7
    assert 0.005 < report["runs"]["in place"]["rate"] < 0.2
    assert set(report["plain_s"]) == {"dense matrices", "scatter-add"}


@pytest.mark.full
def test_the_network_of_train_learns_and_agrees_with_plain_jax(tmp_path: Path):
    status, report = run_program("train", cwd=tmp_path)
    assert status == 0, report["checks"]
    assert report["accuracy"] > 0.9
    assert 0.01 < report["firing_rate"] < 0.5


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("train", ("--steps", "3")), ("sparse", ("--neurons", "80", "--steps", "1", "--cpu-devices", "1"))],
)
def test_a_check_that_fails_is_the_exit_status(tmp_path: Path, name: str, arguments: tuple[str, ...]):
    status, report = run_program(name, *arguments, cwd=tmp_path)
    assert status == 1
    assert [check["passed"] for check in report["checks"]] == [False, True, True, True]


@pytest.mark.full
def test_the_second_run_of_csr_times_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "cache"))
    runs = [run_program("csr", "--rows", "1000", "--entries", "4", "40", cwd=tmp_path) for _ in range(2)]
    assert [(status, report["tunings"]) for status, report in runs] == [(0, 2), (0, 0)]
    first, second = (report["sizes"] for _, report in runs)
    assert all(size["tuned_us"] > 0 for size in first.values())
    assert {name: size["config"] for name, size in first.items()} == {
        name: size["config"] for name, size in second.items()
    }


@pytest.mark.full
@pytest.mark.parametrize("by_hand", [False, True], ids=["alone", "beside ffi.h"])
def test_the_fft_is_that_of_jax(by_hand: bool, tmp_path: Path):
    if by_hand and not hasattr(jax.ffi, "register_ffi_type"):
        pytest.skip("this JAX knows no types of states from Python")
    command = [sys.executable, str(EXAMPLES / "fft" / "fft.py"), "--repeat", "1", *(["--ffi"] if by_hand else [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the results are those of jnp.fft") == 1 + by_hand
