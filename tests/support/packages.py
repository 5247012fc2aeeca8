"""Packages with raw kernels, kernels of Numba and of Triton, and processes that use them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.requirements import nvcc
from tests.support.runtime import environment

TABLES = """
archs = ["8.0", "9.0"]
[kernels.scale]
source = "raw/scale.cu"
signature = "arg[... n] ret[... n]:like(0) attr.by=2.0"
grid = "n/32"
block = 32
[kernels.decay]
numba = "shipped.host:decay"
signature = "arg[... n] arg[]:float32 ret[... n]:like(0)"
dtypes = ["float32", "float64"]
[kernels.wave]
numba_cuda = "shipped.device:wave"
signature = "arg[... n] ret[... n]:like(0)"
launch_dims = "n"
"""
FILES = {
    "__init__.py": "from be_runtime import package_kernels\nops = package_kernels(__name__)\n",
    "kernels.toml": TABLES,
    "raw/scale.cu": """
__global__ void scale(const float* x, float* y, float by) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = by * x[blockIdx.x * blockDim.x + threadIdx.x];
}
""",
    "host.py": '''
import numba

@numba.njit
def decay(x, by, y):
    """Decay towards zero."""
    if by[()] > 1:
        raise ValueError("by is more than 1")
    for i in range(x.size):
        y[i] = by[()] * x[i]
''',
    "device.py": """
from tests.support.numba_kernels import cuda

@cuda.jit(device=True)
def half(value):
    return value / 2

@cuda.jit
def wave(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = half(x[i])
""",
}


TRITON_TABLES = """
archs = ["8.0", "9.0"]
[kernels.add]
triton = "gpu/triton_kernels.py:add"
signature = "arg[... n] arg[... n] ret[... n] attr.scale:float32"
grid = "ceil(n/BLOCK)"
constants = { BLOCK = 256 }
num_warps = 2
dtypes = ["float32", "float16"]
[kernels.described]
triton = "shipped.gpu.triton_kernels:described"
signature = "arg[n]:float32 ret[n]"
grid = "n//BLOCK"
constants = { BLOCK = 128 }
[kernels.row_sums]
triton = "gpu/triton_kernels.py:row_sums"
signature = "arg[n k]:float32 ret[n]"
grid = "n"
constants = { BLOCK = 1024 }
[kernels.times]
cubin = "scale.cubin"
name = "scale"
signature = "arg[... n]:float32 ret[... n] attr.by:float32=2"
grid = 2
block = "n/2"
"""


def write_triton_package(root: Path, arch: str) -> Path:
    """Write a package with kernels of Triton and a cubin for an architecture."""
    text = (Path(__file__).parent / "triton_kernels.py").read_text(encoding="utf-8")
    write_package(root, FILES | {"kernels.toml": TRITON_TABLES, "gpu/triton_kernels.py": text})
    (root / "scale.cu").write_text(FILES["raw/scale.cu"].replace("void", "void __launch_bounds__(64)"))
    command = (str(nvcc()), "-cubin", f"-arch={arch}", "-o", "scale.cubin", "scale.cu")
    subprocess.run(command, cwd=root, check=True)
    return root


def write_package(root: Path, files: Mapping[str, str] = FILES) -> Path:
    """Write a package."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def run_beside(package: Path, *argv: str, **environ: str) -> str:
    """Run Python beside the package, with a cache of its own."""
    known = {"BE_CACHE_DIR": str(package.parents[1] / "cache"), **environ}
    command = (sys.executable, *argv)
    done = subprocess.run(
        command, env=environment(**known), cwd=package.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
