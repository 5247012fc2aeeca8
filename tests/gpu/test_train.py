"""examples/train.py with its CUDA kernels."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support.examples import SHAPES, check_product, load_module, run_program


@pytest.fixture(scope="module")
def train() -> ModuleType:
    module = load_module("train")
    module.load_kernels()
    return module


@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_product_is_that_of_numpy(train: ModuleType, shape: tuple[int, int, int], density: float):
    check_product(train, shape, density)


def test_the_network_learns_and_agrees_with_plain_jax(tmp_path: Path):
    status, report = run_program("train", cwd=tmp_path)
    assert status == 0, report["checks"]
    assert report["platform"] == "gpu"
