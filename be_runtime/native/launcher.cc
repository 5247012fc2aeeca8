/// \file
/// Launch CUDA kernels from XLA without Python: one FFI handler for every kernel whose machine code is at hand.
///
/// A *kernel* is defined once, under the hash of its content: its images, one for an architecture, and its entry. A
/// *call* describes in its attributes the kernel, the launch, and each of the kernel's parameters:
///
///   kernel  string    the content's hash
///   launch  i64[12]   grid x y z, block x y z, dynamic shared bytes, cluster x y z, cooperative, batch axis
///   name    string    the kernel's name, for messages
///   params  i64[4 n]  for each parameter of the kernel: a `Param`
///
/// XLA instantiates a call when it compiles or loads a program. Modules are loaded then, for every device whose
/// context exists, so that nothing is loaded while a command buffer records. Modules are never unloaded.
///
/// The driver is opened at run time: compiling this file takes neither CUDA's headers nor its libraries.

#include <algorithm>

#include "gpu_kernels.h"
#include "xla_call.h"

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

using be_xla::buffer_at, be_xla::element_count, be_xla::fail, be_xla::kInvalid;

constexpr int64_t kMaxWords = 4096, kMaxGridY = 65535;
constexpr uint32_t kTraits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;

/// One parameter of a kernel, as the attribute `params` spells it.
struct Param {
  enum Kind : int64_t { kPointer = 0, kArray = 1, kScalar = 2, kMemref = 3, kStrided = 4 };
  int64_t kind;
  int64_t first;   ///< The buffer's number, arguments before results; a scalar's bits.
  int64_t second;  ///< The buffer's dimensions as the kernel sees them; unused for a scalar.
  int64_t third;   ///< Bits of one element.
};

struct Call {
  const char* id;
  const XLA_FFI_ByteSpan* name;
  const Geometry* geometry;
  const Param* params;
  int64_t param_count;

  const Param* begin() const { return params; }
  const Param* end() const { return params + param_count; }
};

inline const XLA_FFI_ByteSpan* string_attr(const XLA_FFI_Attrs& attrs, int index) {
  return attrs.types[index] == XLA_FFI_AttrType_STRING ? static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[index])
                                                       : nullptr;
}

inline const XLA_FFI_Array* int_array_attr(const XLA_FFI_Attrs& attrs, int index) {
  const XLA_FFI_Array* array = static_cast<const XLA_FFI_Array*>(attrs.attrs[index]);
  return attrs.types[index] == XLA_FFI_AttrType_ARRAY && array->dtype == XLA_FFI_DataType_S64 ? array : nullptr;
}

/// Read the attributes, which are sorted by name; false if they don't describe a launch.
inline bool read_call(const XLA_FFI_CallFrame* frame, Call* call) {
  const XLA_FFI_Attrs& attrs = frame->attrs;
  if (attrs.size != 4) return false;
  const XLA_FFI_ByteSpan* id = string_attr(attrs, 0);
  const XLA_FFI_Array* launch = int_array_attr(attrs, 1);
  call->name = string_attr(attrs, 2);
  const XLA_FFI_Array* params = int_array_attr(attrs, 3);
  if (id == nullptr || launch == nullptr || call->name == nullptr || params == nullptr) return false;
  if (id->len != kIdSize || launch->size != sizeof(Geometry) / 8 || params->size % 4 != 0) return false;
  call->id = id->ptr;
  call->geometry = static_cast<const Geometry*>(launch->data);
  call->params = static_cast<const Param*>(params->data);
  call->param_count = static_cast<int64_t>(params->size / 4);
  return true;
}

XLA_FFI_Error* fail_attrs(const XLA_FFI_CallFrame* frame) {
  return fail(frame, kInvalid,
              "be_runtime.launch: the attributes are not those of a launch; call it through cuda_kernel or "
              "numba_cuda_kernel");
}

XLA_FFI_Error* fail_unknown(const XLA_FFI_CallFrame* frame, const Call& call) {
  return fail(frame, XLA_FFI_Error_Code_NOT_FOUND,
              "%.*s: this process has not made the kernel (content %.*s); make it, by the same cuda_kernel or "
              "numba_cuda_kernel call, before a program that was compiled elsewhere runs",
              static_cast<int>(call.name->len), call.name->ptr, static_cast<int>(kIdSize), call.id);
}

bool all_results_are_empty(const XLA_FFI_CallFrame* frame) {
  for (int64_t i = 0; i < frame->rets.size; ++i) {
    const XLA_FFI_Buffer* buffer = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[i]);
    if (element_count(buffer->dims, buffer->rank) != 0) return false;
  }
  return true;
}

/// Write the shape and the strides of an array whose elements lie one after the other.
uint64_t* write_layout(uint64_t* word, const int64_t* dims, int64_t rank, int64_t stride) {
  for (int64_t i = 0; i < rank; ++i) word[i] = static_cast<uint64_t>(dims[i]);
  for (int64_t i = rank - 1; i >= 0; --i) {
    word[rank + i] = static_cast<uint64_t>(stride);
    stride *= dims[i];
  }
  return word + 2 * rank;
}

/// Write Numba's arguments for an array: no owner, no parent, its size, its bytes, its shape and its strides.
uint64_t* write_array(uint64_t* word, const void* data, const int64_t* dims, int64_t rank, int64_t item_size) {
  *word++ = 0;
  *word++ = 0;
  *word++ = static_cast<uint64_t>(element_count(dims, rank));
  *word++ = static_cast<uint64_t>(item_size);
  *word++ = reinterpret_cast<uint64_t>(data);
  return write_layout(word, dims, rank, item_size);
}

/// Write an array as MLIR's memref: the memory, where the elements begin, how far into it, the shape and the strides in
/// elements. See https://mlir.llvm.org/docs/TargetLLVMIR/#ranked-memref-types.
uint64_t* write_memref(uint64_t* word, const void* data, const int64_t* dims, int64_t rank) {
  *word++ = reinterpret_cast<uint64_t>(data);
  *word++ = reinterpret_cast<uint64_t>(data);
  *word++ = 0;
  return write_layout(word, dims, rank, 1);
}

/// Write an array as cuTile takes it: the memory, the shape and the strides in elements. If the kernel was compiled for
/// extents of 32 bits, CUDA reads the lower half of each word.
uint64_t* write_strided(uint64_t* word, const void* data, const int64_t* dims, int64_t rank) {
  *word++ = reinterpret_cast<uint64_t>(data);
  return write_layout(word, dims, rank, 1);
}

/// Write a parameter: a scalar's bits, or a pointer to a buffer or a description of an array with these extents.
inline uint64_t* write_param(uint64_t* word, const Param& param, const void* data, const int64_t* dims, int64_t rank) {
  if (param.kind == Param::kScalar) *word = static_cast<uint64_t>(param.first);
  else if (param.kind == Param::kPointer) *word = reinterpret_cast<uint64_t>(data);
  else if (param.kind == Param::kMemref) return write_memref(word, data, dims, rank);
  else if (param.kind == Param::kStrided) return write_strided(word, data, dims, rank);
  else return write_array(word, data, dims, rank, param.third / 8);
  return word + 1;
}

/// The values that all launches of one call share.
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
              "%s: the launch failed with %s; grid (%ld, %ld, %ld), block (%ld, %ld, %ld), shared_mem %ld, cluster "
              "(%ld, %ld, %ld)%s",
              target.kernel->name.c_str(), driver().describe(result).c_str(), g.grid[0], g.grid[1], g.grid[2],
              g.block[0], g.block[1], g.block[2], g.shared_bytes, g.cluster[0], g.cluster[1], g.cluster[2],
              g.is_cooperative ? "; a cooperative grid must fit on the device as a whole" : "");
}

Result launch_with_attributes(const Loaded& kernel, const Geometry& g, const unsigned* grid, Stream stream,
                              void** params) {
  LaunchAttribute attributes[2] = {};
  LaunchConfig config{{grid[0], grid[1], grid[2]}, {}, static_cast<unsigned>(g.shared_bytes), stream, attributes, 0};
  for (int i = 0; i < 3; ++i) config.block[i] = static_cast<unsigned>(g.block[i]);
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

/// Launch once. `words` holds the parameters, each in one word.
XLA_FFI_Error* launch(const Target& target, int form, uint64_t* words, int64_t count, unsigned batch) {
  const Geometry& g = *target.call->geometry;
  Loaded* loaded = target.kernel->loaded[form][target.device].load(std::memory_order_acquire);
  if (__builtin_expect(loaded == nullptr || g.shared_bytes > loaded->dynamic_shared.load(std::memory_order_relaxed),
                       0)) {
    std::string problem;
    loaded = obtain(target.kernel, form, target.device, &problem);
    if (loaded != nullptr) problem = prepare(loaded, g);
    if (!problem.empty()) return fail(target.frame, kInvalid, "%s: %s", target.kernel->name.c_str(), problem.c_str());
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

/// Return the number of axes that `vmap` put before a buffer's own.
int64_t batch_rank(const XLA_FFI_CallFrame* frame, const Param& param) {
  return param.kind == Param::kScalar ? 0 : buffer_at(frame, param.first)->rank - param.second;
}

/// Return how far into a buffer the slice of a batch index begins, in slices: an axis of one element repeats it.
int64_t slice_offset(const XLA_FFI_Buffer* batched, int64_t rank, const XLA_FFI_Buffer* buffer, int64_t lead,
                     int64_t at) {
  int64_t offset = 0, scale = 1;
  for (int64_t axis = rank - 1; axis >= rank - lead; --axis) {
    const int64_t extent = buffer->dims[axis - (rank - lead)];
    if (extent > 1) offset += at % batched->dims[axis] * scale;
    at /= batched->dims[axis];
    scale *= extent;
  }
  return offset;
}

/// Launch `count` elements of a batch, which begin at the index `at`.
XLA_FFI_Error* launch_slices(const Target& target, const XLA_FFI_Buffer* batched, int64_t rank, int form, int64_t at,
                             int64_t count) {
  uint64_t words[kMaxWords];
  uint64_t* word = words;
  for (const Param& param : *target.call) {
    if (param.kind == Param::kScalar) {
      word = write_param(word, param, nullptr, nullptr, 0);
      continue;
    }
    const XLA_FFI_Buffer* buffer = buffer_at(target.frame, param.first);
    const int64_t lead = buffer->rank - param.second;
    const int64_t* own = buffer->dims + lead;
    char* data = static_cast<char*>(buffer->data) +
                 slice_offset(batched, rank, buffer, lead, at) * element_count(own, param.second) * param.third / 8;
    if (param.kind == Param::kPointer || form == 0) {
      word = write_param(word, param, data, own, param.second);
      continue;
    }
    int64_t dims[64];
    dims[0] = lead > 0 && buffer->dims[lead - 1] > 1 ? count : 1;
    std::copy(own, own + param.second, dims + 1);
    word = write_param(word, param, data, dims, param.second + 1);
  }
  return launch(target, form, words, word - words, static_cast<unsigned>(count));
}

/// Launch a batch. Its axes are the first `rank` axes of a result.
///
/// Its last axis is one launch if the kernel has such a form; every other index is a launch of its own.
XLA_FFI_Error* launch_batch(const Target& target, const XLA_FFI_Buffer* batched, int64_t rank) {
  const int form = target.call->geometry->batch_axis > 0 && target.kernel->has(1) ? 1 : 0;
  const int64_t inner = batched->dims[rank - 1], total = element_count(batched->dims, rank);
  const int64_t step = form == 0 ? 1 : std::min(inner, kMaxGridY);
  for (int64_t at = 0, count; at < total; at += count) {
    count = std::min(inner - at % inner, step);
    if (XLA_FFI_Error* error = launch_slices(target, batched, rank, form, at, count)) return error;
  }
  return nullptr;
}

/// Find a result with more axes than the kernel sees, and their number; null if there is none.
const XLA_FFI_Buffer* find_batched(const XLA_FFI_CallFrame* frame, const Call& call, int64_t* rank) {
  for (const Param& param : call) {
    if (param.kind == Param::kScalar || param.first < frame->args.size) continue;
    *rank = batch_rank(frame, param);
    return *rank > 0 ? buffer_at(frame, param.first) : nullptr;
  }
  return nullptr;
}

/// Refuse a batch whose slices begin within a byte.
XLA_FFI_Error* check_slices(const XLA_FFI_CallFrame* frame, const Call& call) {
  for (const Param& param : call) {
    const int64_t rank = batch_rank(frame, param);
    if (rank == 0) continue;
    const int64_t* dims = buffer_at(frame, param.first)->dims;
    const int64_t elements = element_count(dims + rank, param.second);
    if (elements * param.third % 8 != 0 && element_count(dims, rank) > 1)
      return fail(frame, kInvalid,
                  "%.*s: a batch has slices of %ld elements of %ld bits, which don't begin at whole "
                  "bytes; pass vmap_method='sequential', or arrays of larger elements",
                  static_cast<int>(call.name->len), call.name->ptr, elements, param.third);
  }
  return nullptr;
}

/// Return whether the call's parameters fit its frame, with few enough words for a batch and for CUDA.
bool fits(const XLA_FFI_CallFrame* frame, const Call& call, int64_t* words) {
  const int64_t buffers = frame->args.size + frame->rets.size;
  int64_t count = 0;
  for (const Param& param : call) {
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
  Kernel* kernel = kernels.find(call.id);
  if (kernel == nullptr) return fail_unknown(frame, call);
  const Driver& cuda = driver();
  if (!cuda.problem.empty())
    return fail(frame, XLA_FFI_Error_Code_FAILED_PRECONDITION, "%s: %s", kernel->name.c_str(), cuda.problem.c_str());
  Stream stream = nullptr;
  if (XLA_FFI_Error* error = be_xla::get_stream(frame, &stream)) return error;
  int device = 0;
  if (cuda.device_count > 1 && (cuda.cuCtxGetDevice(&device) != 0 || device >= kMaxDevices))
    return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: no CUDA context is current", kernel->name.c_str());

  const Target target{frame, &call, kernel, device, stream};
  if (batched != nullptr) return launch_batch(target, batched, rank);
  uint64_t* words = BE_STACK_ROOM(uint64_t, word_count + 1);
  uint64_t* word = words;
  for (const Param& param : call) {
    const XLA_FFI_Buffer* buffer = param.kind == Param::kScalar ? nullptr : buffer_at(frame, param.first);
    word = buffer == nullptr ? write_param(word, param, nullptr, nullptr, 0)
                             : write_param(word, param, buffer->data, buffer->dims, param.second);
  }
  return launch(target, 0, words, word - words, 1);
}

XLA_FFI_Error* instantiate(XLA_FFI_CallFrame* frame) {
  Call call;
  if (!read_call(frame, &call)) return fail_attrs(frame);
  const int name_size = static_cast<int>(call.name->len);
  const Driver& cuda = driver();
  if (!cuda.problem.empty())
    return fail(frame, XLA_FFI_Error_Code_FAILED_PRECONDITION, "%.*s: %s", name_size, call.name->ptr,
                cuda.problem.c_str());
  Kernel* kernel = kernels.find(call.id);
  if (kernel == nullptr) return fail_unknown(frame, call);
  std::string problem;
  bool any_works = false;
  for (int device = 0; device < cuda.device_count && device < kMaxDevices; ++device) {
    unsigned flags = 0;
    int is_active = 0;
    if (cuda.cuDevicePrimaryCtxGetState(device, &flags, &is_active) != 0 || !is_active) continue;
    const std::string why = preload(kernel, *call.geometry, device);
    any_works |= why.empty();
    if (problem.empty()) problem = why;
  }
  // With devices of several kinds, the program may use only devices that the kernel serves.
  if (problem.empty() || any_works) return nullptr;
  return fail(frame, kInvalid, "%.*s: %s", name_size, call.name->ptr, problem.c_str());
}

}  // namespace
}  // namespace be_launch

using namespace be_launch;

/// Make a kernel known under the hash of its content. The same id again changes nothing.
BE_EXPORT void be_launch_define(const char* id, const char* name, const be_launch_image* images, int64_t count) {
  auto kernel = std::make_unique<Kernel>();
  memcpy(kernel->id, id, kIdSize);
  kernel->name = name;
  for (int64_t i = 0; i < count; ++i) {
    const be_launch_image& image = images[i];
    kernel->images.push_back({image.arch, image.is_ptx != 0, image.is_exact != 0, image.form, image.entry,
                              std::string(static_cast<const char*>(image.data), static_cast<size_t>(image.size))});
  }
  kernels.add(std::move(kernel));
}

BE_EXPORT XLA_FFI_Error* be_launch_instantiate(XLA_FFI_CallFrame* frame) {
  return be_xla::answer_metadata(frame, kTraits) ? nullptr : instantiate(frame);
}

BE_EXPORT XLA_FFI_Error* be_launch_execute(XLA_FFI_CallFrame* frame) {
  return be_xla::answer_metadata(frame, kTraits) ? nullptr : execute(frame);
}
