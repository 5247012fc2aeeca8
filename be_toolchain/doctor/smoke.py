"""Trials of a toolchain: build and run a C++ and a CUDA program, and call kernels through JAX."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from be_toolchain.arch import Arch, gencode_flags
from be_toolchain.find.devices import DeviceReport
from be_toolchain.known import layouts
from be_toolchain.machine.system import RunResult, System
from be_toolchain.values import ClangCuda, CudaToolkit, Nvcc, Toolchain

TIMEOUT_S = 180.0

CPP = """\
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  std::vector<double> values(100);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sqrt(double(i) * double(i));
  for (double value : values) sum += value;
  std::printf("sum %.0f\\n", sum);
}
"""

CUDA = """\
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>

__global__ void add(const float* a, const float* b, float* out, int n) {
  int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = a[i] + __half2float(__float2half(b[i]));
}

int main(int count, char**) {
  if (count > 1) return std::puts("started") < 0;
  const int n = 1000;
  float* data = nullptr;
  if (cudaMallocManaged(&data, 3 * n * sizeof(float)) != cudaSuccess) return std::puts("no memory"), 1;
  for (int i = 0; i < n; ++i) data[i] = float(i), data[n + i] = 1;
  add<<<(n + 127) / 128, 128>>>(data, data + n, data + 2 * n, n);
  cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return std::puts(cudaGetErrorString(error)), 1;
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += data[2 * n + i];
  std::printf("sum %.0f\\n", sum);
}
"""

FFI = """\
import json, os, sys
language, cache, path = sys.argv[1:]
sys.path[:] = json.loads(path)
os.environ["BE_CACHE_DIR"] = cache
if language == "cpp":
    os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
import be_runtime
loop = "for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] + 1;"
cpp = '''#include "brainevent/common.h"
// @BE add_one arg ret
void add_one(const BE::Tensor x, BE::Tensor out) { LOOP }'''.replace("LOOP", loop)
cuda = '''#include "brainevent/common.h"
__global__ void kernel(const float* x, float* out, int n) { int i = threadIdx.x; if (i < n) out[i] = x[i] + 1; }
// @BE add_one arg ret stream
void add_one(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  kernel<<<1, 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), int(x.numel()));
}'''
load, source = (be_runtime.load_cpp_inline, cpp) if language == "cpp" else (be_runtime.load_cuda_inline, cuda)
load("be_smoke", source)
x = jnp.arange(100, dtype=jnp.float32)
out = jax.jit(jax.ffi.ffi_call("be_smoke.add_one", jax.ShapeDtypeStruct(x.shape, x.dtype)))(x)
print("sum %.0f" % float(out.sum()), "on", next(iter(out.devices())).platform)
"""
"""The program of a child process, since this package imports neither JAX nor be_runtime."""

Outcome = Literal["ok", "fail", "skipped"]


class SmokeResult(NamedTuple):
    """The result of one trial.

    Parameters
    ----------
    name : {"C++", "CUDA", "FFI on the CPU", "FFI on the GPU"}
        The trial.
    outcome : {"ok", "fail", "skipped"}
        The outcome.
    message : str
        One line: the result, or the reason why the trial was skipped.
    detail : str
        The end of a failed program's output.
    wall_s : float
        The time that it took, in seconds.
    """

    name: str
    outcome: Outcome
    message: str
    detail: str = ""
    wall_s: float = 0.0


def run_smoke(toolchain: Toolchain, devices: DeviceReport, system: System, *, jax: bool) -> tuple[SmokeResult, ...]:
    """Try out a toolchain in a temporary folder.

    Parameters
    ----------
    toolchain : Toolchain
        The toolchain, which may lack parts.
    devices : DeviceReport
        The GPUs. If there is one, CUDA programs are also run.
    system : System
        The machine.
    jax : bool
        Whether jax is installed.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="be-smoke-") as folder:
            return tuple(_trials(toolchain, devices, system, Path(folder), jax=jax))
    except OSError as error:
        return (SmokeResult("C++", "fail", f"no temporary folder: {error.strerror}"),)


def _trials(
    toolchain: Toolchain, devices: DeviceReport, system: System, scratch: Path, *, jax: bool
) -> Iterator[SmokeResult]:
    """Run every trial that the toolchain's parts and the GPUs allow."""
    cxx, cuda = toolchain.cxx, toolchain.cuda
    if cxx is None:
        yield SmokeResult("C++", "skipped", "there is no compiler")
    else:
        source, program = scratch / "smoke.cc", scratch / "smoke_cpp"
        source.write_text(CPP)
        build = (str(cxx.path), "-std=c++17", "-O1", str(source), "-o", str(program), "-lm")
        yield _try(system, "C++", (build, (str(program),)), "sum 4950", "built and ran a program")
    if cuda is None:
        yield SmokeResult("CUDA", "skipped", "there is no toolkit")
    else:
        yield _try_cuda(system, cuda, devices, scratch)
    if not jax:
        yield SmokeResult("FFI on the CPU", "skipped", "jax is not installed")
        return
    if cxx is not None:
        yield _try_ffi(system, "cpp", "FFI on the CPU", "sum 5050 on cpu", scratch)
    if cuda is not None and devices.devices:
        yield _try_ffi(system, "cuda", "FFI on the GPU", "sum 5050 on gpu", scratch)


def _try_cuda(system: System, cuda: CudaToolkit, devices: DeviceReport, scratch: Path) -> SmokeResult:
    """Build and run a CUDA program; without a GPU, the program ends before it calls CUDA."""
    source, program = scratch / "smoke.cu", scratch / "smoke_cuda"
    source.write_text(CUDA)
    present = sorted({device.arch for device in devices.devices})
    compiler, libraries = _compiler_command(cuda, tuple(present) or cuda.archs[:1])
    folders = (f"-L{folder}" for folder in cuda.library_dirs)
    build = (*compiler, "-std=c++17", *folders, str(source), "-o", str(program), *libraries)
    if present:
        done = f"built a program and ran it on {devices.devices[0].name}"
        return _try(system, "CUDA", (build, (str(program),)), "sum 500500", done)
    done = "built a program; there is no GPU to run it on"
    return _try(system, "CUDA", (build, (str(program), "host")), "started", done)


def _compiler_command(cuda: CudaToolkit, archs: tuple[Arch, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the command that compiles and links CUDA for some architectures, and the libraries that it needs."""
    host = str(cuda.host_compiler.path)
    match cuda.compiler:
        case Nvcc() as nvcc:
            allowed = ("-allow-unsupported-compiler",) if nvcc.allow_unsupported_compiler else ()
            return (str(nvcc.path), "-ccbin", host, *gencode_flags(archs), *allowed), ()
        case ClangCuda():
            wanted = (f"--cuda-gpu-arch={arch.sm}" for arch in archs)
            command = (host, "-Wno-unknown-cuda-version", f"--cuda-path={cuda.root}", *wanted)
            return command, ("-lcudart_static", "-ldl", "-lpthread", "-lrt")


def _try_ffi(system: System, language: str, name: str, expected: str, scratch: Path) -> SmokeResult:
    """Load a kernel with be_runtime and call it from JAX, in a child process."""
    cache = scratch / f"cache_{language}"
    cache.mkdir(mode=0o700)
    checkout = str(Path(__file__).parents[2])  # __main__ may have removed it from the path
    paths = json.dumps([path or str(system.cwd) for path in (*sys.path, checkout)])
    command = (sys.executable, "-c", FFI, language, str(cache), paths)
    result = _try(system, name, (command,), expected, "built a kernel and called it from JAX")
    if "No module named 'be_runtime'" in result.detail:
        return SmokeResult(name, "skipped", "be_runtime is not installed")
    return result


def _try(system: System, name: str, commands: tuple[tuple[str, ...], ...], expected: str, success: str) -> SmokeResult:
    """Run commands until one fails; the last one must print `expected`."""
    start = time.monotonic()
    finished: RunResult | None = None
    for command in commands:
        finished = system.run(command, timeout_s=TIMEOUT_S, unset=layouts.OUTPUT_VARIABLES)
        if finished.returncode != 0:
            break
    wall_s = time.monotonic() - start
    assert finished is not None
    if finished.returncode == 0 and expected in finished.stdout:
        return SmokeResult(name, "ok", f"{success} ({wall_s:.1f} s)", wall_s=wall_s)
    why = finished.why_failed or f"it printed {finished.stdout.strip()[:80]!r} instead of {expected!r}"
    detail = "\n".join(finished.text.strip().splitlines()[-12:])
    return SmokeResult(name, "fail", f"{Path(finished.argv[0]).name}: {why}", detail, wall_s)
