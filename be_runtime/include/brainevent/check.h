#pragma once

/// \file
/// The macros that check a condition or a CUDA call, and the exceptions that they throw.
///
/// `BE_CHECK` works in host code and in device code. The other macros work in host code only.

#include <new>  // std::exception, far cheaper than <exception>

#include "brainevent/text.h"

namespace BE {

/// The exception that a failed check throws.
///
/// Copying an exception does not throw. The text of `what()` is valid as long as the object exists.
class CheckError : public std::exception {
 public:
  /// Copy the text of a message.
  explicit CheckError(const char* message) { what_.append(message); }
  explicit CheckError(const internal::Text& message) noexcept : what_(message) {}

  const char* what() const noexcept override { return what_.c_str(); }

 private:
  internal::Text what_;
};

/// The exception for a failed call of the CUDA runtime.
///
/// Copying an exception does not throw. The text of `what()` is valid as long as the object exists.
class CudaError : public std::exception {
 public:
  CudaError(int code, const internal::Text& message) noexcept : what_(message), code_(code) {}

  const char* what() const noexcept override { return what_.c_str(); }
  /// Return the `cudaError_t` as a number.
  int code() const noexcept { return code_; }

 private:
  internal::Text what_;
  int code_;
};

namespace internal {

BE_COLD inline Text at_location(const char* file, int line) noexcept {
  Text text;
  text.append(file).append(':').append(line).append(": ");
  return text;
}

/// Collector of the values that follow `BE_CHECK(condition) <<`.
class CheckMessage {
 public:
  BE_COLD CheckMessage(const char* file, int line, const char* condition) noexcept : text_(at_location(file, line)) {
    text_.append("check failed: ").append(condition);
  }

  /// A literal of any length is one overload, so it instantiates nothing.
  BE_COLD CheckMessage& operator<<(const char* value) {
    separate();
    text_.append(value);
    return *this;
  }

  template <class T>
  BE_COLD CheckMessage& operator<<(const T& value) {
    separate();
    stream_to_text(text_, value);
    return *this;
  }

  /// A manipulator without an argument, such as `std::endl`. The template parameter only keeps the body from being
  /// looked at in sources that have no stream.
  template <class Char = char>
  BE_COLD CheckMessage& operator<<(StdOstream<char>& (*manipulator)(StdOstream<char>&)) {
    manipulate_text<Char>(text_, manipulator);
    return *this;
  }

  const Text& text() const noexcept { return text_; }

 private:
  void separate() noexcept {
    if (!separated_) text_.append(": ");
    separated_ = true;
  }

  Text text_;
  bool separated_ = false;
};

/// Thrower of a collected CheckMessage. `&` binds looser than `<<` and tighter than `?:`.
struct CheckFailure {
  [[noreturn]] BE_COLD void operator&(const CheckMessage& message) const { throw CheckError(message.text()); }
};

#if defined(BE_DEVICE_PASS)
/// Sink of the values that follow `BE_CHECK(condition) <<` in device code, which can't collect them.
struct DeviceCheckMessage {
  template <class T>
  BE_HD const DeviceCheckMessage& operator<<(const T&) const noexcept {
    return *this;
  }
  BE_HD const DeviceCheckMessage& operator<<(StdOstream<char>& (*)(StdOstream<char>&)) const noexcept { return *this; }
};

/// Ends the kernel as `assert` does.
struct DeviceCheckFailure {
  const char* condition;
  const char* file;
  int line;
  BE_HD void operator&(const DeviceCheckMessage&) const {
    __assert_fail(condition, file, static_cast<unsigned int>(line), "BE_CHECK");
  }
};
#endif

/// Return the usual cause of a CUDA error of a kernel launch; null if there is none.
BE_COLD inline const char* cuda_error_hint(int code, bool launch) noexcept {
  switch (code) {
    case 1:  // CUDA 13 returns it for a launch where older releases returned 9
      if (!launch) return nullptr;
      [[fallthrough]];
    case 9: return "a grid or block dimension is 0 or too large; with an empty array, launch nothing";
    case 98:
    case 209: return "the kernel was not compiled for this device's compute capability";
    case 222:
      return "the driver is older than the CUDA release that made the kernel's PTX; install a driver of at least that "
             "release, compile for this device's compute capability, or compile with an older CUDA release "
             "(the extra cuda13)";
    case 700: return "a kernel read or wrote outside its arrays; compute-sanitizer finds where";
    case 701: return "the block needs more registers or shared memory than the device has";
    case 900:
    case 901:
      return "XLA is recording a CUDA graph, which this call is not allowed in; "
             "load the module with allow_cuda_graph=False";
    default: return nullptr;
  }
}

[[noreturn]] BE_COLD inline void throw_cuda_error(int code, const char* name, const char* description, const char* call,
                                                  const char* file, int line) {
  Text text = at_location(file, line);
  text.append(call).append(" failed: ").append(name).append(" (").append(code).append("): ");
  text.append(description);
  const bool launch = __builtin_strcmp(call, "kernel launch") == 0;
  if (const char* hint = cuda_error_hint(code, launch)) text.append("; ").append(hint);
  throw CudaError(code, text);
}

}  // namespace internal
}  // namespace BE

/// `BE_CHECK(condition) << "text" << value;` throws `BE::CheckError` if the condition is false.
///
/// The error contains the file, the line, the condition and the values after `<<`, which are evaluated only if the
/// condition is false. `BE_CHECK(condition, "text")` does not compile.
///
/// In device code, the macro throws nothing and ignores the values after `<<`. If the condition is false, the driver
/// prints the file, the line, the condition, the block and the thread, and the kernel ends with `cudaErrorAssert`.
/// After that, the process can't use the GPU. In device code, use `BE_CHECK` only to find bugs in the kernel, not to
/// check inputs.
#define BE_CHECK(...) __builtin_expect(bool(__VA_ARGS__), 1) ? (void)0 : BE_INTERNAL_CHECK_FAILURE(#__VA_ARGS__)

#if defined(BE_DEVICE_PASS)
#define BE_INTERNAL_CHECK_FAILURE(condition) \
  ::BE::internal::DeviceCheckFailure{condition, __FILE__, __LINE__} & ::BE::internal::DeviceCheckMessage()
#else
#define BE_INTERNAL_CHECK_FAILURE(condition) \
  ::BE::internal::CheckFailure() & ::BE::internal::CheckMessage(__FILE__, __LINE__, condition)
#endif

/// `BE_CUDA_CHECK(call);` throws `BE::CudaError` unless the call returns `cudaSuccess`.
///
/// If the call fails, the macro also clears the last error of the CUDA runtime, so that later checks don't report this
/// failure again. In a C++ source, include `<cuda_runtime.h>` before you use the macro.
#define BE_CUDA_CHECK(...) BE_INTERNAL_CUDA_CHECK(#__VA_ARGS__, __VA_ARGS__)

/// Throw `BE::CudaError` if CUDA refused an earlier kernel launch, for example because the grid is too large or the
/// module has no code for the GPU. The macro does not wait for the kernel, so the macro does not report errors of a
/// kernel that still runs.
#define BE_CHECK_KERNEL_LAUNCH() BE_INTERNAL_CUDA_CHECK("kernel launch", cudaGetLastError())

/// Check as `BE_CHECK_KERNEL_LAUNCH` does, then wait for all streams of the GPU, and throw `BE::CudaError` if a kernel
/// failed.
///
/// Use the macro for debugging only, because waiting takes time. CUDA forbids waiting while XLA records a CUDA graph:
/// load the module with `allow_cuda_graph=False`.
#define BE_CHECK_KERNEL_LAUNCH_SYNC()                                    \
  do {                                                                   \
    BE_INTERNAL_CUDA_CHECK("kernel launch", cudaGetLastError());         \
    BE_INTERNAL_CUDA_CHECK("kernel execution", cudaDeviceSynchronize()); \
  } while (0)

#define BE_INTERNAL_CUDA_CHECK(what, ...)                                                                          \
  do {                                                                                                             \
    const cudaError_t be_internal_status = (__VA_ARGS__);                                                          \
    if (__builtin_expect(be_internal_status != cudaSuccess, 0)) {                                                  \
      (void)cudaGetLastError();                                                                                    \
      ::BE::internal::throw_cuda_error(static_cast<int>(be_internal_status), cudaGetErrorName(be_internal_status), \
                                       cudaGetErrorString(be_internal_status), what, __FILE__, __LINE__);          \
    }                                                                                                              \
  } while (0)
