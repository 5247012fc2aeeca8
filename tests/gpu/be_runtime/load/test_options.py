"""What the compiler's options change in results, and that none of them breaks a kernel."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import call, source

FUNCTIONS = {"quotient": ["arg", "arg", "ret", "stream"], "norm": ["arg", "ret", "stream"]}
TINY = np.float32(1e-40)  # below the smallest normal float32


PAGE_FLAGS = ["--generate-line-info", "-maxrregcount=64", "--ptxas-options=-v", "-Xcompiler", "-march=native"]
"""Those that the seed page passes."""
PEAK = {"extra_cuda_cflags": ["-maxrregcount=64"], "ninja_workers": 2, "use_fast_math": True, "allow_cuda_graph": True}
WAYS: dict[str, dict[str, Any]] = {
    **{f"level_{level}": {"optimization_level": level} for level in range(4)},
    "fast": {"use_fast_math": True},
    "page_flags": {"extra_cuda_cflags": PAGE_FLAGS},
    "peak": PEAK,
    "two_archs": {"compute_capability": "8.0,9.0"},
    "older": {"compute_capability": "sm_75"},  # the device's driver translates its PTX
}


def quotient(module: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(call(f"{module}.quotient", jax.ShapeDtypeStruct(a.shape, a.dtype), a, b))


@pytest.mark.parametrize("way", WAYS)
def test_ordinary_numbers_and_numbers_below_the_smallest_normal_one(way: str):
    """Fast math flushes what exact math keeps."""
    prefix, texts = f"options.{way}", [source("arithmetic"), "// nothing more\n"]
    module = be_runtime.load_cuda_inline(way, texts, FUNCTIONS, target_prefix=prefix, **WAYS[way])
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 2.0, 1000).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(quotient(prefix, a, b), a / b, rtol=1e-6)
    x = rng.uniform(-1.0, 1.0, (50, 20)).astype(np.float32)
    norm = call(f"{prefix}.norm", jax.ShapeDtypeStruct((50,), jnp.float32), x)
    np.testing.assert_allclose(norm, np.linalg.norm(x, axis=1), rtol=1e-5)
    kept = 0.0 if "use_fast_math" in WAYS[way] else TINY
    assert quotient(prefix, np.full(4, TINY), np.ones(4, np.float32)).tolist() == [kept] * 4
    assert ctypes.CDLL(str(module.path)).host_is_optimized() == (way != "level_0")


def test_exact_division_is_that_of_ieee():
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1e3, 1e3, 100_000).astype(np.float32) for _ in range(2))
    be_runtime.load_cuda_inline("exact", source("arithmetic"), FUNCTIONS)
    np.testing.assert_array_equal(quotient("exact", a, b), a / b)


@pytest.mark.parametrize("flags", [[], ["--use_fast_math"], ["-O1"]])
def test_results_are_bit_for_bit_those_of_plain_nvcc(flags: list[str], tmp_path: Path):
    rng = np.random.default_rng(len(flags))
    a, b = (rng.uniform(-1e3, 1e3, 10_000).astype(np.float32) for _ in range(2))
    rows = rng.normal(size=(100, 333)).astype(np.float32)
    answers = []
    for way, extra in (("phases", []), ("whole", ["--time", str(tmp_path / "t.csv")])):
        name = f"bits_{way}_{'_'.join(flag.strip('-') for flag in flags)}"
        module = be_runtime.load_cuda_inline(name, source("arithmetic"), extra_cuda_cflags=[*flags, *extra])
        assert ("cudafe++" in (module.path.parent / "build.log").read_text()) == (way == "phases")
        norm = np.asarray(call(f"{name}.norm", jax.ShapeDtypeStruct((100,), jnp.float32), rows))
        answers.append((quotient(name, a, b).tobytes(), norm.tobytes()))
    assert answers[0] == answers[1]
