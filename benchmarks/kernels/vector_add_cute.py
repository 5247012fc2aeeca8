"""``z = x + y`` for CuTe DSL."""

# ruff: noqa: ANN001, D103 - CuTe finds the types of a kernel's parameters
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from cutlass import cute


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    width, _, _ = cute.arch.block_dim()
    i = block * width + thread
    if i < cute.size(z):
        z[i] = x[i] + y[i]


@cute.jit
def add(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, stream):
    add_kernel(x, y, z).launch(grid=[cute.ceil_div(cute.size(z), 256), 1, 1], block=[256, 1, 1], stream=stream)


@cute.jit
def add_for_cutlass_jax(stream, x: cute.Tensor, y: cute.Tensor, z: cute.Tensor):
    add(x, y, z, stream)
