"""Time calls outside of `jit` beside those of a jitted function: ``eager_calls.py JOB.json``.

What is printed is, for each kind of call and contestant, the seconds of a call in each round.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime
from benchmarks.stats import alternating

SOURCE = r"""
#include "brainevent/common.h"

// @BE plain arg[n]:float32 ret[n]:float32
void plain(const BE::Tensor x, BE::Tensor y) { y.data_ptr<float>()[0] = x.data_ptr<float>()[0]; }

// @BE attribute arg[n]:float32 ret[n]:float32 attr.by
void attribute(const BE::Tensor x, BE::Tensor y, float by) { y.data_ptr<float>()[0] = by * x.data_ptr<float>()[0]; }

// @BE attributes arg[n]:float32 ret[n]:float32 attr.by attr.plus attr.times
void attributes(const BE::Tensor x, BE::Tensor y, float by, float plus, int64_t times) {
  y.data_ptr<float>()[0] = (by * x.data_ptr<float>()[0] + plus) * float(times);
}
"""


@jax.jit
def plain(x: jax.Array) -> Any:
    """The call without attributes."""
    return jax.ffi.ffi_call("eager.plain", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@partial(jax.jit, static_argnames="by")
def attribute(x: jax.Array, *, by: float) -> Any:
    """The call with one."""
    return jax.ffi.ffi_call("eager.attribute", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, by=np.float32(by))


@partial(jax.jit, static_argnames=("by", "plus", "times"))
def attributes(x: jax.Array, *, by: float, plus: float, times: int) -> Any:
    """The call with three."""
    call = jax.ffi.ffi_call("eager.attributes", jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(x, by=np.float32(by), plus=np.float32(plus), times=np.int64(times))


KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "plain": (plain, {}),
    "attribute": (attribute, {"by": 2.0}),
    "attributes": (attributes, {"by": 2.0, "plus": 1.0, "times": 3}),
}


def time_calls(function: Callable[..., Any], x: jax.Array, calls: int, passed: dict[str, Any]) -> float:
    """Seconds of a call, results not waited for but the last."""
    start = time.perf_counter()
    for _ in range(calls):
        last = function(x, **passed)
    last.block_until_ready()
    return (time.perf_counter() - start) / calls


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    module = be_runtime.load_cpp_inline("eager", SOURCE)
    x = jnp.ones(1, jnp.float32)
    found: dict[str, dict[str, list[float]]] = {}
    for kind, (jitted, passed) in KINDS.items():
        contestants: dict[str, Callable[..., Any]] = {"module": module[kind], "jit": jitted}
        for function in contestants.values():
            time_calls(function, x, job["calls"], passed)
        samples: dict[str, list[float]] = {name: [] for name in contestants}
        for order in alternating(list(contestants), job["rounds"]):
            for name in order:
                samples[name].append(time_calls(contestants[name], x, job["calls"], passed))
        found[kind] = samples
    print(json.dumps(found))


if __name__ == "__main__":
    main()
