#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include "brainevent/state.h"
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>

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
