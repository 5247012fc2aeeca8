"""nvcc as a person calls it."""

from __future__ import annotations

from pathlib import Path

from .bench import Bench
from .figure import Unavailable


def nvcc_command(bench: Bench, source: Path, library: Path, *extra: str) -> tuple[str, ...]:
    """The command that makes a library of one file, with the toolkit and host compiler that the toolchain chose.

    Raises
    ------
    Unavailable
        There is no complete toolkit.
    """
    cuda = bench.cuda
    if cuda is None:
        raise Unavailable("no complete CUDA toolkit: python -m be_toolchain doctor says what is missing")
    return (
        str(cuda.nvcc),
        *("-shared", "-O3", "-std=c++17", "-Xcompiler", "-fPIC"),
        *("-gencode", f"arch={bench.arch.replace('sm_', 'compute_')},code={bench.arch}"),
        *("-ccbin", str(cuda.host_compiler.path)),
        *(f"-L{folder}" for folder in cuda.library_dirs),
        *extra,
        *(str(source), "-o", str(library)),
    )
