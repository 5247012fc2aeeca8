#include "brainevent/state.h"

#include <complex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "brainevent/common.h"

static float* out(BE::Tensor& y) { return y.data_ptr<float>(); }
static int made, deleted;
static const struct Plan* last;
template <class T>
static int next(T& counter) { return __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST); }

struct Plan {
  explicit Plan(const BE::Attributes& attributes) : scale(attributes.get<float>("scale")) {
    if (scale < 0) throw std::runtime_error("a negative scale");
    number = next(made);
    last = this;
  }
  ~Plan() { next(deleted); }
  float scale;
  int number;
  mutable int calls = 0;
};

// result: scale * x, then which object it is and how often it was used
// @BE scaled
void scaled(const BE::Tensor x, BE::Tensor y, const BE::State<Plan>& plan, double scale) {
  BE_CHECK(static_cast<float>(scale) == plan->scale);
  out(y)[0] = plan->scale * x.data_ptr<float>()[0];
  out(y)[1] = static_cast<float>(plan->number), out(y)[2] = static_cast<float>(next(plan->calls));
}
// Another of the same state, by value.
// @BE other
void other(const BE::Tensor x, BE::Tensor y, BE::State<Plan> plan, float scale) { scaled(x, y, plan, scale); }
// Uses the last object, also where it is deleted.
// @BE after
void after(const BE::Tensor x, BE::Tensor y) { out(y)[0] = last->scale + x.data_ptr<float>()[0]; }

// @BE counts
void counts(BE::Tensor y) {
  y.data_ptr<int32_t>()[0] = __atomic_load_n(&made, __ATOMIC_SEQ_CST);
  y.data_ptr<int32_t>()[1] = __atomic_load_n(&deleted, __ATOMIC_SEQ_CST);
}

// A class without a constructor for attributes.
struct Counter {
  int number = 1000;
  BE::PerDevice<std::vector<int>> tables;
};
// @BE counted
void counted(BE::Tensor y, const BE::State<Counter>& counter) {
  const std::vector<int>& table = counter->tables.get(3, 7);
  BE_CHECK(&table == &(*counter).tables.get());
  out(y)[0] = static_cast<float>(counter->number + table.size() + table[2]);
}

struct Floats {
  Floats(const float* first, size_t count) : total(0) {
    for (size_t i = 0; i < count; ++i) total += first[i];
  }
  const float* data() const;
  float total;
};
struct Ask {
  explicit Ask(const BE::Attributes& attributes) {
    const int what = attributes.get<int>("what");
    if (what == 1) attributes.get<double>("nothing");
    if (what == 2) attributes.get<std::string>("n");
    if (what == 3) attributes.get<int8_t>("n");
    if (what == 4) attributes.get<Floats>("n");
    if (what == 5) attributes.get<float>("z");
    if (what == 6) throw 6;
    if (what == 7) total = attributes.has("n") + 10 * attributes.has("m");
    if (what == 8) total = attributes.get<double>("n") + attributes.get<uint16_t>("n");
    if (what == 9) total = attributes.get<Floats>("z").total;
  }
  double total = 0;
};
// @BE ask ret state attr.n:int32 attr.what:int32 attr.z:complex64
void ask(BE::Tensor y, const BE::State<Ask>& asked, int32_t, int32_t, std::complex<float>) {
  out(y)[0] = static_cast<float>(asked->total);
}

enum class Mode { slow, fast };
struct Kinds {
  explicit Kinds(const BE::Attributes& attributes)
      : norm(attributes.get<std::string_view>("norm")),
        mode(attributes.get<std::string>("mode")),
        sum(attributes.get<double>("scale")) {
    for (const float weight : attributes.get<BE::Span<const float>>("weights")) sum += weight;
    if (norm == "wrong") attributes.get<float>("norm");
    if (norm == "default") attributes.get<std::string>("scale");
  }
  std::string norm, mode;
  double sum;
};
// Arrays that may be absent, and memory after the result.
// @BE kinds arg[n] arg?[n] ret[n]:like(0) state scratch[4*n] attr.norm:string=none attr.mode:enum(slow fast)=fast \
//     attr.weights:float32[] attr.scale:float32=2
void kinds(const BE::Tensor x, const BE::Tensor* bias, BE::Tensor y, const BE::State<Kinds>& plan,
           BE::Workspace workspace, std::string_view norm, Mode, BE::Span<const float>, float) {
  BE_CHECK(plan->norm == norm && workspace.size() == x.nbytes());
  for (int64_t i = 0; i < x.numel(); ++i)
    out(y)[i] = static_cast<float>(plan->sum) + (bias == nullptr ? 0 : bias->data_ptr<float>()[i]);
  if (plan->mode == "slow") out(y)[0] = -1;
}
