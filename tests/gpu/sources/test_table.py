"""Each source of kernels with each capability, and beside it the bridge of each project: a table for the docs.

With ``BE_TABLE`` in the environment, the cells are written into that folder; those of the latest run count.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.sources import cell
from tests.gpu.sources.ours import SOURCES
from tests.support.requirements import OPTIONAL, device_count

MODULES = {
    "numba": "tests.support.numba_kernels",
    "triton": "triton",
    "cute": "cutlass",
    "cutile": "cuda.tile",
    "tvm_ffi": "tvm_ffi",
    "jax-tvm-ffi": "jax_tvm_ffi",
    "jax-triton": "jax_triton",
    "cutlass.jax": "cutlass.jax",
    "cuda.tile.jax": "cuda.tile.jax",
}
BRIDGES = {"tvm_ffi": "jax-tvm-ffi", "triton": "jax-triton", "cute": "cutlass.jax", "cutile": "cuda.tile.jax"}
ROWS = [*(("ours", source, source) for source in SOURCES), *(("bridge", *row) for row in BRIDGES.items())]
NO_ANSWER = {("cpp", "CUDA graphs"): "not applicable"}
"""Cells of ours that can't be right, and why."""


@pytest.fixture(scope="module")
def cells() -> Iterator[dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, Any]] = {}
    yield found
    if folder := os.environ.get("BE_TABLE"):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "all")
        Path(folder, f"{time.time_ns()}-{worker}.json").write_text(json.dumps(found, indent=1))


@pytest.mark.parametrize("capability", cell.CELLS)
@pytest.mark.parametrize(("who", "source", "name"), ROWS, ids=[row[2] for row in ROWS])
def test_cell(
    who: str, source: str, name: str, capability: str, cells: dict[str, Any], tmp_path: Path, monkeypatch: Any
):
    if name in MODULES:
        pytest.importorskip(MODULES[name], reason=f"{OPTIONAL}{name}", exc_type=ImportError)
    if capability == "sharding" and who == "ours" and source != "cpp" and device_count() < 2:
        pytest.skip(f"{OPTIONAL}a second GPU")
    monkeypatch.chdir(tmp_path)
    environ = {
        "BE_CACHE_DIR": str(tmp_path / "cache"),
        "HOME": str(tmp_path),  # the bridges' caches
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(cell.__file__).parents[3]), os.environ.get("PYTHONPATH", "")]),
    }
    if capability == "CUDA graphs":
        environ["XLA_FLAGS"] = cell.GRAPHS
    if source == "cpp":
        environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    reason = NO_ANSWER.get((name, capability))
    found = {"reason": reason} if reason else cell.run(who, source, capability, environ)
    cells.setdefault(name, {})[capability] = {key: value for key, value in found.items() if key != "stderr"}
    if who == "ours" and reason is None:
        assert "reason" not in found, f"{found['reason']}\n{found.get('stderr')}"
