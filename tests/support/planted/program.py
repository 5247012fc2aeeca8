"""Calls one kernel with a planted fault: ``FILE``; prints what it computes, or the error."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

import be_runtime


def main(path: Path) -> None:
    """Load the kernel of a file and call it twice."""
    load = be_runtime.load_cuda_file if path.suffix == ".cu" else be_runtime.load_cpp_file
    module = load(path)
    x = jnp.arange(256.0)
    for _ in range(2):
        y = module[path.stem](x, outs=jax.ShapeDtypeStruct(x.shape, x.dtype))
        sys.stdout.write(f"{path.stem} gives {y[:4]} and {float(y.sum())}\n")
    sys.stdout.write(f"the program goes on: {float((x + 1).sum())}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
