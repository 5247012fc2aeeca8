"""RMS normalization in CUDA, by the kernel in `norm.cu`."""

from pathlib import Path
from typing import Any

import be_runtime

TYPES = {"float32": "float", "bfloat16": "__nv_bfloat16"}


def make(columns: int, dtype: str, threads: int) -> Any:
    """Make the function for rows of `columns` elements, with `threads` threads for each row."""
    return be_runtime.cuda_kernel(
        Path(__file__).with_name("norm.cu").read_text(encoding="utf-8"),
        f"rms_norm<{TYPES[dtype]}, {columns}, {threads}>",
        signature="arg[m n] arg[n] ret[m n] attr.eps=1e-6 parallel[m]",
        grid="m",
        block=threads,
        vmap_method="expand_dims",
    )
