"""What the compiler's options change in results, and that none of them breaks a kernel."""

from __future__ import annotations

import ctypes
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import call, source

PAGE_FLAGS = [
    "--generate-line-info",
    "-maxrregcount=64",
    "--ptxas-options=-v",
    "-Xcompiler",
    "-march=native",
]
"""Those that the seed page passes."""
FUNCTIONS = {"quotient": ["arg", "arg", "ret", "stream"], "norm": ["arg", "ret", "stream"]}
TINY = np.float32(1e-40)  # below the smallest normal float32


def quotient(module: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(call(f"{module}.quotient", jax.ShapeDtypeStruct(a.shape, a.dtype), a, b))


def check_ordinary_numbers(module: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 2.0, 1000).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(quotient(module, a, b), a / b, rtol=1e-6)
    x = rng.uniform(-1.0, 1.0, (50, 20)).astype(np.float32)
    norm = call(f"{module}.norm", jax.ShapeDtypeStruct((50,), jnp.float32), x)
    np.testing.assert_allclose(norm, np.linalg.norm(x, axis=1), rtol=1e-5)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_optimization_levels(level: int):
    name = f"level_{level}"
    module = be_runtime.load_cuda_inline(
        name=name, cuda_sources=source("arithmetic"), functions=FUNCTIONS, optimization_level=level
    )
    check_ordinary_numbers(name)
    assert quotient(name, np.full(3, TINY), np.ones(3, np.float32)).tolist() == [TINY] * 3
    assert ctypes.CDLL(str(module.path)).host_is_optimized() == (level > 0)


def test_fast_math_flushes_what_exact_math_keeps():
    exact = be_runtime.load_cuda_inline(name="exact", cuda_sources=source("arithmetic"), functions=FUNCTIONS)
    fast = be_runtime.load_cuda_inline(
        name="fast", cuda_sources=source("arithmetic"), functions=FUNCTIONS, use_fast_math=True
    )
    assert exact.path != fast.path
    check_ordinary_numbers("fast")
    tiny, ones = np.full(4, TINY), np.ones(4, np.float32)
    assert quotient("exact", tiny, ones).tolist() == [TINY] * 4
    assert quotient("fast", tiny, ones).tolist() == [0.0] * 4


def test_exact_division_is_that_of_ieee():
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1e3, 1e3, 100_000).astype(np.float32) for _ in range(2))
    be_runtime.load_cuda_inline(name="exact", cuda_sources=source("arithmetic"), functions=FUNCTIONS)
    np.testing.assert_array_equal(quotient("exact", a, b), a / b)


def test_flags_of_the_page(capfd: pytest.CaptureFixture[str]):
    be_runtime.load_cuda_inline(
        name="page_flags",
        cuda_sources=source("arithmetic"),
        functions=FUNCTIONS,
        extra_cuda_cflags=PAGE_FLAGS,
        verbose=True,
        force_rebuild=True,
    )
    printed = capfd.readouterr().err
    assert "ptxas info" in printed
    assert "registers" in printed
    check_ordinary_numbers("page_flags")


def test_everything_at_once():
    be_runtime.load_cuda_inline(
        name="peak",
        cuda_sources=[source("arithmetic"), "// nothing more\n"],
        functions=FUNCTIONS,
        extra_cuda_cflags=["-maxrregcount=64"],
        compute_capability=None,
        target_prefix="peak.performance",
        ninja_workers=2,
        optimization_level=3,
        use_fast_math=True,
        allow_cuda_graph=True,
    )
    check_ordinary_numbers("peak.performance")


def test_two_architectures_in_one_library():
    be_runtime.load_cuda_inline(
        name="two_archs", cuda_sources=source("arithmetic"), functions=FUNCTIONS, compute_capability="8.0,9.0"
    )
    check_ordinary_numbers("two_archs")


def test_ptx_of_an_older_architecture_runs():
    """The device's driver translates it."""
    be_runtime.load_cuda_inline(
        name="older", cuda_sources=source("arithmetic"), functions=FUNCTIONS, compute_capability="sm_75"
    )
    check_ordinary_numbers("older")


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
