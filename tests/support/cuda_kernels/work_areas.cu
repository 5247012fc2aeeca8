// Work areas whose size a library computes: XLA owns them, so a CUDA graph records the calls.
#include <atomic>
#include <cub/device/device_radix_sort.cuh>
#include <cufft.h>

#include "brainevent/common.h"
#include "brainevent/state.h"

static std::atomic<int> calls{0}, recorded{0};
extern "C" __attribute__((visibility("default"))) int count_calls() { return calls; }
extern "C" __attribute__((visibility("default"))) int count_recorded() { return recorded; }

static void count(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    BE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    ++calls;
    recorded += status == cudaStreamCaptureStatusActive;
}

size_t sort_bytes(const BE::Tensor keys) {
    size_t bytes = 0;
    const float* none = nullptr;
    BE_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, none, const_cast<float*>(none), keys.numel()));
    return bytes;
}

// @BE sorted arg[n]:float32 ret[n]:float32 scratch=sort_bytes stream
void sorted(const BE::Tensor keys, BE::Tensor out, BE::Workspace room, cudaStream_t stream) {
    count(stream);
    size_t bytes = room.size();
    BE_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(room.data(), bytes, keys.data_ptr<float>(), out.data_ptr<float>(),
                                                 keys.numel(), 0, 32, stream));
}

// The size of a plan is known when its plan is made; an estimate would do, too.
size_t plan_bytes(const BE::Tensor x) {
    cufftHandle plan;
    size_t bytes = 0;
    BE_CHECK(cufftCreate(&plan) == CUFFT_SUCCESS);
    BE_CHECK(cufftSetAutoAllocation(plan, 0) == CUFFT_SUCCESS);
    const auto status = cufftMakePlan1d(plan, x.size(1), CUFFT_C2C, x.size(0), &bytes);
    cufftDestroy(plan);
    BE_CHECK(status == CUFFT_SUCCESS) << "cuFFT makes no plan of " << x.size(1) << " elements";
    return bytes;
}

struct Plan {
    Plan(const BE::Attributes&, const BE::Shapes& shapes) {
        size_t bytes = 0;
        BE_CHECK(cufftCreate(&handle) == CUFFT_SUCCESS);
        BE_CHECK(cufftSetAutoAllocation(handle, 0) == CUFFT_SUCCESS);
        BE_CHECK(cufftMakePlan1d(handle, shapes.arg(0).size(1), CUFFT_C2C, shapes.arg(0).size(0), &bytes) ==
                 CUFFT_SUCCESS);
    }
    ~Plan() { cufftDestroy(handle); }
    Plan(const Plan&) = delete;
    cufftHandle handle{};
};

// @BE transformed arg[b n]:complex64 ret[b n]:complex64 scratch=plan_bytes state stream
void transformed(const BE::Tensor x, BE::Tensor out, BE::Workspace room, const BE::State<Plan>& plan,
                 cudaStream_t stream) {
    count(stream);
    BE_CHECK(cufftSetStream(plan->handle, stream) == CUFFT_SUCCESS);
    BE_CHECK(cufftSetWorkArea(plan->handle, room.data()) == CUFFT_SUCCESS);
    BE_CHECK(cufftExecC2C(plan->handle, (cufftComplex*)x.data(), (cufftComplex*)out.data(), CUFFT_FORWARD) ==
             CUFFT_SUCCESS);
}
