"""A package with a raw kernel and kernels of Numba, and processes that use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def write_package(root: Path) -> Path:
    """Write the package."""
    for name, text in FILES.items():
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
