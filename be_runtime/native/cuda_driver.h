/// \file
/// The library of the CUDA driver, opened at run time: a machine need not have it.

#pragma once

#include <dlfcn.h>

#include <string>

namespace be_cuda {

using Result = int;

/// The library; `problem` says why it, or one of the functions that were looked for, is not there.
class DriverLibrary {
 public:
  std::string problem;
  Result (*cuGetErrorName)(Result, const char**) = nullptr;
  Result (*cuGetErrorString)(Result, const char**) = nullptr;

  DriverLibrary() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) problem = "there is no NVIDIA driver on this machine: libcuda.so.1 was not found";
    find("cuGetErrorName", &cuGetErrorName);
    find("cuGetErrorString", &cuGetErrorString);
  }

  template <class T>
  void find(const char* name, T* function) {
    if (library_ == nullptr) return;
    *function = reinterpret_cast<T>(dlsym(library_, name));
    if (*function == nullptr) problem = std::string("the NVIDIA driver is too old: it has no ") + name;
  }

  std::string describe(Result result) const {
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    return std::string(name ? name : "an unknown error") + " (" + (text ? text : "no description") + ")";
  }

 private:
  void* library_;
};

}  // namespace be_cuda
