// The products of examples/train.py, at sizes that fill no warp and no block.
static void exercised(cudaStream_t stream) {
  const int64_t batch = 5, n_in = 67, n_out = 45;
  const auto spikes = floats({batch, n_in}, 1.0f), weights = floats({n_in, n_out}, 2.0f);
  const auto product = floats({batch, n_out}, -1.0f), gradient = floats({n_in, n_out}, -1.0f);
  matvec(spikes.tensor, weights.tensor, product.tensor, reinterpret_cast<int64_t>(stream));
  outer(spikes.tensor, product.tensor, gradient.tensor, reinterpret_cast<int64_t>(stream));
  BE_CUDA_CHECK(cudaStreamSynchronize(stream));
  expect("matvec", product.sum(), double(batch * n_out) * 2 * n_in);
  expect("outer", gradient.sum(), double(n_in * n_out) * batch * 2 * n_in);
}
