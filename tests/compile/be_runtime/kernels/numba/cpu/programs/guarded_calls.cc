// Calls the native handler of host functions as XLA does, over buffers that a sanitizer guards on both sides.

#include "host_call.cc"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

namespace {

int failures = 0;
std::string last_error;
XLA_FFI_Error_Code last_code;
int64_t stream_value;

void expect(bool condition, const char* what) {
  if (condition) return;
  std::printf("failed: %s (last error: %s)\n", what, last_error.c_str());
  ++failures;
}

XLA_FFI_Error* make_error(XLA_FFI_Error_Create_Args* args) {
  return last_error = args->message, last_code = args->errc, reinterpret_cast<XLA_FFI_Error*>(&last_error);
}

XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) { return args->stream = &stream_value, nullptr; }

// A buffer of floats whose memory is its own allocation, exactly as long as its extents say.
struct Array {
  std::vector<int64_t> extents;
  std::unique_ptr<float[]> data;
  XLA_FFI_Buffer buffer{};

  explicit Array(std::vector<int64_t> shape, XLA_FFI_DataType dtype = XLA_FFI_DataType_F32) : extents(std::move(shape)) {
    data.reset(new float[static_cast<size_t>(size())]);
    std::iota(data.get(), data.get() + size(), 0.0f);
    buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    buffer.dtype = dtype;
    buffer.data = data.get();
    buffer.rank = static_cast<int64_t>(extents.size());
    buffer.dims = extents.data();
  }
  int64_t size() const { return element_count(extents.data(), static_cast<int64_t>(extents.size())); }
};

XLA_FFI_Error* call_with(const Kernel* kernel, const std::vector<Array*>& args, const std::vector<Array*>& rets) {
  std::vector<void*> buffers;
  for (Array* each : args) buffers.push_back(&each->buffer);
  for (Array* each : rets) buffers.push_back(&each->buffer);
  XLA_FFI_Api api{};
  api.XLA_FFI_Error_Create = make_error;
  api.XLA_FFI_Stream_Get = get_stream;
  XLA_FFI_CallFrame frame{};
  frame.api = &api;
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args.size = static_cast<int64_t>(args.size());
  frame.args.args = buffers.data();
  frame.rets.size = static_cast<int64_t>(rets.size());
  frame.rets.rets = buffers.data() + args.size();
  return be_host_call(&frame, kernel);
}

int calls = 0;

// (x[n], y[m], out[n]): out = x + the sum of y.
int32_t add_sum(void* const* data, const int64_t* extents, char* message) {
  const float *x = static_cast<const float*>(data[0]), *y = static_cast<const float*>(data[1]);
  float* out = static_cast<float*>(data[2]);
  ++calls;
  float sum = 0;
  for (int64_t i = 0; i < extents[1]; ++i) sum += y[i];
  if (x[0] < 0) {
    std::snprintf(message, kMessageSize, "%s", std::string(5000, 'x').c_str());
    return 1;
  }
  for (int64_t i = 0; i < extents[2]; ++i) out[i] = x[i] + sum;
  return 0;
}

int32_t keep_stream(void* const* data, const int64_t*, char*) {
  return *static_cast<float*>(data[1]) = data[2] == &stream_value ? 1.0f : 0.0f, 0;
}

const Parameter kVector{XLA_FFI_DataType_F32, 1, 4};
const Parameter kScalar{XLA_FFI_DataType_F32, 0, 4};

const Parameter kVectors[] = {kVector, kVector, kVector}, kScalars[] = {kScalar, kScalar};
const Kernel* kAdd = be_host_kernel("add_sum", reinterpret_cast<void*>(add_sum), true, false, 0, 2, 3, kVectors);

float sum_of(const float* begin, int64_t count) { return std::accumulate(begin, begin + count, 0.0f); }

// x, y and out with the batch (2, 3) in front, each of x and y with all, some or none of it.
void batch(std::vector<int64_t> x_batch, std::vector<int64_t> y_batch) {
  const auto with = [](std::vector<int64_t> front, int64_t last) { return front.push_back(last), front; };
  const auto offset = [](const std::vector<int64_t>& front, int64_t i, int64_t j) -> int64_t {
    if (front.empty()) return 0;
    return (front[0] == 1 ? 0 : i) * front[1] + (front[1] == 1 ? 0 : j);
  };
  Array x(with(x_batch, 5)), y(with(y_batch, 4)), out({2, 3, 5});
  calls = 0;
  expect(call_with(kAdd, {&x, &y}, {&out}) == nullptr, "a batch");
  expect(calls == 6, "one call for each element");
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t k = 0; k < 5; ++k)
        expect(out.data[(i * 3 + j) * 5 + k] ==
                   x.data[offset(x_batch, i, j) * 5 + k] + sum_of(y.data.get() + offset(y_batch, i, j) * 4, 4),
               "an element of a batch");
}

void refused(const std::vector<Array*>& args, const std::vector<Array*>& rets, const char* what) {
  calls = 0;
  expect(call_with(kAdd, args, rets) != nullptr, what);
  expect(last_code == XLA_FFI_Error_Code_INVALID_ARGUMENT && calls == 0, what);
}

void refusals() {
  Array x({5}), y({3}), out({5}), scalar({}), doubles({5}, XLA_FFI_DataType_F64), four({4, 5}), three({3, 5});
  Array batched({4, 2, 5});
  refused({&x}, {&out}, "too few arguments");
  refused({&x, &y}, {&out, &out}, "too many results");
  refused({&x, &scalar}, {&out}, "too few dimensions");
  refused({&x, &y}, {&scalar}, "too few dimensions of a result");
  refused({&x, &doubles}, {&out}, "another dtype");
  refused({&three, &y}, {&four}, "another batch");
  refused({&four, &y}, {&batched}, "part of a batch");
}

void failing() {
  Array x({3, 2}), y({2}), out({3, 2});
  x.data[2] = -1;
  expect(call_with(kAdd, {&x, &y}, {&out}) != nullptr, "a failure");
  expect(last_code == XLA_FFI_Error_Code_INTERNAL, "its code");
  expect(last_error.rfind("add_sum: xxx", 0) == 0, "its name");
  expect(last_error.find("(element 1 of a batch of 3)") != std::string::npos, "its place");
}

void stream() {
  static const Kernel* kernel = be_host_kernel("s", reinterpret_cast<void*>(keep_stream), false, true, 1, 1, 2, kScalars);
  Array x({}), out({});
  expect(call_with(kernel, {&x}, {&out}) == nullptr && out.data[0] == 1.0f, "the stream");
}

void metadata() {
  XLA_FFI_Metadata metadata{};
  XLA_FFI_Metadata_Extension extension{};
  auto* base = &extension.extension_base;
  base->type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  auto other = *base;
  other.type = static_cast<decltype(other.type)>(4711);
  other.next = base;
  XLA_FFI_CallFrame frame{};
  frame.extension_start = &other;
  static const Kernel* kernel = be_host_kernel("m", reinterpret_cast<void*>(keep_stream), false, true, 1, 0, 1, kScalars);
  expect(be_host_call(&frame, kernel) == nullptr, "the question for metadata");
  expect(metadata.api_version.minor_version == be_xla::kClaimMinor && metadata.traits == 1, "its answer");
}

}  // namespace

int main() {
  const std::vector<int64_t> shapes[] = {{2, 3}, {1, 3}, {2, 1}, {1, 1}, {}};
  for (const auto& x : shapes)
    for (const auto& y : shapes) batch(x, y);
  refusals();
  failing();
  stream();
  metadata();
  return failures != 0;
}
