/// \file
/// The library of the CUDA driver, opened at run time: a machine may lack it.

#pragma once

#include <dlfcn.h>

#include <string>

namespace be_cuda {

using Result = int;
using Stream = void*;
constexpr int kRelaxedCapture = 2;
constexpr Result kNotSupported = 801;

/// Address of a function, which converts to a function pointer of any type.
struct Symbol {
  void* address;

  template <class Function>
  operator Function*() const {  // NOLINT: implicit on purpose
    return reinterpret_cast<Function*>(address);
  }
};

/// The library. If the library or a required function is missing, `problem` has the reason.
class DriverLibrary {
  void* const library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

 public:
  std::string problem =
      library_ == nullptr ? "there is no NVIDIA driver on this machine: libcuda.so.1 was not found" : "";
  Result (*cuGetErrorName)(Result, const char**) = find("cuGetErrorName");
  Result (*cuGetErrorString)(Result, const char**) = find("cuGetErrorString");

  Symbol find(const char* name) {
    void* const address = library_ == nullptr ? nullptr : dlsym(library_, name);
    if (library_ != nullptr && address == nullptr)
      problem = std::string("the NVIDIA driver is too old: it has no ") + name;
    return {address};
  }

  /// Find a function that an old driver may lack; null if it is missing.
  Symbol find_new(const char* name) const { return {library_ == nullptr ? nullptr : dlsym(library_, name)}; }

  std::string describe(Result result) const {
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    return std::string(name ? name : "an unknown error") + " (" + (text ? text : "no description") + ")";
  }
};

}  // namespace be_cuda
