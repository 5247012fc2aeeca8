"""Every CUDA source of the pages, the examples and the gallery compiles where there is no device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from benchmarks.gallery import PAGES, page_path
from benchmarks.gallery.page import Run
from tests.support.docs import build_cuda_sources
from tests.support.examples import EXAMPLES, load_module
from tests.support.kernel_calls import kernel_calls
from tests.support.requirements import OPTIONAL
from tests.support.runtime import environment, run_python


@pytest.mark.full
@pytest.mark.parametrize("page", ["docs/index.md", "docs/tutorial-cuda.md", "docs/compiler-options.md"])
def test_sources_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert build_cuda_sources(page, "sm_90") > 0


@pytest.mark.full
def test_the_kernels_of_the_sparse_layer():
    module = be_runtime.load_cuda_file(EXAMPLES / "sparse.cu", auto_register=False)
    assert module.function_names == ["currents", "spike_gradients", "weight_gradients", "learn"]


@pytest.mark.full
@pytest.mark.parametrize("name", PAGES)
def test_kernels_of_the_gallery_have_the_entry_points_of_its_cpp(name: str):
    page = Run(page_path(name)).until("kernels")
    module = be_runtime.load_cuda_inline(name, page["CUDA"], auto_register=False)
    assert module.function_names == page["kernels"].function_names


@pytest.mark.parametrize(("name", "package"), [("CUDA", "jax"), ("Triton", "triton"), ("CuTe DSL", "cutlass")])
def test_a_norm_of_each_language_with_its_gradient_is_one_call(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip(package, reason=f"{OPTIONAL}{package}", exc_type=ImportError)
    monkeypatch.syspath_prepend(EXAMPLES / "norms")
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # else Triton 3.9 warns
    norm = load_module("norms/norms").load(name, 384, "bfloat16")
    x, weight = jnp.ones((2, 3, 384), jnp.bfloat16), jnp.ones(384, jnp.bfloat16)

    def slopes(x: jax.Array) -> Any:
        return jax.vjp(jax.vmap(norm, (0, None)), x, weight)[1](x)

    (call,) = kernel_calls(slopes, x)
    assert "for each element" not in str(call.params["call"])


@pytest.mark.full
def test_the_readme_runs_where_there_is_no_device(tmp_cache: Path):
    """All of its blocks, one after the other."""
    code = "from tests.support.docs import run_page; print(run_page('README.md'))"
    hidden = environment(CUDA_VISIBLE_DEVICES="", BE_COMPUTE_CAPABILITIES=None, JAX_PLATFORMS=None)
    assert run_python(code, env=hidden).stdout.split() == ["2"]


def test_the_demo_shows_each_part(tmp_path: Path, tmp_cache: Path):
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--without-training"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("CompiledModule(name='demo'") == 2
    assert "left out" not in done.stdout
    assert "[1. 3. 5. 7. 9.]" in done.stdout
