static void exercised(cudaStream_t stream) {
  auto out = floats({64}, 0.0f);
  overrun(out.tensor, reinterpret_cast<int64_t>(stream));
  cudaStreamSynchronize(stream);
}
