"""examples/train.py with its C++ kernels."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import be_runtime as brainevent
from tests.support.examples import SHAPES, check_product, load_module, run_program


@pytest.fixture(scope="module")
def train() -> ModuleType:
    module = load_module("train")
    brainevent.load_cpp_inline("events", module.CPP_SOURCE)
    return module


@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_product_is_that_of_numpy(train: ModuleType, shape: tuple[int, int, int], density: float):
    check_product(train, shape, density)


def test_the_network_learns_and_agrees_with_plain_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    status, report = run_program("train", cwd=tmp_path)
    assert status == 0, report["checks"]
    assert report["accuracy"] > 0.9
    assert 0.01 < report["firing_rate"] < 0.5


def test_a_check_that_fails_is_the_exit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    status, report = run_program("train", "--steps", "3", cwd=tmp_path)
    assert status == 1
    assert [check["passed"] for check in report["checks"]] == [False, True, True, True]
