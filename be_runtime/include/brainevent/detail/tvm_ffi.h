#pragma once

/// \file
/// Calls of functions of the TVM-FFI C ABI from an entry point. `be_runtime.load_tvm_ffi` writes such entry points.
///
/// No name of libtvm_ffi.so is linked: its functions are looked up in the process at the first call.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>
#include <string>

#include "brainevent/common.h"
#include "brainevent/detail/tvm_abi.h"

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace BE::tvm_ffi {

/// The device and the stream of a call.
struct Place {
  int32_t device_type = 1;  // kDLCPU
  int32_t device = 0;
  void* stream = nullptr;
};

/// Throw an error with a text of several parts.
template <class... Parts>
[[noreturn]] BE_COLD void refuse(const Parts&... parts) {
  internal::Text text;
  (text.append(parts), ...);
  throw CheckError(text);
}

/// Return DLPack's element type. Elements that share a byte are refused: DLPack packs them in pairs.
constexpr ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return {6, 8, 1};
    case DType::Int8: return {0, 8, 1};
    case DType::Int16: return {0, 16, 1};
    case DType::Int32: return {0, 32, 1};
    case DType::Int64: return {0, 64, 1};
    case DType::UInt8: return {1, 8, 1};
    case DType::UInt16: return {1, 16, 1};
    case DType::UInt32: return {1, 32, 1};
    case DType::UInt64: return {1, 64, 1};
    case DType::Float16: return {2, 16, 1};
    case DType::Float32: return {2, 32, 1};
    case DType::Float64: return {2, 64, 1};
    case DType::BFloat16: return {4, 16, 1};
    case DType::Complex64: return {5, 64, 1};
    case DType::Complex128: return {5, 128, 1};
    case DType::Float8E3M4: return {7, 8, 1};
    case DType::Float8E4M3: return {8, 8, 1};
    case DType::Float8E4M3B11FNUZ: return {9, 8, 1};
    case DType::Float8E4M3FN: return {10, 8, 1};
    case DType::Float8E4M3FNUZ: return {11, 8, 1};
    case DType::Float8E5M2: return {12, 8, 1};
    case DType::Float8E5M2FNUZ: return {13, 8, 1};
    case DType::Float8E8M0FNU: return {14, 8, 1};
    default: return {0, 0, 0};
  }
}

/// Describe a tensor for a call. The description refers to the tensor's extents.
inline Array describe(const Tensor& tensor, const Place& place) {
  const ElementType type = element_type(tensor.dtype());
  if (type.bits == 0) refuse("TVM-FFI has no tensors of ", tensor.dtype());
  return {const_cast<void*>(tensor.data_ptr()),
          place.device_type,
          place.device,
          tensor.ndim(),
          type,
          tensor.shape_ptr(),
          tensor.strides_ptr(),
          0};
}

/// A tensor with its leading axes as one, and `kept` further axes.
class Merged {
 public:
  Merged(const Tensor& tensor, const Place& place, int kept) : array_(describe(tensor, place)) {
    const int64_t* end = tensor.shape_ptr() + tensor.ndim();
    int64_t stride = 1;
    for (int i = kept; i > 0; --i) {
      extents_[i] = *--end;
      strides_[i] = stride;
      stride *= extents_[i];
    }
    extents_[0] = 1;
    while (end != tensor.shape_ptr()) extents_[0] *= *--end;
    strides_[0] = stride;
    array_.ndim = kept + 1;
    array_.shape = extents_;
    array_.strides = strides_;
  }
  Merged(const Merged&) = delete;
  Merged& operator=(const Merged&) = delete;

  const Array& array() const { return array_; }

 private:
  Array array_;
  int64_t extents_[kMaxDim + 1];
  int64_t strides_[kMaxDim + 1];
};

inline Any none() { return {kNone, 0, {0}}; }
inline Any value(const Array& array) {
  Any any{kArrayPointer, 0, {0}};
  any.pointer = &array;
  return any;
}
inline Any value(bool given) { return {kBool, 0, {given}}; }
inline Any value(int64_t given) { return {kInt, 0, {given}}; }
inline Any value(double given) {
  Any any{kFloat, 0, {0}};
  any.number = given;
  return any;
}
inline Any value(const char* text) {
  Any any{kText, 0, {0}};
  any.pointer = text;
  return any;
}
inline Any value(DType dtype) {
  Any any{kDataType, 0, {0}};
  any.type = element_type(dtype);
  return any;
}
inline Any stream_value(const Place& place) {
  Any any{kPointer, 0, {0}};
  any.pointer = place.stream;
  return any;
}

/// A tensor as an object, for functions that take `tvm::ffi::Tensor`. The block on the heap outlives the call if the
/// function keeps a reference; the elements do not.
class OwnedTensor {
 public:
  explicit OwnedTensor(const Array& array) : block_(new Block{{kOneReference, kTensorObject, 0, destroy}, array, {}}) {
    for (int i = 0; i < array.ndim; ++i) {
      block_->extents[i] = array.shape[i];
      block_->extents[kMaxDim + i] = array.strides[i];
    }
    block_->array.shape = block_->extents;
    block_->array.strides = block_->extents + kMaxDim;
  }
  OwnedTensor(const OwnedTensor&) = delete;
  OwnedTensor& operator=(const OwnedTensor&) = delete;
  ~OwnedTensor() {
    if (__atomic_sub_fetch(&block_->head.counts, 1, __ATOMIC_ACQ_REL) == uint64_t{1} << 32) delete block_;
  }

  Any value() const {
    Any any{kTensorObject, 0, {0}};
    any.pointer = block_;
    return any;
  }

  /// Fail if the function kept a reference: XLA reuses the memory.
  void check_released() const {
    if (__atomic_load_n(&block_->head.counts, __ATOMIC_ACQUIRE) != kOneReference)
      refuse("the function keeps one of its tensors, whose memory is XLA's and ends with the call");
  }

 private:
  struct Block {
    Object head;
    Array array;
    int64_t extents[2 * kMaxDim];
  };
  static constexpr uint64_t kOneReference = uint64_t{1} << 32 | 1;

  /// `flags`: 1 when the last strong reference is gone, 2 when the last weak one is.
  static void destroy(void* object, int flags) {
    if (flags & 2) delete static_cast<Block*>(object);
  }

  Block* block_;
};

/// Look up a function of a library, which `product` installs.
template <class Pointer>
Pointer find(void* library, const char* name, const char* product) {
  void* found = dlsym(library, name);
  if (found == nullptr) refuse(product, " has no function ", name, ": install a newer release");
  return reinterpret_cast<Pointer>(found);
}

/// The functions of libtvm_ffi.so that calls need.
struct Runtime {
  void (*take_error)(void** error);
  int (*release)(void* object);
  int (*set_stream)(int32_t device_type, int32_t device, void* stream, void** previous);

  static const Runtime& get() {
    static const Runtime runtime = open();
    return runtime;
  }

 private:
  static Runtime open() {
    void* library = dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) library = dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr)
      refuse("libtvm_ffi.so is not loaded: install apache-tvm-ffi, and call `import tvm_ffi` before the first call");
    Runtime runtime{};
    runtime.take_error = find<decltype(runtime.take_error)>(library, "TVMFFIErrorMoveFromRaised", "apache-tvm-ffi");
    runtime.release = find<decltype(runtime.release)>(library, "TVMFFIObjectDecRef", "apache-tvm-ffi");
    runtime.set_stream = find<decltype(runtime.set_stream)>(library, "TVMFFIEnvSetStream", "apache-tvm-ffi");
    return runtime;
  }
};

/// A result that a function returned; an object is released at the end.
struct Result {
  Any any = none();
  Result() = default;
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() {
    if (any.kind >= kFirstObject) Runtime::get().release(const_cast<void*>(any.pointer));
  }
};

/// Throw the error that a function raised.
[[noreturn]] BE_COLD inline void throw_raised(int code) {
  if (code == -2) throw CheckError("a Python function raised an exception");
  Result error;
  void* raised = nullptr;
  Runtime::get().take_error(&raised);
  if (raised == nullptr) throw CheckError("the function failed without an error");
  error.any.kind = kFirstObject;
  error.any.pointer = raised;
  const Bytes* cell = reinterpret_cast<const Bytes*>(static_cast<const char*>(raised) + sizeof(Object));
  std::string text = std::string(cell[0].data, cell[0].size) + ": " + std::string(cell[1].data, cell[1].size);
  if (text.find("Tensor` but got `DLTensor*`") != text.npos || text.find("Tensor>` but got `DLTensor*`") != text.npos)
    text += "; the function takes Tensor objects: pass owned=True";
  throw CheckError(text.c_str());
}

#if defined(__CUDACC__)
/// The driver's functions that every call needs. Through the CUDA runtime library each costs about 40 ns.
struct Driver {
  int (*current_device)(int32_t* device);
  int (*exchange_capture_mode)(int* mode);

  static const Driver& get() {
    static const Driver driver = open();
    return driver;
  }

 private:
  static Driver open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) refuse("the NVIDIA driver, libcuda.so.1, is not loaded");
    return {find<decltype(current_device)>(library, "cuCtxGetDevice", "the NVIDIA driver"),
            find<decltype(exchange_capture_mode)>(library, "cuThreadExchangeStreamCaptureMode", "the NVIDIA driver")};
  }
};

/// The stream of the call as TVM-FFI's stream, and permission for the function to load code while a CUDA graph is
/// recorded.
class OnStream {
 public:
  explicit OnStream(const Place& place) : place_(place) {
    Runtime::get().set_stream(place.device_type, place.device, place.stream, &previous_);
    Driver::get().exchange_capture_mode(&mode_);
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
  ~OnStream() {
    Driver::get().exchange_capture_mode(&mode_);
    Runtime::get().set_stream(place_.device_type, place_.device, previous_, nullptr);
  }

 private:
  const Place& place_;
  void* previous_ = nullptr;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

inline Place place_of(cudaStream_t stream) {
  Place place{2, 0, stream};  // kDLCUDA
  if (Driver::get().current_device(&place.device) != 0) refuse("no CUDA device is current");
  return place;
}
#else
struct OnStream {
  explicit OnStream(const Place&) {}
};
#endif

/// A library of functions whose bytes are in this module. It is opened at the first call, from memory.
class Library {
 public:
  constexpr Library(const char* name, const char* begin, const char* end) : name_(name), begin_(begin), end_(end) {}

  void* find(const char* symbol) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (handle_ == nullptr) handle_ = open();
    void* found = dlsym(handle_, symbol);
    if (found == nullptr) refuse(name_, " has no function ", symbol);
    return found;
  }

 private:
  /// The file's descriptor stays open: the loader compares names first, and the number of a closed descriptor is
  /// reused.
  void* open() const {
    Runtime::get();
    const int file = memfd_create(name_, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) refuse("this system gives no memory for ", name_, ": memfd_create failed");
    for (const char* next = begin_; next < end_;) {
      const ssize_t written = write(file, next, static_cast<size_t>(end_ - next));
      if (written <= 0) {
        close(file);
        refuse("this system gives no memory for ", name_);
      }
      next += written;
    }
    fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    internal::Text path;
    path.append("/proc/self/fd/").append(file);
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      close(file);
      refuse(name_, " can't be loaded: ", dlerror());
    }
    return handle;
  }

  const char* name_;
  const char* begin_;
  const char* end_;
  void* handle_ = nullptr;
  std::mutex lock_;
};

/// A function, found at its first call or bound by `be_tvm_ffi_bind`.
class Function {
 public:
  constexpr Function(Library* library, const char* symbol) : library_(library), symbol_(symbol) {}

  void bind(void* call, void* self) {
    self_ = self;
    call_.store(reinterpret_cast<SafeCall>(call), std::memory_order_release);
  }

  void operator()(const Place& place, const Any* args, int32_t count, Any* result) {
    SafeCall call = call_.load(std::memory_order_acquire);
    if (__builtin_expect(call == nullptr, 0)) call = find();
    [[maybe_unused]] const OnStream on_stream(place);
    const int code = call(self_, args, count, result);
    if (__builtin_expect(code != 0, 0)) throw_raised(code);
  }

 private:
  BE_COLD SafeCall find() {
    if (library_ == nullptr) refuse("the function object belongs to another process");
    bind(library_->find(symbol_), nullptr);
    return call_.load(std::memory_order_relaxed);
  }

  Library* library_;
  const char* symbol_;
  void* self_ = nullptr;
  std::atomic<SafeCall> call_{nullptr};
};

/// Return the result with a number: one of a sequence, or the only one.
inline Any element(const Any& result, int64_t index, int64_t count) {
  if (count == 1 && result.kind != kSequence) return result;
  if (result.kind != kSequence)
    refuse("the function returned a value of kind ", result.kind, ", not ", count, " results");
  const void* const* cell =
      reinterpret_cast<const void* const*>(static_cast<const char*>(result.pointer) + sizeof(Object));
  const int64_t size = reinterpret_cast<int64_t>(cell[1]);
  if (size != count) refuse("the function returned ", size, " results, not ", count);
  return static_cast<const Any*>(cell[0])[index];
}

/// Throw an error that names the element type of a result.
[[noreturn]] BE_COLD inline void refuse_type(const ElementType& found, DType declared) {
  for (int i = 0; i < static_cast<int>(DType::Invalid); ++i) {
    const ElementType each = element_type(static_cast<DType>(i));
    if (each.bits != 0 && each.code == found.code && each.bits == found.bits && each.lanes == found.lanes)
      refuse("the function returned ", static_cast<DType>(i), ", but the declaration has ", declared);
  }
  refuse("the function returned elements of DLPack's type ", found.code, " with ", found.bits, " bits and ",
         found.lanes, " lanes, but the declaration has ", declared);
}

/// Copy a result that the function returned to the array that XLA made for it.
inline void keep(const Any& found, Tensor out, const Place& place) {
  if (found.kind == kInt || found.kind == kBool || found.kind == kFloat) {
    if (place.device_type != 1 || out.ndim() != 0) refuse("the function returned a number, not an array");
    const double number = found.kind == kFloat ? found.number : static_cast<double>(found.integer);
    switch (out.dtype()) {
      case DType::Bool: *out.data_ptr<bool>() = found.integer != 0; return;
      case DType::Float32: *out.data_ptr<float>() = static_cast<float>(number); return;
      case DType::Float64: *out.data_ptr<double>() = number; return;
      case DType::Int32: *out.data_ptr<int32_t>() = static_cast<int32_t>(found.integer); return;
      case DType::Int64: *out.data_ptr<int64_t>() = found.integer; return;
      default: refuse("a number that a function returns can't become ", out.dtype());
    }
  }
  if (found.kind != kTensorObject && found.kind != kArrayPointer)
    refuse("the function returned a value of kind ", found.kind, ", not an array");
  const char* at = static_cast<const char*>(found.pointer);
  const Array& array = *reinterpret_cast<const Array*>(at + (found.kind == kTensorObject ? sizeof(Object) : 0));
  const ElementType type = element_type(out.dtype());
  if (array.type.code != type.code || array.type.bits != type.bits || array.type.lanes != 1)
    refuse_type(array.type, out.dtype());
  if (array.device_type != place.device_type) refuse("the function returned an array on another device");
  if (array.ndim != out.ndim())
    refuse("the function returned an array with ", array.ndim, " dimensions, but the declaration has ", out.ndim());
  int64_t stride = 1;
  for (int i = out.ndim() - 1; i >= 0; --i) {
    if (array.shape[i] != out.size(i))
      refuse("the function returned ", array.shape[i], " for dimension ", i, ", but the declaration has ",
             out.size(i));
    if (array.strides != nullptr && array.shape[i] != 1 && array.strides[i] != stride)
      refuse("the function returned an array that is not contiguous");
    stride *= array.shape[i];
  }
  const char* data = static_cast<const char*>(array.data) + array.offset;
#if defined(__CUDACC__)
  if (cudaMemcpyAsync(out.data_ptr(), data, out.nbytes(), cudaMemcpyDeviceToDevice,
                      static_cast<cudaStream_t>(place.stream)) != cudaSuccess)
    refuse("the result could not be copied");
#else
  __builtin_memcpy(out.data_ptr(), data, out.nbytes());
#endif
}

}  // namespace BE::tvm_ffi

/// Embed the bytes of a library, which is in the assembler's working folder, in this module.
#define BE_TVM_FFI_LIBRARY(file)                                                                     \
  __asm__(                                                                                           \
      ".pushsection .rodata\n.balign 16\n.hidden be_tvm_ffi_begin\n.globl be_tvm_ffi_begin\n"        \
      "be_tvm_ffi_begin:\n.incbin \"" file                                                           \
      "\"\n.hidden be_tvm_ffi_end\n.globl be_tvm_ffi_end\nbe_tvm_ffi_end:\n.byte 0\n.popsection\n"); \
  extern "C" __attribute__((visibility("hidden"))) const char be_tvm_ffi_begin[], be_tvm_ffi_end[]

/// Define the function that binds a function object of the process to the module's only function.
#define BE_TVM_FFI_BIND(function)                                                                                \
  extern "C" __attribute__((visibility("default"), used, externally_visible)) void be_tvm_ffi_bind(void* call,   \
                                                                                                   void* self) { \
    function.bind(call, self);                                                                                   \
  }
