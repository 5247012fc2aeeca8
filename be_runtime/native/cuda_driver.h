/// \file
/// The library of the CUDA driver, opened at run time: a machine need not have it.

#pragma once

#include <dlfcn.h>

#include <string>

namespace be_cuda {

using Result = int;
using Stream = void*;
constexpr int kRelaxedCapture = 2;
constexpr Result kNotSupported = 801;

/// A function of the library, which becomes a pointer of its type.
struct Symbol {
  void* address;

  template <class Function>
  operator Function*() const {  // NOLINT: implicit on purpose
    return reinterpret_cast<Function*>(address);
  }
};

/// The library. If it, or a function that was looked for, is absent, `problem` gives the reason.
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

  /// Look for a function that an old driver need not have.
  Symbol find_new(const char* name) const { return {library_ == nullptr ? nullptr : dlsym(library_, name)}; }

  std::string describe(Result result) const {
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    return std::string(name ? name : "an unknown error") + " (" + (text ? text : "no description") + ")";
  }
};

}  // namespace be_cuda
