// Every function of cuda_common.h, on values whose results are exact.
#include "cuda_common.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "device.h"
#include "expect.h"

template <class T>
struct Reduced {
  T sum, max, min;
};

// The functions for one element type under one name.
#define WARP_FUNCTIONS(T, SUFFIX)                                                                               \
  __device__ Reduced<T> reduce(T value) {                                                                       \
    return {warp_reduce_sum_##SUFFIX(value), warp_reduce_max_##SUFFIX(value), warp_reduce_min_##SUFFIX(value)}; \
  }
WARP_FUNCTIONS(float, f32)
WARP_FUNCTIONS(double, f64)
WARP_FUNCTIONS(int, i32)
WARP_FUNCTIONS(__half, f16)
WARP_FUNCTIONS(__nv_bfloat16, bf16)

template <class T>
__global__ void reduce_warps(const T* values, Reduced<T>* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = reduce(values[i]);
}

template <class T>
void reductions() {
  std::vector<T> values(64);
  for (int i = 0; i < 64; ++i) values[i] = static_cast<T>(static_cast<float>((i * 37) % 23 - 11));
  const DeviceArray<T> in(values);
  const DeviceArray<Reduced<T>> out(std::vector<Reduced<T>>(64));
  reduce_warps<<<1, 64>>>(in.data(), out.data());
  BE_CHECK_KERNEL_LAUNCH_SYNC();
  const auto reduced = out.fetch();
  for (int warp = 0; warp < 2; ++warp) {
    double sum = 0, max = -1e9, min = 1e9;
    for (int lane = 0; lane < 32; ++lane) {
      const double value = static_cast<float>(values[warp * 32 + lane]);
      sum += value;
      max = std::max(max, value);
      min = std::min(min, value);
    }
    for (int lane = 0; lane < 32; ++lane) {  // every lane has the result
      const Reduced<T>& result = reduced[warp * 32 + lane];
      EXPECT(static_cast<double>(static_cast<float>(result.sum)) == sum);
      EXPECT(static_cast<double>(static_cast<float>(result.max)) == max);
      EXPECT(static_cast<double>(static_cast<float>(result.min)) == min);
    }
  }
}

__global__ void reduce_with_nan(float* out) {
  const float value = threadIdx.x == 7 ? nanf("") : static_cast<float>(threadIdx.x);
  out[0] = warp_reduce_max_f32(value);
  out[1] = warp_reduce_min_f32(value);
  out[2] = warp_reduce_sum_f32(value);
}

// Kernels are written as macros over element types, with the functions as parameters.
#define EACH_TYPE(DO) \
  DO(f32, F32, float, float) DO(f64, F64, double, double) DO(f16, F16, __half, float) DO(bf16, BF16, __nv_bfloat16, float)

#define DEFINE_ACTIVITY(NAME, SPIKE_T, IS_ACTIVE)                             \
  __global__ void NAME(const SPIKE_T* spikes, int* active, int count) {       \
    for (int i = 0; i < count; ++i) active[i] = IS_ACTIVE(spikes[i]) ? 1 : 0; \
  }
#define DEFINE_ACTIVITIES(NAME, SUFFIX, T, ACC_T)               \
  DEFINE_ACTIVITY(active_##NAME, T, IS_ACTIVE_##SUFFIX)         \
  DEFINE_ACTIVITY(active_float_##NAME, T, IS_ACTIVE_FLOAT)      \
  DEFINE_ACTIVITY(active_named_##NAME, T, IS_ACTIVE_FLOAT_##SUFFIX)
EACH_TYPE(DEFINE_ACTIVITIES)
DEFINE_ACTIVITY(active_bool, bool, IS_ACTIVE_BOOL)
DEFINE_ACTIVITY(active_u8, uint8_t, IS_ACTIVE_BOOL)
DEFINE_ACTIVITY(active_i8, int8_t, IS_ACTIVE_BOOL)

template <class T>
void activity(void (*kernel)(const T*, int*, int), const std::vector<double>& values,
              const std::vector<int>& expected) {
  const int count = static_cast<int>(values.size());
  BE_CHECK(expected.size() == values.size());
  T spikes[16];  // a std::vector<bool> has no array inside
  for (int i = 0; i < count; ++i) spikes[i] = static_cast<T>(static_cast<float>(values[i]));
  const DeviceArray<T> in(spikes, values.size());
  const DeviceArray<int> out(std::vector<int>(count, -1));
  kernel<<<1, 1>>>(in.data(), out.data(), count);
  BE_CHECK_KERNEL_LAUNCH_SYNC();
  EXPECT(out.fetch() == expected);
}

#define DEFINE_ROUND_TRIP(NAME, SUFFIX, STORED_T, ACC_T)                     \
  __global__ void trip_##NAME(STORED_T* values, double* read) {              \
    const ACC_T value = READ_##SUFFIX(values[threadIdx.x]);                  \
    read[threadIdx.x] = static_cast<double>(ZERO_##SUFFIX + value);          \
    values[threadIdx.x] = WRITE_##SUFFIX(value + static_cast<ACC_T>(0.5));   \
  }
EACH_TYPE(DEFINE_ROUND_TRIP)

template <class T>
void round_trip(void (*kernel)(T*, double*)) {
  const DeviceArray<T> values({static_cast<T>(1.5f), static_cast<T>(-2.0f)});
  const DeviceArray<double> read(std::vector<double>(2));
  kernel<<<1, 2>>>(values.data(), read.data());
  BE_CHECK_KERNEL_LAUNCH_SYNC();
  EXPECT(read.fetch() == std::vector<double>({1.5, -2.0}));
  EXPECT(static_cast<float>(values.fetch()[0]) == 2.0f && static_cast<float>(values.fetch()[1]) == -1.5f);
}

#define DEFINE_ADDITION(NAME, STORED_T, ACC_T, ATOMIC_ADD)           \
  __global__ void NAME(STORED_T* sums, int count) {                  \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;             \
    ATOMIC_ADD(sums + i % count, static_cast<ACC_T>(i % count + 1)); \
  }
#define DEFINE_ADDITIONS(NAME, SUFFIX, T, ACC_T) DEFINE_ADDITION(add_##NAME, T, ACC_T, atomic_add_##NAME)
EACH_TYPE(DEFINE_ADDITIONS)

// The path of older GPUs, which have no 16-bit instruction, runs on any.
__device__ void add_f16_in_word(__half* address, float value) {
  BE::internal::atomic_add_in_word(address, [value](unsigned short bits) {
    return __half_as_ushort(__float2half(__half2float(__ushort_as_half(bits)) + value));
  });
}
__device__ void add_bf16_in_word(__nv_bfloat16* address, float value) {
  BE::internal::atomic_add_in_word(address, [value](unsigned short bits) {
    return __bfloat16_as_ushort(__float2bfloat16(__bfloat162float(__ushort_as_bfloat16(bits)) + value));
  });
}
DEFINE_ADDITION(add_f16_word, __half, float, add_f16_in_word)
DEFINE_ADDITION(add_bf16_word, __nv_bfloat16, float, add_bf16_in_word)

template <class T>
void additions(void (*kernel)(T*, int)) {
  constexpr int kCount = 4, kBlocks = 4, kThreads = 32;  // 32 additions to each: exact in bfloat16 too
  const DeviceArray<T> sums(std::vector<T>(kCount, static_cast<T>(0.0f)));
  kernel<<<kBlocks, kThreads>>>(sums.data(), kCount);
  BE_CHECK_KERNEL_LAUNCH_SYNC();
  const auto result = sums.fetch();
  for (int i = 0; i < kCount; ++i) EXPECT(static_cast<float>(result[i]) == static_cast<float>(32 * (i + 1)));
}

__global__ void mark_rows(int* marks, int64_t rows) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * BE_WARP_PER_ROW_WPB + threadIdx.x / 32;
  for (int64_t row = first; row < rows; row += gridDim.x * BE_WARP_PER_ROW_WPB) atomicAdd(marks + row, 1);
}

void warp_per_row() {
  static_assert(BE_WARP_PER_ROW_GRID(0) == 1 && BE_WARP_PER_ROW_GRID(8) == 1 && BE_WARP_PER_ROW_GRID(9) == 2, "");
  static_assert(BE_WARP_PER_ROW_GRID(INT64_MAX) == BE_WARP_PER_ROW_MAX_GRID, "");
  static_assert(be_warp_per_row_grid(8 * 4096 + 1) == 4096 && BE_WARP_PER_ROW_BLOCK == 256, "");
  for (int64_t rows : {0, 1, 8, 9, 1000, 40000}) {
    const DeviceArray<int> marks(std::vector<int>(40001, 0));
    mark_rows<<<BE_WARP_PER_ROW_GRID(rows), BE_WARP_PER_ROW_BLOCK>>>(marks.data(), rows);
    BE_CHECK_KERNEL_LAUNCH_SYNC();
    const auto result = marks.fetch();
    for (int64_t row = 0; row < 40001; ++row) EXPECT(result[row] == (row < rows ? 32 : 0));
  }
}

int main() {
  reductions<float>();
  reductions<double>();
  reductions<int>();
  reductions<__half>();
  reductions<__nv_bfloat16>();

  const DeviceArray<float> extremes(std::vector<float>(3));
  reduce_with_nan<<<1, 32>>>(extremes.data());
  BE_CHECK_KERNEL_LAUNCH_SYNC();
  EXPECT(extremes.fetch()[0] == 31 && extremes.fetch()[1] == 0 && extremes.fetch()[2] != extremes.fetch()[2]);

  const std::vector<double> flags = {0, 1, 1, 0};
  activity(active_bool, flags, {0, 1, 1, 0});
  activity(active_u8, {0, 1, 255}, {0, 1, 1});
  activity(active_i8, {0, 1, -1}, {0, 1, 1});
  const std::vector<double> values = {0.0, -0.0, 1.0, 0.25, -1.0, std::numeric_limits<double>::quiet_NaN()};
#ifdef BE_ACTIVE_POSITIVE
  const std::vector<int> expected = {0, 0, 1, 1, 0, 0};
#else
  const std::vector<int> expected = {0, 0, 1, 1, 1, 1};
#endif
#define TRY(NAME, SUFFIX, T, ACC_T)                 \
  activity(active_##NAME, values, expected);        \
  activity(active_float_##NAME, values, expected);  \
  activity(active_named_##NAME, values, expected);  \
  round_trip(trip_##NAME);                          \
  additions(add_##NAME);
  EACH_TYPE(TRY)
  additions(add_f16_word);
  additions(add_bf16_word);

  warp_per_row();
}
