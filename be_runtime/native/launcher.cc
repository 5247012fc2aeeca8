/// \file
/// Launch CUDA kernels from XLA without Python: one FFI handler for all kernels with machine code.
///
/// A *kernel* is defined once, under the hash of its content: its images, one for an architecture, and its entry. A
/// *call* describes in its attributes the kernel, the launch, and each of the kernel's parameters:
///
///   kernel  string    the content's hash
///   launch  i64[12]   grid x y z, block x y z, dynamic shared bytes, cluster x y z, flags, batch axis
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
constexpr int64_t kMaxBoxRank = 5, kDescriptorWords = 16, kAlignmentWords = 7;
constexpr uint32_t kTraits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;

/// One parameter of a kernel, as the attribute `params` encodes it.
struct Param {
  enum Kind : int64_t { kPointer = 0, kArray = 1, kScalar = 2, kMemref = 3, kStrided = 4, kDescriptor = 5 };
  int64_t kind;
  int64_t first;   ///< The buffer's number, arguments before results; a scalar's bits.
  int64_t second;  ///< The buffer's dimensions as the kernel sees them; a descriptor has its box above the low 3 bits.
  int64_t third;   ///< Bits of one element; a descriptor has its swizzle and its element type above the low 16 bits.

  int64_t rank() const { return kind == kDescriptor ? second & 7 : second; }
  int64_t bits() const { return third & 0xFFFF; }
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
              "be_runtime.launch: the attributes do not describe a launch; call it through cuda_kernel or "
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

/// The values of a launch, and a pointer to each parameter of the kernel; a parameter is one value or a descriptor.
struct Arguments {
  uint64_t* value;
  void** param;
  Result result = 0;  ///< Of the descriptors.

  void put(uint64_t bits) {
    *param++ = value;
    *value++ = bits;
  }
  void put(const void* data) { put(reinterpret_cast<uint64_t>(data)); }

  /// Write the shape and the strides of a contiguous array.
  void put_layout(const int64_t* dims, int64_t rank, int64_t stride) {
    uint64_t* const strides = value + rank;
    for (int64_t i = 0; i < rank; ++i) put(static_cast<uint64_t>(dims[i]));
    for (int64_t i = 0; i < rank; ++i) put(uint64_t{0});
    for (int64_t i = rank - 1; i >= 0; --i) {
      strides[i] = static_cast<uint64_t>(stride);
      stride *= dims[i];
    }
  }

  /// Write Numba's arguments for an array: no owner, no parent, its size, its bytes, its shape and its strides.
  void put_array(const void* data, const int64_t* dims, int64_t rank, int64_t item_size) {
    put(uint64_t{0});
    put(uint64_t{0});
    put(static_cast<uint64_t>(element_count(dims, rank)));
    put(static_cast<uint64_t>(item_size));
    put(data);
    put_layout(dims, rank, item_size);
  }

  /// Write an array as MLIR's memref: the allocated pointer, the aligned pointer, the offset, the shape and the strides
  /// in elements. See https://mlir.llvm.org/docs/TargetLLVMIR/#ranked-memref-types.
  void put_memref(const void* data, const int64_t* dims, int64_t rank) {
    put(data);
    put(data);
    put(uint64_t{0});
    put_layout(dims, rank, 1);
  }

  /// Write an array as the arguments of Triton's `TensorDescriptor`: a CUtensorMap, the shape, and the strides in
  /// elements.
  void put_descriptor(const Param& described, const void* data, const int64_t* dims) {
    constexpr int kNoInterleave = 0, kPromoteTo128Bytes = 2, kFillWithZeros = 0;
    const unsigned steps[kMaxBoxRank] = {1, 1, 1, 1, 1};
    uint64_t extents[kMaxBoxRank], strides[kMaxBoxRank], stride = static_cast<uint64_t>(described.bits() / 8);
    unsigned box[kMaxBoxRank];
    const int64_t rank = described.rank();
    for (int64_t i = 0, axis = rank - 1; i < rank; ++i, --axis) {
      extents[i] = static_cast<uint64_t>(dims[axis]);
      strides[i] = stride *= extents[i];
      box[i] = static_cast<unsigned>(described.second >> (3 + 9 * axis) & 511);
    }
    value = reinterpret_cast<uint64_t*>((reinterpret_cast<uintptr_t>(value) + 63) / 64 * 64);
    const auto encode = driver().cuTensorMapEncodeTiled;
    const int swizzle = static_cast<int>(described.third >> 16 & 255), type = static_cast<int>(described.third >> 24);
    const Result made =
        encode == nullptr ? be_cuda::kNotSupported
                          : encode(value, type, static_cast<unsigned>(rank), data, extents, strides, box, steps,
                                   kNoInterleave, swizzle, kPromoteTo128Bytes, kFillWithZeros);
    if (made != 0) result = made;
    *param++ = value;
    value += kDescriptorWords;
    put_layout(dims, rank, 1);
  }

  /// Write a parameter: a scalar's bits, or a pointer to a buffer or a description of an array with these extents.
  void put_param(const Param& described, const void* data, const int64_t* dims, int64_t rank) {
    switch (described.kind) {
      case Param::kScalar: return put(static_cast<uint64_t>(described.first));
      case Param::kPointer: return put(data);
      case Param::kMemref: return put_memref(data, dims, rank);
      case Param::kDescriptor: return put_descriptor(described, data, dims);
      case Param::kStrided:  // CUDA reads the lower half of an extent or a stride of 32 bits
        put(data);
        return put_layout(dims, rank, 1);
      default: return put_array(data, dims, rank, described.bits() / 8);
    }
  }
};

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
              g.flags & kIsCooperative ? "; a cooperative grid must fit on the device as a whole" : "");
}

Result launch_with_attributes(const Loaded& kernel, const Geometry& g, const unsigned* grid, Stream stream,
                              void** params) {
  LaunchAttribute attributes[3] = {};
  LaunchConfig config{{grid[0], grid[1], grid[2]}, {}, static_cast<unsigned>(g.shared_bytes), stream, attributes, 0};
  for (int i = 0; i < 3; ++i) config.block[i] = static_cast<unsigned>(g.block[i]);
  if (g.cluster[0] * g.cluster[1] * g.cluster[2] > 1) {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = kClusterDimension;
    for (int i = 0; i < 3; ++i) attribute.value.cluster[i] = static_cast<unsigned>(g.cluster[i]);
  }
  constexpr std::pair<int64_t, int> kFlags[] = {{kIsCooperative, kCooperative},
                                                {kIsProgrammatic, kProgrammaticSerialization}};
  for (const auto& [flag, id] : kFlags) {
    if (!(g.flags & flag)) continue;
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = id;
    attribute.value.flag = 1;
  }
  return driver().cuLaunchKernelEx(&config, kernel.function, params, nullptr);
}

/// Launch once. `params` points to the kernel's parameters, and `described` is the result of its descriptors.
XLA_FFI_Error* launch(const Target& target, int form, void** params, Result described, unsigned batch) {
  const Geometry& g = *target.call->geometry;
  if (__builtin_expect(described != 0, 0))
    return fail(target.frame, kInvalid, "%s: the driver can't make a TMA descriptor of an array: %s",
                target.kernel->name.c_str(), driver().describe(described).c_str());
  Loaded* loaded = target.kernel->loaded[form][target.device].load(std::memory_order_acquire);
  if (__builtin_expect(loaded == nullptr || g.shared_bytes > loaded->dynamic_shared.load(std::memory_order_relaxed),
                       0)) {
    std::string problem;
    loaded = obtain(target.kernel, form, target.device, &problem);
    if (loaded != nullptr) problem = prepare(loaded, g);
    if (!problem.empty()) return fail(target.frame, kInvalid, "%s: %s", target.kernel->name.c_str(), problem.c_str());
  }
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
  return param.kind == Param::kScalar ? 0 : buffer_at(frame, param.first)->rank - param.rank();
}

/// Return the offset of a batch index in a buffer, in slices; an axis of one element is broadcast.
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
  void* params[kMaxWords];
  Arguments arguments{words, params};
  for (const Param& param : *target.call) {
    if (param.kind == Param::kScalar) {
      arguments.put_param(param, nullptr, nullptr, 0);
      continue;
    }
    const XLA_FFI_Buffer* buffer = buffer_at(target.frame, param.first);
    const int64_t lead = buffer->rank - param.rank();
    const int64_t* own = buffer->dims + lead;
    char* data = static_cast<char*>(buffer->data) +
                 slice_offset(batched, rank, buffer, lead, at) * element_count(own, param.rank()) * param.bits() / 8;
    if (param.kind == Param::kPointer || form == 0) {
      arguments.put_param(param, data, own, param.rank());
      continue;
    }
    int64_t dims[64];
    dims[0] = lead > 0 && buffer->dims[lead - 1] > 1 ? count : 1;
    std::copy(own, own + param.rank(), dims + 1);
    arguments.put_param(param, data, dims, param.rank() + 1);
  }
  return launch(target, form, params, arguments.result, static_cast<unsigned>(count));
}

/// Launch a batch. Its axes are the first `rank` axes of a result.
///
/// The last axis is one launch if the kernel has a form for it; each index of the other axes is a separate launch.
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

/// Make the error for a batch whose slices don't begin at whole bytes; null for other batches.
XLA_FFI_Error* check_slices(const XLA_FFI_CallFrame* frame, const Call& call) {
  for (const Param& param : call) {
    const int64_t rank = batch_rank(frame, param);
    if (rank == 0) continue;
    const int64_t* dims = buffer_at(frame, param.first)->dims;
    const int64_t elements = element_count(dims + rank, param.rank());
    if (elements * param.bits() % 8 != 0 && element_count(dims, rank) > 1)
      return fail(frame, kInvalid,
                  "%.*s: a batch has slices of %ld elements of %ld bits, which don't begin at whole "
                  "bytes; pass vmap_method='sequential', or arrays of larger elements",
                  static_cast<int>(call.name->len), call.name->ptr, elements, param.bits());
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
    if (param.first < 0 || param.first >= buffers || batch_rank(frame, param) < 0 || param.rank() > 62) return false;
    const bool is_descriptor = param.kind == Param::kDescriptor;
    if (is_descriptor && param.rank() > kMaxBoxRank) return false;
    const int64_t own = is_descriptor ? kDescriptorWords + kAlignmentWords : 7;
    count += param.kind == Param::kPointer ? 1 : own + 2 * param.rank();
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
  void** params = BE_STACK_ROOM(void*, word_count + 1);
  Arguments arguments{BE_STACK_ROOM(uint64_t, word_count + 1), params};
  for (const Param& param : call) {
    const XLA_FFI_Buffer* buffer = param.kind == Param::kScalar ? nullptr : buffer_at(frame, param.first);
    if (buffer == nullptr) arguments.put_param(param, nullptr, nullptr, 0);
    else arguments.put_param(param, buffer->data, buffer->dims, param.rank());
  }
  return launch(target, 0, params, arguments.result, 1);
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
  // With devices of several kinds, the program may use only devices that the kernel supports.
  if (problem.empty() || any_works) return nullptr;
  return fail(frame, kInvalid, "%.*s: %s", name_size, call.name->ptr, problem.c_str());
}

}  // namespace
}  // namespace be_launch

using namespace be_launch;

/// Register a kernel under the hash of its content. An id that is registered already is ignored.
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
