"""Occupancy beside CUDA's own arithmetic, cuda_occupancy.h, for random kernels."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from be_runtime.reports.occupancy import _MULTIPROCESSORS, occupancy
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.arch import Arch

CASES = 20_000
PROGRAM = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int major, minor, warps, shared_kib, registers, shared, block;
  while (scanf("%d %d %d %d %d %d %d", &major, &minor, &warps, &shared_kib, &registers, &shared, &block) == 7) {
    cudaOccDeviceProp device = {};
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = warps * 32;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = shared_kib * 1024;
    device.sharedMemPerBlockOptin = (shared_kib - 1) * 1024;
    device.reservedSharedMemPerBlock = major >= 8 ? 1024 : 0;
    device.numSms = 1;
    cudaOccFuncAttributes kernel = {};
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = shared;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    cudaOccDeviceState state = {};
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result = {};
    auto status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, block, 0);
    printf("%d\n", status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1);
  }
}
"""


def test_random_kernels_fill_multiprocessors_as_cuda_says(tmp_path: Path):
    toolkit = resolve(ToolchainRequest(need_cuda=True)).cuda
    assert toolkit is not None
    (tmp_path / "all.cc").write_text(PROGRAM)
    includes = [f"-I{folder}" for folder in toolkit.include_dirs]
    program = tmp_path / "all"
    subprocess.run(["g++", "-O1", *includes, str(tmp_path / "all.cc"), "-o", str(program)], check=True)
    draw = random.Random(18)  # noqa: S311 - test data
    cases = [
        (arch, draw.randint(1, 255), draw.choice((0, draw.randint(1, 48 << 10))), draw.randint(1, 1024))
        for arch in draw.choices(sorted(_MULTIPROCESSORS), k=CASES)
    ]
    rows = [
        (*arch, _MULTIPROCESSORS[arch].warps, _MULTIPROCESSORS[arch].shared_kib, registers, shared, block)
        for arch, registers, shared, block in cases
    ]
    text = "".join(f"{' '.join(map(str, row))}\n" for row in rows)
    told = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True).stdout.split()
    ours = [occupancy(Arch(*arch), registers=regs, shared=shared, block=block) for arch, regs, shared, block in cases]
    differ = [
        (case, told_blocks, found)
        for case, told_blocks, found in zip(cases, map(int, told), ours, strict=True)
        if found is None or found.blocks != told_blocks
    ]
    assert differ == []
