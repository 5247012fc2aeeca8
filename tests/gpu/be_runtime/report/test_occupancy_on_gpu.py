"""The report of a module beside what the driver says of its kernels: registers, memory, blocks on a multiprocessor."""

from __future__ import annotations

import numpy as np

import be_runtime
from tests.support.cuda import source

ASKING = r"""
// @BE ask ret[24]:int32 stream
void ask(BE::Tensor told, int64_t stream) {
  int32_t found[24] = {};
  const void* kernels[] = {(const void*)rows<4>, (const void*)spilling, (const void*)local_array};
  for (int k = 0; k < 3; ++k) {
    cudaFuncAttributes facts;
    BE_CUDA_CHECK(cudaFuncGetAttributes(&facts, kernels[k]));
    int32_t* row = found + 8 * k;
    row[0] = facts.numRegs;
    row[1] = (int32_t)facts.sharedSizeBytes;
    row[2] = (int32_t)facts.localSizeBytes;
    const int blocks[] = {64, 128, 256, 512, 1024};
    for (int b = 0; b < 5; ++b)
      BE_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&row[3 + b], kernels[k], blocks[b], 0));
  }
  BE_CUDA_CHECK(cudaMemcpyAsync(told.data_ptr(), found, sizeof found, cudaMemcpyHostToDevice, (cudaStream_t)stream));
  BE_CUDA_CHECK(cudaStreamSynchronize((cudaStream_t)stream));
}
"""


def test_the_report_is_what_the_driver_says():
    module = be_runtime.load_cuda_inline("asked", source("resources") + ASKING, allow_cuda_graph=False)
    told = np.asarray(module.ask()).reshape(3, 8)
    kernels = {each.name: each for each in module.report().kernels}
    assert len(kernels) == 3, "one architecture, that of the device"
    for row, name in zip(told.tolist(), ("rows<4>", "spilling", "local_array"), strict=True):
        kernel = kernels[name]
        assert [kernel.registers, kernel.shared, kernel.stack] == row[:3], name
        assert [each.blocks for each in kernel.occupancy] == row[3:], name
    assert kernels["spilling"].warnings
