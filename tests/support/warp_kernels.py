"""Kernels for Warp, which reads their source and their annotations. Importing this needs Warp."""

import os

import warp as wp

wp.config.log_level = wp.LOG_WARNING
if "BE_CACHE_DIR" in os.environ:
    wp.config.kernel_cache_dir = os.path.join(os.environ["BE_CACHE_DIR"], "warp")


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


@wp.kernel  # type: ignore[untyped-decorator]
def cumulate(x: wp.array(dtype=float), out: wp.array(dtype=float)):  # type: ignore[valid-type]
    """Sums from the start of a row on, in one thread."""
    total = float(0.0)  # noqa: UP018 - for Warp a plain number is a constant
    for i in range(x.shape[0]):
        total += x[i]
        out[i] = total


@wp.kernel  # type: ignore[untyped-decorator]
def negate(x: "wp.array(dtype=float)", out: "wp.array(dtype=float)"):  # type: ignore[valid-type]
    """With annotations that are text."""
    i = wp.tid()
    out[i] = -x[i]


@wp.kernel  # type: ignore[untyped-decorator]
def overwrite(x: wp.array(dtype=float), out: wp.array(dtype=float)):  # type: ignore[valid-type]
    """Write the input as well."""
    i = wp.tid()
    x[i] = 5.0
    out[i] = 1.0
