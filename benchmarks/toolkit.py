"""nvcc as a person calls it, and what it compiles for."""

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
    nvcc, cuda = nvcc_path(bench), bench.cuda
    assert cuda is not None, "its nvcc was found"
    return (
        str(nvcc),
        *("-shared", "-O3", "-std=c++17", "-Xcompiler", "-fPIC"),
        *("-gencode", f"arch={bench.arch.replace('sm_', 'compute_')},code={bench.arch}"),
        *("-ccbin", str(cuda.host_compiler.path)),
        *(f"-L{folder}" for folder in cuda.library_dirs),
        *extra,
        *(str(source), "-o", str(library)),
    )


def nvcc_path(bench: Bench) -> Path:
    """The nvcc that the toolchain chose.

    Raises
    ------
    Unavailable
        There is no complete toolkit, or it compiles without nvcc.
    """
    if bench.cuda is None or bench.cuda.nvcc is None:
        raise Unavailable("no complete CUDA toolkit with nvcc: python -m be_toolchain doctor says what is missing")
    return bench.cuda.nvcc


def archs_to_name(bench: Bench) -> str:
    """What a load has to be told: ``-``, for the devices' own architecture, where there is one, else a name."""
    return "-" if bench.device is not None else bench.arch
