"""Triton's decorators on a device: calls time configurations once, heuristics follow the arrays, and constants hold."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import triton_kernel
from tests.support.requirements import OPTIONAL

triton: Any = pytest.importorskip("triton", reason=f"{OPTIONAL}triton", exc_type=ImportError)
import triton.language as tl  # noqa: E402

SALT = uuid4().int % 2**30
"""Part of the kernels below, since the cache keeps what earlier runs of these tests chose."""

SLOW, FAST = {"BLOCK": 16, "REPEAT": 64}, {"BLOCK": 1024, "REPEAT": 1}
CONFIGS = [
    triton.Config(SLOW, num_warps=1),
    triton.Config(FAST, num_warps=4),
    triton.Config({"BLOCK": 2**22, "REPEAT": 1}),
]
"""The last one is larger than Triton allows."""


@pytest.fixture(autouse=True)
def _fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # else Triton 3.9 warns


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def scaled(x, out, n, by, BLOCK: tl.constexpr, REPEAT: tl.constexpr, NUMBER: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(REPEAT):
        tl.store(out + i, by * tl.load(x + i, mask=i < n) + 0 * NUMBER, mask=i < n)
        tl.debug_barrier()


def call_scaled() -> Any:
    signature = "arg[... n] ret[... n] attr.by:float32"
    return triton_kernel(scaled, signature, grid="ceil(n/BLOCK)", NUMBER=SALT)


def chosen(config: Any) -> dict[str, Any]:
    return {name: config[name] for name in FAST}


def test_the_first_call_times_and_programs_use_the_choice():
    call, x = call_scaled(), jnp.arange(2.0**20) % 100
    assert chosen(call.config(x, by=2)) == SLOW
    np.testing.assert_array_equal(call(x, by=2), 2 * x)
    assert chosen(call.config(x, by=2)) == FAST, str(call)
    assert "tuned now" in str(call)
    again = call_scaled()
    np.testing.assert_array_equal(jax.jit(lambda x: again(x, by=3))(x), 3 * x)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda x: again(x, by=3)))(jnp.stack([x, x])), 3 * jnp.stack([x, x]))
    np.testing.assert_array_equal(again(x, by=2), 2 * x)
    assert chosen(again.config(x, by=2)) == FAST
    assert "tuned now" not in str(again), "nothing is timed"
    (trial,) = (each for each in call.tune(x, by=2).trials if each.config["BLOCK"] == 2**22)
    assert trial.rejected.startswith("BuildError")


def test_a_constant_of_the_trace_is_no_reason_to_time():
    call, x = call_scaled(), jnp.arange(300.0)
    np.testing.assert_array_equal(jax.jit(lambda: call(x, by=2))(), 2 * x)
    assert "tuned now" not in str(call)


@triton.autotune(
    [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})],
    key=[],
    reset_to_zero=["total"],
    restore_value=["total"],
)
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def summed(x, total, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.load(x + i) if EVEN else tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(total, tl.sum(part))


@pytest.mark.parametrize("n", [1, 128, 1000, 1024])
def test_heuristics_follow_the_sizes_and_each_call_adds_to_its_own_array(n: int):
    call = triton_kernel(summed, "arg[n] inout[1]", grid="ceil(n/BLOCK)")
    x, total = jnp.arange(float(n)), jnp.full(1, 3.0)
    np.testing.assert_array_equal(call(x, total), [3 + n * (n - 1) / 2])
    np.testing.assert_array_equal(jax.jit(call)(x, total), [3 + n * (n - 1) / 2])
    np.testing.assert_array_equal(total, [3.0])


@triton.jit
def linear(x, w, bias, out, stride_xm, stride_xk, stride_w, BLOCK: tl.constexpr):
    i, k = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + i * stride_xm + k * stride_xk) * tl.load(w + k * stride_w))
    if bias is not None:
        total += tl.load(bias + i)
    tl.store(out + i, total)


def test_pointers_may_be_none_and_strides_are_axes_or_numbers():
    x, w = np.arange(128, dtype=np.float32).reshape(8, 16), np.arange(32, dtype=np.float32).reshape(16, 2)
    bias = np.arange(8, dtype=np.float32)
    plain = triton_kernel(linear, "arg[m k] arg[k 2] none ret[m] =k =1 =2", grid="m", BLOCK=16)
    biased = triton_kernel(linear, "arg[m k] arg[k 2] arg[m] ret[m] =k =1 =2", grid="m", BLOCK=16)
    np.testing.assert_array_equal(jax.jit(plain)(x, w), x @ w[:, 0])
    np.testing.assert_array_equal(jax.jit(biased)(x, w, bias), x @ w[:, 0] + bias)
