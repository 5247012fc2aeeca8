"""examples/train.py as a module and as a program, for the tests of each platform."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "train.py"
SHAPES = ((1, 1, 1), (3, 33, 5), (64, 128, 8), (2, 70, 100), (5, 64, 0), (0, 4, 4), (4, 0, 4))


def load_module() -> ModuleType:
    """The program, imported and not run."""
    spec = importlib.util.spec_from_file_location("train", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module
    spec.loader.exec_module(module)
    return module


def run_program(*arguments: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    """Run the program with ``--json``: its exit status and its report."""
    command = [sys.executable, str(PROGRAM), "--json", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=240)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def check_product(train: ModuleType, shape: tuple[int, int, int], density: float) -> None:
    """Compare the product and both of its gradients with numpy's, for `(batch, n_in, n_out)`."""
    import jax

    batch, n_in, n_out = shape
    rng = np.random.default_rng(0)
    spikes = (rng.random((batch, n_in)) < density).astype(np.float32)
    weights = rng.standard_normal((n_in, n_out)).astype(np.float32)
    grads = rng.standard_normal((batch, n_out)).astype(np.float32)
    out, pullback = jax.vjp(train.event_matmul, spikes, weights)
    of_spikes, of_weights = pullback(grads)
    np.testing.assert_allclose(out, spikes @ weights, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(of_spikes, grads @ weights.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(of_weights, spikes.T @ grads, rtol=1e-4, atol=1e-4)
