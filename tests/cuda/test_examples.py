"""The examples where there is nvcc and no device."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime as brainevent

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize(("program", "functions"), [("train.py", ("matvec", "outer")), ("demo.py", ("axpy",))])
def test_sources_compile_for_hopper(program: str, functions: tuple[str, ...]):
    found = re.search(r'^CUDA_SOURCE = r"""(.*?)"""', (EXAMPLES / program).read_text(), re.DOTALL | re.MULTILINE)
    assert found
    module = brainevent.load_cuda_inline("example", found.group(1), compute_capability="sm_90", auto_register=False)
    assert module.function_names == list(functions)


@pytest.mark.usefixtures("tmp_cache")
def test_the_kernels_of_the_sparse_layer_compile_for_hopper():
    module = brainevent.load_cuda_file(EXAMPLES / "sparse.cu", compute_capability="sm_90", auto_register=False)
    assert module.function_names == ["currents", "spike_gradients", "weight_gradients", "learn"]


def test_the_demo_shows_each_part(tmp_path: Path, tmp_cache: Path):
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--without-training"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("CompiledModule(name='demo'") == 2
    assert "left out" not in done.stdout
    assert "[1. 3. 5. 7. 9.]" in done.stdout
    assert tmp_cache.is_dir()
