"""A kernel in CuTe DSL, called by JAX: ``peer_cute.py JOB.json``; it is compiled in each process.

As in the docstring of ``cutlass.jax.cutlass_call``.
"""

import jax
from cutlass import cute
from cutlass.jax import cutlass_call

from benchmarks.peers.child import Job, run


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor) -> None:  # noqa: D103
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
    if i < cute.size(a):
        c[i] = a[i] + b[i]


@cute.jit
def add(stream, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor) -> None:  # noqa: ANN001, D103
    add_kernel(a, b, c).launch(grid=[cute.ceil_div(cute.size(a), 256), 1, 1], block=[256, 1, 1], stream=stream)


def load(_: Job) -> str:
    """Compile the kernel for a call's shapes."""
    x = jax.ShapeDtypeStruct((1024,), "float32")
    jax.jit(cutlass_call(add, output_shape_dtype=x)).lower(x, x)
    return ""


if __name__ == "__main__":
    run(load)
