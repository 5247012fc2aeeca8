#include "brainevent/common.h"

static bool is_aligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % BE::Workspace::kAlignment == 0;
}
static void twice(const BE::Tensor& x, void* memory, BE::Tensor& y) {
  BE_CHECK(is_aligned(memory));
  float* room = static_cast<float*>(memory);
  for (int64_t i = 0; i < x.numel(); ++i) room[i] = x.data_ptr<float>()[i];
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = 2 * room[i];
}

// @BE declared arg[n] scratch[n*4] ret scratch[128]
void declared(const BE::Tensor x, BE::Workspace first, BE::Tensor y, const BE::Workspace& second) {
  BE_CHECK(second.data_as<char>() != first.data_as<char>());
  y.data_ptr<float>()[0] = static_cast<float>(first.size() * 1000 + second.size());
}
// @BE megabyte arg[n] ret[n] scratch[n*131072]
void megabyte(const BE::Tensor x, BE::Tensor y, BE::Workspace workspace) { twice(x, workspace.data(), y); }
// @BE spread arg ret scratch[100]
void spread(const BE::Tensor x, BE::Tensor y, BE::Workspace workspace) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = static_cast<float>(workspace.size());
}
// @BE asked
void asked(const BE::Tensor x, BE::Tensor y, BE::Workspace& workspace) { twice(x, workspace.allocate(x.nbytes()), y); }

// Several pieces of one call: none overlaps another.
// @BE pieces
void pieces(BE::Tensor y, const BE::Workspace workspace, int64_t bytes, int count) {
  unsigned char* at[64];
  for (int i = 0; i < count; ++i) {
    at[i] = workspace.allocate_as<unsigned char>(bytes * (i + 1));
    BE_CHECK(is_aligned(at[i]));
    for (int64_t k = 0; k < bytes * (i + 1); ++k) at[i][k] = static_cast<unsigned char>(i);
  }
  int wrong = 0;
  for (int i = 0; i < count; ++i)
    for (int64_t k = 0; k < bytes * (i + 1); ++k) wrong += at[i][k] != i;
  y.data_ptr<int32_t>()[0] = wrong;
}

// @BE sized
void sized(BE::Tensor y, BE::Workspace workspace, int64_t count, int item) {
  const void* got = item == 1   ? workspace.allocate(count)
                    : item == 8 ? workspace.allocate_as<double>(count)
                    : item == 0 ? workspace.data()
                                : workspace.allocate_as<long[512]>(count);
  y.data_ptr<int32_t>()[0] = got == nullptr;
}
// @BE confused ret scratch[8]
void confused(BE::Tensor y, BE::Workspace workspace) { workspace.allocate(y.numel()); }
