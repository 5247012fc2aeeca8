// Scratch memory in both forms and state with memory of its own. All compute x + 1 through that memory, and count.
#include <cuda_runtime.h>

#include "brainevent/common.h"
#include "brainevent/state.h"

enum { kCalls, kRecorded, kTaken, kStates, kStatesGone, kTables, kTablesGone, kCounters };
static long long counters[kCounters];
static void count(int which, long long by = 1) { __atomic_add_fetch(&counters[which], by, __ATOMIC_SEQ_CST); }

__global__ void to_memory(const float* x, float* memory, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) memory[i] = x[i];
}
__global__ void plus(const float* memory, float* y, float added, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = memory[i] + added;
}

static void run(const BE::Tensor& x, float* memory, BE::Tensor& y, float added, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  count(kCalls);
  count(kRecorded, status == cudaStreamCaptureStatusActive);
  const int n = x.numel_checked_int();
  to_memory<<<(n + 127) / 128, 128, 0, stream>>>(x.data_ptr<float>(), memory, n);
  plus<<<(n + 127) / 128, 128, 0, stream>>>(memory, y.data_ptr<float>(), added, n);
}

// @BE declared arg[n] ret[n] scratch[n*4] stream
void declared(const BE::Tensor x, BE::Tensor y, BE::Workspace workspace, cudaStream_t stream) {
  BE_CHECK(reinterpret_cast<uintptr_t>(workspace.data()) % BE::Workspace::kAlignment == 0);
  run(x, workspace.data_as<float>(), y, 1, stream);
}

// What allocate() takes of the device beyond what XLA has of it already is added up.
// @BE asked
void asked(const BE::Tensor x, BE::Tensor y, BE::Workspace workspace, int64_t bytes, cudaStream_t stream) {
  size_t before = 0, after = 0, total = 0;
  BE_CUDA_CHECK(cudaMemGetInfo(&before, &total));
  float* memory = workspace.allocate_as<float>(x.numel());
  BE_CHECK(reinterpret_cast<uintptr_t>(memory) % 16 == 0);
  if (bytes != 0) workspace.allocate(bytes);
  BE_CUDA_CHECK(cudaMemGetInfo(&after, &total));
  count(kTaken, static_cast<long long>(before) - static_cast<long long>(after));
  run(x, memory, y, 1, stream);
}

struct Table {
  explicit Table(int64_t n) {
    BE_CUDA_CHECK(cudaMalloc(&memory, n * sizeof(float)));
    count(kTables);
  }
  ~Table() {
    cudaFree(memory);
    count(kTablesGone);
  }
  float* memory = nullptr;
};

struct Plan {
  explicit Plan(const BE::Attributes& attributes) : added(attributes.get<float>("added")) {
    BE_CHECK(added != 0) << "adds nothing";
    count(kStates);
  }
  ~Plan() { count(kStatesGone); }
  float added;
  BE::PerDevice<Table> tables;
};

// @BE planned
void planned(const BE::Tensor x, BE::Tensor y, const BE::State<Plan>& plan, float added, cudaStream_t stream) {
  run(x, plan->tables.get(x.numel()).memory, y, plan->added, stream);
}

extern "C" __attribute__((visibility("default"))) long long memory_counter(int which) {
  return __atomic_load_n(&counters[which], __ATOMIC_SEQ_CST);
}
