"""Kernels for Warp, which reads their source and their annotations."""

import warp as wp

wp.config.quiet = True


@wp.kernel  # type: ignore[untyped-decorator]
def scale(x: wp.array(dtype=float), factor: float, out: wp.array(dtype=float)):  # type: ignore[valid-type]
    """Multiply by a number."""
    i = wp.tid()
    out[i] = x[i] * factor


@wp.kernel  # type: ignore[untyped-decorator]
def split(x: wp.array2d(dtype=float), first: wp.array(dtype=float), pairs: wp.array2d(dtype=wp.vec2)):  # type: ignore[valid-type]
    """The first column, and the rows as vectors."""
    i = wp.tid()
    first[i] = x[i, 0]
    pairs[i, 0] = wp.vec2(x[i, 0], x[i, 1])
