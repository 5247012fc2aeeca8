#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include "brainevent/state.h"
#include <pthread.h>
#include <unistd.h>

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

// Threads.
static void shift(const float* x, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] + 1;
}

// @BE plain
void plain(const BE::Tensor x, BE::Tensor y, int64_t grain) {
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  BE::parallel_for(x.numel(), grain, [=](int64_t begin, int64_t end) { shift(in, out, begin, end); });
}

// Three levels, each with memory of its own.
// @BE nested
void nested(const BE::Tensor x, BE::Tensor y, int64_t grain, BE::Workspace workspace) {
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  BE::parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
    float* outer = workspace.allocate_as<float>(end - begin);
    for (int64_t i = begin; i < end; ++i) outer[i - begin] = in[i];
    BE::parallel_for(end - begin, grain / 8 + 1, [&](int64_t b, int64_t e) {
      float* inner = workspace.allocate_as<float>(e - b);
      for (int64_t i = b; i < e; ++i) inner[i - b] = outer[i];
      BE::parallel_for(e - b, 16, [&](int64_t from, int64_t to) { shift(inner, out + begin + b, from, to); });
    });
  });
}

// @BE throws
void throws(BE::Tensor y, int64_t n, int64_t at) {
  BE::parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    if (begin <= at && at < end) BE_CHECK(false) << "part of " << at;
  });
  y.data_ptr<int32_t>()[0] = 1;
}

// The parts that it makes: their number, their sum, the smallest, the threads that ran some.
// @BE parts
void parts(BE::Tensor y, int64_t n, int64_t grain) {
  int64_t count = 0, sum = 0, least = INT64_MAX;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  int64_t threads = 0;
  pthread_t seen[256];
  BE::parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    pthread_mutex_lock(&lock);
    ++count, sum += end - begin;
    if (end < n && end - begin < least) least = end - begin;
    int64_t i = 0;
    while (i < threads && !pthread_equal(seen[i], pthread_self())) ++i;
    if (i == threads) seen[threads++] = pthread_self();
    pthread_mutex_unlock(&lock);
    usleep(300);  // leaves the core to the others
  });
  int64_t* out = y.data_ptr<int64_t>();
  out[0] = count, out[1] = sum, out[2] = least, out[3] = threads;
}

struct Table {
  Table() {
    BE::parallel_for(100, 1, [&](int64_t begin, int64_t end) { parts += end - begin == 100; });
  }
  int parts = 0;
};

// A constructor has no threads.
// @BE tabled
void tabled(BE::Tensor y, const BE::State<Table>& table) { y.data_ptr<int32_t>()[0] = table->parts; }
