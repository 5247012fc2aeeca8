"""Compile the kernels of train.py for the CPU and for a GPU, so that they can be loaded where there is no compiler.

Run it with ``BE_COMPUTE_CAPABILITIES`` set to the GPUs' architectures, such as 9.0; no GPU is needed. What it leaves in
the cache, `be_runtime.export_prebuilt` puts into a folder, and ``BE_PREBUILT_DIR`` names that folder later.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import be_runtime as brainevent

train = runpy.run_path(str(Path(__file__).with_name("train.py")))

for module in (
    brainevent.load_cpp_inline("events", train["CPP_SOURCE"], auto_register=False),
    brainevent.load_cuda_inline("events", train["CUDA_SOURCE"], auto_register=False),
):
    print(module)
