"""The programs of examples/, the pages about CUDA and those of the gallery run on a device."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

from benchmarks.gallery import PAGES
from benchmarks.gallery.measure import operations
from tests.support.docs import run_page
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
from tests.support.gallery import run_short
from tests.support.requirements import OPTIONAL, device_count

LARGE = ((1, 500, 400, 60_000), (2, 1000, 512, 50_000), (300, 9000, 4, 12))
"""Sums that don't fit into shared memory, sums that do, and more spikes than a block lists at once."""


@pytest.fixture(scope="module")
def train() -> ModuleType:
    module = load_module("train")
    module.load_kernels()
    return module


@pytest.fixture(scope="module")
def sparse() -> Any:
    return load_module("sparse").load_kernels("gpu")


@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_product_is_that_of_numpy(train: ModuleType, shape: tuple[int, int, int], density: float):
    check_product(train, shape, density)


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["int32", "uint16"])
@pytest.mark.parametrize("shape", [*SPARSE_SHAPES, *LARGE], ids=str)
def test_currents_and_gradients_are_those_of_numpy(
    sparse: Any, shape: tuple[int, int, int, int], dtype: str, density: float
):
    check_currents(sparse, shape, dtype, density)


def test_weights_change_in_place(sparse: Any):
    check_learning(sparse)


@pytest.mark.parametrize("arguments", [("train",), ("sparse", "--neurons", "4000")])
def test_a_network_learns_and_agrees_with_plain_jax(arguments: tuple[str, ...], tmp_path: Path):
    status, report = run_program(*arguments, cwd=tmp_path)
    assert status == 0, report["checks"]
    assert report["platform"] == "gpu"
    if arguments[0] == "sparse":
        ways = 2 if device_count() == 1 else 5
        assert len(report["runs"]) == ways, "the training is split over all devices, where there are several"


@pytest.mark.skipif(device_count() < 2, reason=OPTIONAL + "a second device")
@pytest.mark.filterwarnings("error::be_runtime.GatherWarning")
@pytest.mark.parametrize(("split", "exchanges"), [("samples", (0, 1)), ("neurons", (1, 1))])
def test_devices_exchange_currents_or_gradients_alone(sparse: Any, split: str, exchanges: tuple[int, int]):
    forward, backward = check_split(load_module("sparse"), sparse, jax.devices(), split)
    assert (len(forward), len(backward)) == exchanges, (forward, backward)
    assert {*forward, *backward} <= {"all-reduce", "reduce-scatter"}


@pytest.mark.parametrize(
    "page", ["docs/index.md", "docs/tutorial-cuda.md", "docs/compiler-options.md", "docs/port-cuda.md"]
)
def test_a_page_prints_what_it_says(page: str, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with_cpp = page != "docs/index.md"  # its C++ takes arrays of the CPU
    assert run_page(page, with_cpp=with_cpp) > 0


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_the_page_about_kernels_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("numba_cuda_mlir", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    assert run_page("docs/kernels.md") > 5


def test_a_norm_of_each_language_agrees_with_plain_jax(tmp_path: Path):
    out = tmp_path / "norms.json"
    small = ("--rows", "300", "--columns", "384", "--rounds", "1", "--out", str(out))
    command = [sys.executable, str(EXAMPLES / "norms" / "norms.py"), *small]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout + done.stderr
    installed = [name for name, package in (("Triton", "triton"), ("CuTe DSL", "cutlass")) if find_spec(package)]
    assert [*json.loads(out.read_text())["kernels"]] == ["CUDA", *installed, "plain JAX"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_gallery_times_its_kernel_beside_plain_jax(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    records = [each for operation in operations(run_short(name)["result"]) for each in operation["records"]]
    assert "cuda" in {each["backend"] for each in records}
    assert [each["error"] for each in records if each["error"]] == []
