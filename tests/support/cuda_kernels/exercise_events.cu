// The sparse products of events.cu: warps of a row, atomics.
static void exercised(cudaStream_t stream) {
  const auto handle = reinterpret_cast<int64_t>(stream);
  const int64_t rows = 19, row_size = 37, targets = 50;
  std::vector<int32_t> indices(rows * row_size), indptr(rows + 1);
  for (int64_t k = 0; k < rows * row_size; ++k) indices[k] = int32_t(k % targets);
  for (int64_t r = 0; r <= rows; ++r) indptr[r] = int32_t(r * row_size);
  const DeviceArray columns(BE::DType::Int32, {rows, row_size}, indices);
  const DeviceArray starts(BE::DType::Int32, {rows + 1}, indptr);
  const DeviceArray active(BE::DType::Bool, {targets}, std::vector<unsigned char>(targets, 1));
  const auto data = floats({rows, row_size}, 1.0f), spikes = floats({rows}, 1.0f);
  const auto gathered = floats({rows}, -1.0f), scattered = floats({targets}, -1.0f);
  BE::Tensor sums = gathered.tensor, added = scattered.tensor;
  gather(data.tensor, columns.tensor, starts.tensor, active.tensor, sums, handle);
  scatter(data.tensor, columns.tensor, spikes.tensor, added, handle);
  BE_CUDA_CHECK(cudaStreamSynchronize(stream));
  expect("gather", gathered.sum(), double(rows * row_size));
  expect("scatter", scattered.sum(), double(rows * row_size));
}
