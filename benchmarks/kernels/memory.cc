#include "brainevent/common.h"
#include "brainevent/state.h"

static void add(const float* x, const float* y, float* z, int64_t n) {
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

// @BE declared arg arg ret scratch[65536]
void declared(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, BE::Workspace memory) {
  memory.data_as<float>()[0] = a.data_ptr<float>()[0];
  add(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), out.numel());
}

// @BE asked
void asked(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, BE::Workspace memory) {
  memory.allocate_as<float>(1024)[0] = a.data_ptr<float>()[0];
  add(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), out.numel());
}

struct Plan {
  int calls = 0;
};

// @BE planned
void planned(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, const BE::State<Plan>& plan) {
  BE_CHECK(plan->calls == 0);
  add(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), out.numel());
}
