/// \file
/// The body of the XLA FFI handlers of host functions that Python passes by address: compiled CPU kernels, and
/// callbacks that launch on a device's stream. The body holds no lock and calls no Python.
///
/// It checks a call's buffers against the function's parameters and passes their addresses and extents. Dimensions
/// before the function's own dimensions are a batch: the function runs once for each of its elements, within one call.
///
/// Each function has its own handler and target: an attribute of the call, or XLA's state, would be in memory of the
/// call site, which a long program must fetch again for every call. The handler of a CPU kernel is
/// compiled with it (kernels/numba/cpu_handler.py) and leaves only unusual calls to this file.

#include <algorithm>
#include <mutex>
#include <string>

#include "fault_names.h"
#include "xla_call.h"

namespace {

using be_xla::buffer_at, be_xla::element_count, be_xla::fail, be_xla::kInvalid;

/// Function of the address of each buffer and, for a device, the stream; the extents of all buffers in order; and room
/// for a message. A result other than 0 is a failure, which the message describes.
using Function = int32_t (*)(void* const* data, const int64_t* extents, char* message);

/// One buffer that a function takes.
struct Parameter {
  int32_t dtype;  ///< an XLA_FFI_DataType
  int32_t rank;
  int64_t item_size;  ///< in bytes
};

struct Kernel {
  const char* name;
  Function function;
  bool exclusive;   ///< whether only one such function may run at a time
  bool has_stream;  ///< whether the call's stream follows the addresses
  uint32_t traits;  ///< of the handler
  int64_t arg_count;
  int64_t parameter_count;
  const Parameter* parameters;  ///< the arguments, then the results
  int64_t extent_count;         ///< the sum of the ranks
};

/// Equal to `MESSAGE_SIZE` of be_runtime/kernels/numba/cpu.py.
constexpr size_t kMessageSize = 1024;

std::mutex exclusive_mutex;

/// The dimensions of a call before the kernel's own, and the steps of each buffer along them.
struct Batch {
  int64_t rank;
  const int64_t* extents;
  int64_t* steps;  ///< in bytes, `rank` for each buffer; 0 where a buffer is the same for all elements
  int64_t count;
};

/// Return whether a buffer fits a parameter, as a part of the batch or as one buffer for all its elements.
bool fits(const XLA_FFI_Buffer* buffer, const Parameter& parameter, const Batch& batch, bool is_result) {
  const int64_t more = buffer->rank - parameter.rank;
  if (static_cast<int32_t>(buffer->dtype) != parameter.dtype) return false;
  if (more == 0 && !is_result) return true;
  if (more != batch.rank) return false;
  for (int64_t i = 0; i < more; ++i)
    if (buffer->dims[i] != batch.extents[i] && (is_result || buffer->dims[i] != 1)) return false;
  return true;
}

/// Fill a buffer's steps along the batch.
void set_steps(const XLA_FFI_Buffer* buffer, const Parameter& parameter, const Batch& batch, int64_t* steps) {
  const int64_t more = buffer->rank - parameter.rank;
  int64_t size = parameter.item_size * element_count(buffer->dims + more, parameter.rank);
  for (int64_t i = batch.rank - 1; i >= 0; --i) {
    const bool moves = more != 0 && buffer->dims[i] != 1;
    steps[i] = moves ? size : 0;
    size *= moves ? buffer->dims[i] : 1;
  }
}

__attribute__((cold)) XLA_FFI_Error* fail_buffer(const XLA_FFI_CallFrame* frame, const Kernel& kernel, int64_t index) {
  const XLA_FFI_Buffer* buffer = buffer_at(frame, index);
  const Parameter& parameter = kernel.parameters[index];
  const bool is_result = index >= kernel.arg_count;
  return fail(frame, kInvalid,
              "%s: %s %ld has %ld dimensions and XLA's element type %d; the kernel was compiled for %d dimensions of "
              "type %d, with the same extents before them in all buffers of a batch",
              kernel.name, is_result ? "result" : "argument", is_result ? index - kernel.arg_count : index,
              buffer->rank, static_cast<int>(buffer->dtype), parameter.rank, parameter.dtype);
}

/// Move to the batch's next element: increase `position`, and the addresses with it.
void advance(const Batch& batch, int64_t buffer_count, int64_t* position, void** data) {
  for (int64_t i = batch.rank - 1; i >= 0; --i) {
    const bool wraps = ++position[i] == batch.extents[i];
    const int64_t turns = wraps ? 1 - batch.extents[i] : 1;
    for (int64_t b = 0; b < buffer_count; ++b)
      data[b] = static_cast<char*>(data[b]) + turns * batch.steps[b * batch.rank + i];
    if (!wraps) return;
    position[i] = 0;
  }
}

/// Run the kernel for every element of the batch, up to the first failure.
XLA_FFI_Error* run(const XLA_FFI_CallFrame* frame, const Kernel& kernel, const Batch& batch, void** data,
                   const int64_t* extents) {
  std::unique_lock<std::mutex> alone(exclusive_mutex, std::defer_lock);
  if (kernel.exclusive) alone.lock();
  char message[kMessageSize];
  message[0] = 0;
  if (batch.rank == 0) {
    if (__builtin_expect(kernel.function(data, extents, message) == 0, 1)) return nullptr;
    return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: %s", kernel.name, message);
  }
  int64_t* position = BE_STACK_ROOM(int64_t, batch.rank);
  __builtin_memset(position, 0, sizeof(int64_t) * static_cast<size_t>(batch.rank));
  for (int64_t element = 0; element < batch.count; ++element) {
    if (kernel.function(data, extents, message) != 0)
      return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: %s (element %ld of a batch of %ld)", kernel.name, message,
                  element, batch.count);
    advance(batch, kernel.parameter_count, position, data);
  }
  return nullptr;
}

XLA_FFI_Error* call(const XLA_FFI_CallFrame* frame, const Kernel& kernel) {
  const int64_t count = kernel.parameter_count;
  if (frame->args.size != kernel.arg_count || frame->args.size + frame->rets.size != count) {
    if (be_xla::is_ordered(frame)) {
      const XLA_FFI_CallFrame plain = be_xla::without_tokens(frame);
      return call(&plain, kernel);
    }
    const int64_t results = count - kernel.arg_count;
    return fail(frame, kInvalid, "%s: takes %ld argument%s and %ld result%s, but the call passes %ld and %ld",
                kernel.name, kernel.arg_count, kernel.arg_count == 1 ? "" : "s", results, results == 1 ? "" : "s",
                frame->args.size, frame->rets.size);
  }
  const XLA_FFI_Buffer* first = buffer_at(frame, kernel.arg_count);
  const int64_t batch_rank = first->rank - kernel.parameters[kernel.arg_count].rank;
  if (batch_rank < 0) return fail_buffer(frame, kernel, kernel.arg_count);
  Batch batch{batch_rank, first->dims, nullptr, element_count(first->dims, batch_rank)};

  batch.steps = BE_STACK_ROOM(int64_t, count * batch.rank + 1);
  void** data = BE_STACK_ROOM(void*, count + 1);
  int64_t* extents = BE_STACK_ROOM(int64_t, kernel.extent_count + 1);
  int64_t* next = extents;
  bool all_empty = true;
  for (int64_t i = 0; i < count; ++i) {
    const XLA_FFI_Buffer* buffer = buffer_at(frame, i);
    const Parameter& parameter = kernel.parameters[i];
    const bool is_result = i >= kernel.arg_count;
    if (!fits(buffer, parameter, batch, is_result)) return fail_buffer(frame, kernel, i);
    data[i] = buffer->data;
    const int64_t* own = buffer->dims + (buffer->rank - parameter.rank);
    for (int32_t d = 0; d < parameter.rank; ++d) *next++ = own[d];
    if (batch.rank != 0) set_steps(buffer, parameter, batch, batch.steps + i * batch.rank);
    if (is_result) all_empty &= element_count(own, parameter.rank) == 0;
  }
  // There is nothing to compute, and addresses may be null.
  if (all_empty || batch.count == 0) return nullptr;
  if (kernel.has_stream)
    if (XLA_FFI_Error* error = be_xla::get_stream(frame, data + count)) return error;
  return run(frame, kernel, batch, data, extents);
}

}  // namespace

/// Make the description of a function for `be_host_call`. It lives as long as the process, as XLA's handlers do.
///
/// \param parameters  the arguments, then the results, of which there is at least one; copied, as is the name
BE_EXPORT const Kernel* be_host_kernel(const char* name, void* function, bool exclusive, bool has_stream,
                                       uint32_t traits, int64_t arg_count, int64_t parameter_count,
                                       const Parameter* parameters) {
  auto* own = new Parameter[static_cast<size_t>(parameter_count)];
  std::copy(parameters, parameters + parameter_count, own);
  int64_t extent_count = 0;
  for (int64_t i = 0; i < parameter_count; ++i) extent_count += own[i].rank;
  return new Kernel{(new std::string(name))->c_str(), reinterpret_cast<Function>(function), exclusive, has_stream,
                    traits, arg_count, parameter_count, own, extent_count};
}

/// Handle a call of a function.
BE_EXPORT XLA_FFI_Error* be_host_call(XLA_FFI_CallFrame* frame, const Kernel* kernel) {
  if (be_xla::answer_metadata(frame, kernel->traits)) return nullptr;
  return call(frame, *kernel);
}

/// Make the error of a function that failed with a message.
BE_EXPORT XLA_FFI_Error* be_host_failed(XLA_FFI_CallFrame* frame, const Kernel* kernel, const char* message) {
  return fail(frame, XLA_FFI_Error_Code_INTERNAL, "%s: %s", kernel->name, message);
}

/// See `be_faults::name_kernel`.
BE_EXPORT void be_name_kernel(const void* code, const char* text, be_faults::Running* running) {
  be_faults::name_kernel(code, text, running);
}

// Offsets in a call frame, in 64-bit words, and in a buffer, which be_runtime/kernels/numba/cpu_handler.py repeats.
#define BE_IS_WORD(type, member, word) static_assert(offsetof(type, member) == word * sizeof(int64_t))
BE_IS_WORD(XLA_FFI_CallFrame, extension_start, 1);
BE_IS_WORD(XLA_FFI_CallFrame, args.size, 7);
BE_IS_WORD(XLA_FFI_CallFrame, args.args, 9);
BE_IS_WORD(XLA_FFI_CallFrame, rets.size, 12);
BE_IS_WORD(XLA_FFI_CallFrame, rets.rets, 14);
static_assert(offsetof(XLA_FFI_Buffer, dtype) == 16 && offsetof(XLA_FFI_Buffer, data) == 24);
static_assert(offsetof(XLA_FFI_Buffer, rank) == 32 && offsetof(XLA_FFI_Buffer, dims) == 40);
