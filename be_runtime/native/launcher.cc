/// \file
/// Launches CUDA kernels from XLA with no Python: one FFI handler for every kernel whose machine code is at hand.
///
/// A *kernel* is defined once, under the hash of its content: its images, one for an architecture, and its entry. A
/// *call* says in its attributes which kernel it launches, how, and what each of the kernel's parameters is:
///
///   kernel  string    the content's hash
///   launch  i64[12]   grid x y z, block x y z, dynamic shared bytes, cluster x y z, cooperative, batch axis
///   name    string    the kernel's name, for messages
///   params  i64[4 n]  for each parameter of the kernel: kind, and what `Param` says
///
/// XLA instantiates a call when it compiles or loads a program: that is when modules are loaded, for every device whose
/// context is there, so that nothing is loaded while a command buffer records. Modules are never unloaded.
///
/// The driver is opened at run time: compiling this takes neither CUDA's headers nor its libraries.

#include "launch/loading.h"

extern "C" {
/// Machine code or PTX of a kernel, as Python passes it. It is copied.
struct be_launch_image {
  int32_t arch;      ///< 90 for compute capability 9.0.
  int32_t is_ptx;    ///< PTX text that ends with a zero byte; else a cubin.
  int32_t is_exact;  ///< Runs on this architecture alone, as sm_90a does.
  int32_t form;      ///< 0: one call; 1: a whole batch along one axis of the grid.
  const char* entry;
  const void* data;
  int64_t size;
};
}

namespace be_launch {
namespace {

using be_xla::buffer_at;

constexpr int64_t kMaxWords = 4096;
constexpr int64_t kMaxGridY = 65535;

bool all_results_are_empty(const XLA_FFI_CallFrame* frame) {
  for (int64_t i = 0; i < frame->rets.size; ++i) {
    const XLA_FFI_Buffer* buffer = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[i]);
    bool is_empty = false;
    for (int64_t d = 0; d < buffer->rank; ++d) is_empty |= buffer->dims[d] == 0;
    if (!is_empty) return false;
  }
  return true;
}

int64_t element_count(const int64_t* dims, int64_t rank) {
  int64_t count = 1;
  for (int64_t i = 0; i < rank; ++i) count *= dims[i];
  return count;
}

/// Writes what Numba passes for an array: no owner, no parent, its size, its bytes, its shape and its strides.
uint64_t* write_array(uint64_t* word, const void* data, const int64_t* dims, int64_t rank, int64_t item_size) {
  *word++ = 0;
  *word++ = 0;
  *word++ = static_cast<uint64_t>(element_count(dims, rank));
  *word++ = static_cast<uint64_t>(item_size);
  *word++ = reinterpret_cast<uint64_t>(data);
  for (int64_t i = 0; i < rank; ++i) word[i] = static_cast<uint64_t>(dims[i]);
  uint64_t stride = static_cast<uint64_t>(item_size);
  for (int64_t i = rank - 1; i >= 0; --i) {
    word[rank + i] = stride;
    stride *= static_cast<uint64_t>(dims[i]);
  }
  return word + 2 * rank;
}

/// What every launch of one call shares.
struct Target {
  const XLA_FFI_CallFrame* frame;
  const Call* call;
  Kernel* kernel;
  int device;
  Stream stream;
};

__attribute__((cold)) XLA_FFI_Error* fail_launch(const Target& target, Result result) {
  const Geometry& g = *target.call->geometry;
  return fail(target.frame, XLA_FFI_Error_Code_INTERNAL,
              "%s: the launch failed with %s; grid (%lld, %lld, %lld), block (%lld, %lld, %lld), shared_mem %lld, cluster "
              "(%lld, %lld, %lld)%s",
              target.kernel->name.c_str(), driver().describe(result).c_str(), static_cast<long long>(g.grid[0]),
              static_cast<long long>(g.grid[1]), static_cast<long long>(g.grid[2]), static_cast<long long>(g.block[0]),
              static_cast<long long>(g.block[1]), static_cast<long long>(g.block[2]),
              static_cast<long long>(g.shared_bytes), static_cast<long long>(g.cluster[0]),
              static_cast<long long>(g.cluster[1]), static_cast<long long>(g.cluster[2]),
              g.is_cooperative ? "; a cooperative grid must fit on the device as a whole" : "");
}

Result launch_with_attributes(const Loaded& kernel, const Geometry& g, const unsigned* grid, Stream stream,
                              void** params) {
  LaunchAttribute attributes[2] = {};
  LaunchConfig config{};
  for (int i = 0; i < 3; ++i) {
    config.grid[i] = grid[i];
    config.block[i] = static_cast<unsigned>(g.block[i]);
  }
  config.shared_bytes = static_cast<unsigned>(g.shared_bytes);
  config.stream = stream;
  config.attributes = attributes;
  if (g.cluster[0] * g.cluster[1] * g.cluster[2] > 1) {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = kClusterDimension;
    for (int i = 0; i < 3; ++i) attribute.value.cluster[i] = static_cast<unsigned>(g.cluster[i]);
  }
  if (g.is_cooperative) {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = kCooperative;
    attribute.value.flag = 1;
  }
  return driver().cuLaunchKernelEx(&config, kernel.function, params, nullptr);
}

/// Launches once. `words` holds the parameters, each in one word.
XLA_FFI_Error* launch(const Target& target, int form, uint64_t* words, int64_t count, unsigned batch) {
  const Geometry& g = *target.call->geometry;
  Loaded* loaded = target.kernel->loaded[form][target.device].load(std::memory_order_acquire);
  if (__builtin_expect(
          loaded == nullptr || g.shared_bytes > loaded->dynamic_shared.load(std::memory_order_relaxed), 0)) {
    std::string problem;
    loaded = obtain(target.kernel, form, target.device, &problem);
    if (loaded != nullptr) problem = prepare(loaded, g);
    if (!problem.empty())
      return fail(target.frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s: %s", target.kernel->name.c_str(),
                  problem.c_str());
  }
  void** params = BE_STACK_ROOM(void*, count + 1);
  for (int64_t i = 0; i < count; ++i) params[i] = words + i;
  unsigned grid[3];
  for (int i = 0; i < 3; ++i) grid[i] = static_cast<unsigned>(g.grid[i]);
  if (form == 1) grid[g.batch_axis] = batch;
  const Result result =
      g.is_plain()
          ? driver().cuLaunchKernel(loaded->function, grid[0], grid[1], grid[2], static_cast<unsigned>(g.block[0]),
                                    static_cast<unsigned>(g.block[1]), static_cast<unsigned>(g.block[2]),
                                    static_cast<unsigned>(g.shared_bytes), target.stream, params, nullptr)
          : launch_with_attributes(*loaded, g, grid, target.stream, params);
  return result == 0 ? nullptr : fail_launch(target, result);
}

/// The axes that `vmap` put before a buffer's own.
int64_t batch_rank(const XLA_FFI_CallFrame* frame, const Param& param) {
  return param.kind == Param::kScalar ? 0 : buffer_at(frame, param.first)->rank - param.second;
}

/// Launches a batch, whose axes are those before a result's own.
///
/// Its last axis is one launch where the kernel has such a form; every other index is a launch of its own.
class Batch {
 public:
  Batch(const Target& target, const int64_t* dims, int64_t rank)
      : target_(target), dims_(dims), rank_(rank), form_(target.call->geometry->batch_axis > 0 && target.kernel->has(1) ? 1 : 0) {}

  XLA_FFI_Error* run() {
    const int64_t step = form_ == 0 ? 1 : dims_[rank_ - 1] < kMaxGridY ? dims_[rank_ - 1] : kMaxGridY;
    const int64_t inner = dims_[rank_ - 1], total = element_count(dims_, rank_);
    for (int64_t at = 0; at < total;) {
      const int64_t left = inner - at % inner;
      const int64_t count = left < step ? left : step;
      if (XLA_FFI_Error* error = launch_at(at, count)) return error;
      at += count;
    }
    return nullptr;
  }

 private:
  /// How far into a buffer the slice of a batch index begins, in slices: an axis of one element repeats it.
  int64_t slice_offset(const XLA_FFI_Buffer* buffer, int64_t own_rank, int64_t at) const {
    const int64_t lead = buffer->rank - own_rank;
    int64_t offset = 0, scale = 1;
    for (int64_t axis = rank_ - 1; axis >= 0; --axis) {
      const int64_t index = at % dims_[axis];
      at /= dims_[axis];
      const int64_t own = axis - (rank_ - lead);
      if (own < 0) break;
      if (buffer->dims[own] > 1) offset += index * scale;
      scale *= buffer->dims[own];
    }
    return offset;
  }

  XLA_FFI_Error* launch_at(int64_t at, int64_t count) const {
    uint64_t words[kMaxWords];
    uint64_t* word = words;
    for (int64_t i = 0; i < target_.call->param_count; ++i) {
      const Param& param = target_.call->params[i];
      if (param.kind == Param::kScalar) {
        *word++ = static_cast<uint64_t>(param.first);
        continue;
      }
      const XLA_FFI_Buffer* buffer = buffer_at(target_.frame, param.first);
      const int64_t lead = buffer->rank - param.second;
      const int64_t* own = buffer->dims + lead;
      char* data = static_cast<char*>(buffer->data) +
                   slice_offset(buffer, param.second, at) * element_count(own, param.second) * param.third / 8;
      if (param.kind == Param::kPointer) {
        *word++ = reinterpret_cast<uint64_t>(data);
      } else if (form_ == 0) {
        word = write_array(word, data, own, param.second, param.third / 8);
      } else {
        int64_t dims[64];
        dims[0] = lead > 0 && buffer->dims[lead - 1] > 1 ? count : 1;
        for (int64_t d = 0; d < param.second; ++d) dims[d + 1] = own[d];
        word = write_array(word, data, dims, param.second + 1, param.third / 8);
      }
    }
    return launch(target_, form_, words, word - words, static_cast<unsigned>(count));
  }

  const Target& target_;
  const int64_t* dims_;
  int64_t rank_;
  int form_;
};

/// Where the results have more axes than the kernel sees, the buffer that says which.
const XLA_FFI_Buffer* find_batched(const XLA_FFI_CallFrame* frame, const Call& call, int64_t* rank) {
  for (int64_t i = 0; i < call.param_count; ++i) {
    const Param& param = call.params[i];
    if (param.kind == Param::kScalar || param.first < frame->args.size) continue;
    *rank = batch_rank(frame, param);
    return *rank > 0 ? buffer_at(frame, param.first) : nullptr;
  }
  return nullptr;
}

/// Refuses a batch whose slices begin within a byte.
XLA_FFI_Error* check_slices(const XLA_FFI_CallFrame* frame, const Call& call) {
  for (int64_t i = 0; i < call.param_count; ++i) {
    const Param& param = call.params[i];
    const int64_t rank = batch_rank(frame, param);
    if (rank == 0) continue;
    const int64_t* dims = buffer_at(frame, param.first)->dims;
    const int64_t elements = element_count(dims + rank, param.second);
    if (elements * param.third % 8 != 0 && element_count(dims, rank) > 1)
      return fail_slices(frame, call, elements, param.third);
  }
  return nullptr;
}

/// Says whether the call's parameters are those of its frame, with few enough words for `Batch` and for CUDA.
bool fits(const XLA_FFI_CallFrame* frame, const Call& call, int64_t* words) {
  const int64_t buffers = frame->args.size + frame->rets.size;
  int64_t count = 0;
  for (int64_t i = 0; i < call.param_count; ++i) {
    const Param& param = call.params[i];
    if (param.kind == Param::kScalar) {
      ++count;
      continue;
    }
    if (param.first < 0 || param.first >= buffers || batch_rank(frame, param) < 0 || param.second > 62) return false;
    count += param.kind == Param::kPointer ? 1 : 7 + 2 * param.second;
  }
  *words = count;
  return count <= kMaxWords;
}

XLA_FFI_Error* execute(const XLA_FFI_CallFrame* frame) {
  if (__builtin_expect(be_xla::is_ordered(frame), 0)) {
    const XLA_FFI_CallFrame plain = be_xla::without_tokens(frame);
    return execute(&plain);
  }
  Call call;
  int64_t word_count = 0;
  if (!read_call(frame, &call) || !fits(frame, call, &word_count)) return fail_attrs(frame);
  if (all_results_are_empty(frame)) return nullptr;
  int64_t rank = 0;
  const XLA_FFI_Buffer* batched = find_batched(frame, call, &rank);
  if (batched != nullptr)
    if (XLA_FFI_Error* error = check_slices(frame, call)) return error;
  Kernel* kernel = kernels().find(call.id);
  if (kernel == nullptr) return fail_unknown(frame, call);
  const Driver& cuda = driver();
  if (!cuda.problem.empty())
    return fail(frame, XLA_FFI_Error_Code_FAILED_PRECONDITION, "%s: %s", kernel->name.c_str(), cuda.problem.c_str());
  XLA_FFI_Stream_Get_Args stream{};
  stream.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  stream.ctx = frame->ctx;
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&stream)) return error;
  int device = 0;
  if (cuda.device_count > 1 && (cuda.cuCtxGetDevice(&device) != 0 || device >= kMaxDevices))
    return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: no CUDA context is current", kernel->name.c_str());

  const Target target{frame, &call, kernel, device, stream.stream};
  if (batched != nullptr) return Batch(target, batched->dims, rank).run();
  uint64_t* words = BE_STACK_ROOM(uint64_t, word_count + 1);
  uint64_t* word = words;
  for (int64_t i = 0; i < call.param_count; ++i) {
    const Param& param = call.params[i];
    if (param.kind == Param::kScalar) {
      *word++ = static_cast<uint64_t>(param.first);
      continue;
    }
    const XLA_FFI_Buffer* buffer = buffer_at(frame, param.first);
    if (param.kind == Param::kPointer)
      *word++ = reinterpret_cast<uint64_t>(buffer->data);
    else
      word = write_array(word, buffer->data, buffer->dims, buffer->rank, param.third / 8);
  }
  return launch(target, 0, words, word - words, 1);
}

}  // namespace
}  // namespace be_launch

using namespace be_launch;

static bool answer_metadata(XLA_FFI_CallFrame* frame) {
  return be_xla::answer_metadata(frame, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
}

#define BE_EXPORT extern "C" __attribute__((visibility("default")))

/// Makes a kernel known under the hash of its content. The same id again changes nothing.
BE_EXPORT void be_launch_define(const char* id, const char* name, const be_launch_image* images, int64_t count) {
  auto kernel = std::make_unique<Kernel>();
  memcpy(kernel->id, id, kIdSize);
  kernel->name = name;
  for (int64_t i = 0; i < count; ++i) {
    const be_launch_image& image = images[i];
    kernel->images.push_back({image.arch, image.is_ptx != 0, image.is_exact != 0, image.form, image.entry,
                              std::string(static_cast<const char*>(image.data), static_cast<size_t>(image.size))});
  }
  kernels().add(std::move(kernel));
}

BE_EXPORT XLA_FFI_Error* be_launch_instantiate(XLA_FFI_CallFrame* frame) {
  return answer_metadata(frame) ? nullptr : instantiate(frame);
}

BE_EXPORT XLA_FFI_Error* be_launch_execute(XLA_FFI_CallFrame* frame) {
  return answer_metadata(frame) ? nullptr : execute(frame);
}
