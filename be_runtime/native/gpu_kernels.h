/// \file
/// The kernels of the process by id, and functions that load a kernel on a device and prepare its launches. The CUDA
/// driver is opened at run time, so this file repeats the few constants of cuda.h that a launch needs.

#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "brainevent/check.h"
#include "cuda_driver.h"

namespace be_launch {

using be_cuda::kRelaxedCapture, be_cuda::Result, be_cuda::Stream;
using Context = void*;
using Module = void*;
using Function = void*;

constexpr int kMaxThreads = 0, kStaticShared = 1, kMaxDynamicShared = 8, kNonPortableCluster = 14;
constexpr int kArchMajor = 75, kArchMinor = 76, kSharedOptin = 97;
constexpr int kCooperative = 2, kClusterDimension = 4, kProgrammaticSerialization = 6;
constexpr int kJitErrorLog = 5, kJitErrorLogSize = 6;
constexpr unsigned kDefaultDynamicShared = 48 * 1024;

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char room[64];
    unsigned cluster[3];
    int flag;
  } value;
};

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// The driver's functions; if one is missing, `problem` has the reason.
struct Driver : be_cuda::DriverLibrary {
  int device_count = 0;
  Result (*cuInit)(unsigned) = find("cuInit");
  Result (*cuDeviceGetCount)(int*) = find("cuDeviceGetCount");
  Result (*cuDeviceGetAttribute)(int*, int, int) = find("cuDeviceGetAttribute");
  Result (*cuDevicePrimaryCtxGetState)(int, unsigned*, int*) = find("cuDevicePrimaryCtxGetState");
  Result (*cuDevicePrimaryCtxRetain)(Context*, int) = find("cuDevicePrimaryCtxRetain");
  Result (*cuDevicePrimaryCtxRelease)(int) = find("cuDevicePrimaryCtxRelease_v2");
  Result (*cuCtxGetDevice)(int*) = find("cuCtxGetDevice");
  Result (*cuCtxPushCurrent)(Context) = find("cuCtxPushCurrent_v2");
  Result (*cuCtxPopCurrent)(Context*) = find("cuCtxPopCurrent_v2");
  Result (*cuModuleLoadDataEx)(Module*, const void*, unsigned, const int*, void**) = find("cuModuleLoadDataEx");
  Result (*cuModuleGetFunction)(Function*, Module, const char*) = find("cuModuleGetFunction");
  Result (*cuFuncGetAttribute)(int*, int, Function) = find("cuFuncGetAttribute");
  Result (*cuFuncSetAttribute)(Function, int, int) = find("cuFuncSetAttribute");
  Result (*cuThreadExchangeStreamCaptureMode)(int*) = find("cuThreadExchangeStreamCaptureMode");
  Result (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                           void**, void**) = find("cuLaunchKernel");
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**) = find("cuLaunchKernelEx");
  /// Null before CUDA 12.
  Result (*cuTensorMapEncodeTiled)(void* map, int type, unsigned rank, const void* data, const uint64_t* extents,
                                   const uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave,
                                   int swizzle, int promotion, int fill) = find_new("cuTensorMapEncodeTiled");

  Driver() {
    if (!problem.empty()) return;
    if (const Result result = cuInit(0)) {
      problem = "no GPU can be used: cuInit failed with " + describe(result);
    } else if (cuDeviceGetCount(&device_count) != 0 || device_count == 0) {
      problem = "no GPU is visible";
    }
  }
};

/// Opened on first use, never closed.
inline const Driver& driver() {
  static const Driver* const opened = new Driver;
  return *opened;
}

constexpr int kMaxDevices = 64, kForms = 2;
constexpr size_t kIdSize = 32;

struct Image {
  int arch;
  bool is_ptx;
  bool is_exact;
  int form;
  std::string entry;
  std::string data;
};

/// A kernel on one device.
struct Loaded {
  Function function = nullptr;
  const Image* image = nullptr;  ///< One of the kernel's images.
  int max_threads = 0;
  unsigned static_shared = 0;
  unsigned shared_limit = 0;                              ///< Static and dynamic together.
  std::atomic<unsigned> dynamic_shared{
      kDefaultDynamicShared};  ///< The most that a launch may use with the current setting.
};

struct Kernel {
  char id[kIdSize];
  std::string name;
  std::vector<Image> images;
  std::mutex lock;         ///< Held while a device is added.
  Kernel* next = nullptr;  ///< In the list of `Kernels`.
  std::atomic<Loaded*> loaded[kForms][kMaxDevices] = {};

  bool has(int form) const {
    for (const Image& image : images)
      if (image.form == form) return true;
    return false;
  }
};

/// All kernels by their id, in lists by its hash. Reading takes no lock: kernels are only added.
class Kernels {
 public:
  Kernel* find(const char* id) const {
    Kernel* kernel = lists_[hash(id)].load(std::memory_order_acquire);
    while (kernel != nullptr && memcmp(kernel->id, id, kIdSize) != 0) kernel = kernel->next;
    return kernel;
  }

  void add(std::unique_ptr<Kernel> kernel) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (find(kernel->id) != nullptr) return;
    std::atomic<Kernel*>& first = lists_[hash(kernel->id)];
    kernel->next = first.load(std::memory_order_relaxed);
    first.store(kernel.release(), std::memory_order_release);
  }

 private:
  static constexpr int kBits = 13;

  static size_t hash(const char* id) {
    uint64_t value;
    memcpy(&value, id, sizeof(value));
    return value * 0x9E3779B97F4A7C15u >> (64 - kBits);
  }

  std::mutex lock_;
  std::atomic<Kernel*> lists_[1 << kBits] = {};
};

inline Kernels& kernels = *new Kernels;  // calls may run while the process ends

/// Flags of a launch: its whole grid runs at once; it may begin before the previous kernel ends.
constexpr int64_t kIsCooperative = 1, kIsProgrammatic = 2;

/// The attribute `launch` of a call.
struct Geometry {
  int64_t grid[3];
  int64_t block[3];
  int64_t shared_bytes;
  int64_t cluster[3];
  int64_t flags;
  int64_t batch_axis;  ///< 1 or 2, the axis of the grid that a batch may use; 0 when it may use none.

  bool is_plain() const { return cluster[0] * cluster[1] * cluster[2] <= 1 && flags == 0; }
};

/// Guard that lets this thread load modules while it records a command buffer.
class RelaxedCapture {
 public:
  RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture& operator=(RelaxedCapture&&) = delete;

 private:
  int mode_ = kRelaxedCapture;
};

inline int device_attribute(int device, int attribute) {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, attribute, device);
  return value;
}

inline int function_attribute(Function function, int attribute) {
  int value = 0;
  driver().cuFuncGetAttribute(&value, attribute, function);
  return value;
}

/// Choose the best image for an architecture: machine code of the same major version, then PTX; null if there is none.
inline const Image* choose_image(const Kernel& kernel, int form, int arch) {
  const Image* best = nullptr;
  for (const Image& image : kernel.images) {
    if (image.form != form || image.arch > arch || (image.is_exact && image.arch != arch)) continue;
    if (!image.is_ptx && image.arch / 10 != arch / 10) continue;
    if (best == nullptr || std::pair(!image.is_ptx, image.arch) > std::pair(!best->is_ptx, best->arch)) best = &image;
  }
  return best;
}

inline std::string no_image(const Kernel& kernel, int arch) {
  std::string have;
  for (const Image& image : kernel.images)
    if (image.form == 0)
      have += (have.empty() ? "" : ", ") + std::string(image.is_ptx ? "compute_" : "sm_") + std::to_string(image.arch) +
              (image.is_exact ? "a" : "");
  return "it was compiled for " + have + ", which does not run on this device of compute capability " +
         std::to_string(arch / 10) + "." + std::to_string(arch % 10) + "; compile it for sm_" + std::to_string(arch) +
         ", as be_runtime does without compute_capability";
}

/// Load a kernel into the current context, which is on `device`; null with a problem on failure.
inline std::unique_ptr<Loaded> load(const Kernel& kernel, int form, int device, std::string* problem) {
  const Driver& cuda = driver();
  const int arch = device_attribute(device, kArchMajor) * 10 + device_attribute(device, kArchMinor);
  const Image* image = choose_image(kernel, form, arch);
  if (image == nullptr) {
    *problem = no_image(kernel, arch);
    return nullptr;
  }
  char log[1024] = "";
  const int options[] = {kJitErrorLog, kJitErrorLogSize};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  Module module = nullptr;
  auto made = std::make_unique<Loaded>();
  const RelaxedCapture relaxed;
  Result result = cuda.cuModuleLoadDataEx(&module, image->data.data(), 2, options, values);
  if (result == 0) result = cuda.cuModuleGetFunction(&made->function, module, image->entry.c_str());
  if (result != 0) {
    const char* hint = BE::internal::cuda_error_hint(result, false);
    *problem = "the driver does not load it: " + cuda.describe(result) + (hint ? "; " : "") + (hint ? hint : "") +
               (log[0] ? "\n" : "") + log;
    return nullptr;
  }
  made->image = image;
  made->max_threads = function_attribute(made->function, kMaxThreads);
  made->static_shared = static_cast<unsigned>(function_attribute(made->function, kStaticShared));
  made->shared_limit = static_cast<unsigned>(device_attribute(device, kSharedOptin));
  made->dynamic_shared = made->static_shared < kDefaultDynamicShared ? kDefaultDynamicShared - made->static_shared : 0;
  return made;
}

/// Return the kernel on a device whose context is current, loaded if necessary; null with a problem on failure.
inline Loaded* obtain(Kernel* kernel, int form, int device, std::string* problem) {
  if (Loaded* ready = kernel->loaded[form][device].load(std::memory_order_acquire)) return ready;
  const std::lock_guard<std::mutex> guard(kernel->lock);
  if (Loaded* ready = kernel->loaded[form][device].load(std::memory_order_acquire)) return ready;
  std::unique_ptr<Loaded> made = load(*kernel, form, device, problem);
  if (made == nullptr) return nullptr;
  kernel->loaded[form][device].store(made.get(), std::memory_order_release);
  return made.release();
}

/// Return the reason that a device can't launch a kernel with a geometry; if there is none, allow the kernel its shared
/// memory.
inline std::string prepare(Loaded* kernel, const Geometry& geometry) {
  const int64_t threads = geometry.block[0] * geometry.block[1] * geometry.block[2];
  if (threads > kernel->max_threads)
    return "a block of " + std::to_string(threads) +
           " threads is too large: the registers that each thread uses allow " + std::to_string(kernel->max_threads) +
           "; make the block smaller";
  const int64_t total = geometry.shared_bytes + kernel->static_shared;
  if (total > kernel->shared_limit)
    return "shared_mem=" + std::to_string(geometry.shared_bytes) + " is too much: with " +
           std::to_string(kernel->static_shared) + " bytes of the kernel's own, a block on this device can have " +
           std::to_string(kernel->shared_limit) + " bytes; ask for at most " +
           std::to_string(kernel->shared_limit > kernel->static_shared ? kernel->shared_limit - kernel->static_shared
                                                                       : 0);
  if (geometry.shared_bytes > kernel->dynamic_shared.load(std::memory_order_relaxed)) {
    const unsigned room = kernel->shared_limit - kernel->static_shared;
    if (const Result result = driver().cuFuncSetAttribute(kernel->function, kMaxDynamicShared, static_cast<int>(room)))
      return "its shared memory can't be set: " + driver().describe(result);
    kernel->dynamic_shared = room;
  }
  if (geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2] > 8)
    driver().cuFuncSetAttribute(kernel->function, kNonPortableCluster, 1);
  return "";
}

/// Load a call's kernel on one device that has a context; return the problem, if any.
inline std::string preload(Kernel* kernel, const Geometry& geometry, int device) {
  const Driver& cuda = driver();
  Context context = nullptr;
  if (const Result result = cuda.cuDevicePrimaryCtxRetain(&context, device)) return cuda.describe(result);
  std::string problem;
  if (const Result result = cuda.cuCtxPushCurrent(context)) {
    problem = cuda.describe(result);
  } else {
    for (int form = 0; form < kForms && problem.empty(); ++form) {
      if (!kernel->has(form)) continue;
      Loaded* loaded = obtain(kernel, form, device, &problem);
      if (loaded != nullptr) problem = prepare(loaded, geometry);
    }
    cuda.cuCtxPopCurrent(&context);
  }
  cuda.cuDevicePrimaryCtxRelease(device);
  return problem;
}

}  // namespace be_launch
