/// \file
/// Loads kernels into devices, and says why one can't be launched before it is.

#pragma once

#include "call.h"

namespace be_launch {

/// Lets this thread load modules although it may be recording a command buffer.
class RelaxedCapture {
 public:
  RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

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

/// The image that serves an architecture best: machine code of the same major version, then PTX; null if none does.
inline const Image* choose_image(const Kernel& kernel, int form, int arch) {
  const Image* best = nullptr;
  for (const Image& image : kernel.images) {
    if (image.form != form || image.arch > arch || (image.is_exact && image.arch != arch)) continue;
    if (!image.is_ptx && image.arch / 10 != arch / 10) continue;
    const bool better = best == nullptr || (best->is_ptx && !image.is_ptx) ||
                        (best->is_ptx == image.is_ptx && best->arch < image.arch);
    if (better) best = &image;
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
         std::to_string(arch / 10) + "." + std::to_string(arch % 10) + "; pass compute_capability='sm_" +
         std::to_string(arch) + "', or leave it out to compile for the devices present";
}

/// Loads a kernel into the current context, which is that of `device`; null with a problem when that fails.
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
    *problem = "the driver does not load it: " + cuda.describe(result) + (log[0] ? "\n" : "") + log;
    return nullptr;
  }
  made->image = image;
  made->max_threads = function_attribute(made->function, kMaxThreads);
  made->static_shared = static_cast<unsigned>(function_attribute(made->function, kStaticShared));
  made->shared_limit = static_cast<unsigned>(device_attribute(device, kSharedOptin));
  made->dynamic_shared = made->static_shared < kDefaultDynamicShared ? kDefaultDynamicShared - made->static_shared : 0;
  return made;
}

/// The kernel on a device whose context is current, loaded if it was not; null with a problem when that fails.
inline Loaded* obtain(Kernel* kernel, int form, int device, std::string* problem) {
  if (Loaded* ready = kernel->loaded[form][device].load(std::memory_order_acquire)) return ready;
  const std::lock_guard<std::mutex> guard(kernel->lock);
  if (Loaded* ready = kernel->loaded[form][device].load(std::memory_order_acquire)) return ready;
  std::unique_ptr<Loaded> made = load(*kernel, form, device, problem);
  if (made == nullptr) return nullptr;
  kernel->loaded[form][device].store(made.get(), std::memory_order_release);
  return made.release();
}

/// Says why a kernel can't be launched as asked on a device, and lets it have the shared memory if it can.
inline std::string prepare(Loaded* kernel, const Geometry& geometry) {
  const int64_t threads = geometry.block[0] * geometry.block[1] * geometry.block[2];
  if (threads > kernel->max_threads)
    return "a block of " + std::to_string(threads) + " threads is too large: the registers that each thread uses allow " +
           std::to_string(kernel->max_threads) + "; make the block smaller";
  const int64_t total = geometry.shared_bytes + kernel->static_shared;
  if (total > kernel->shared_limit)
    return "shared_mem=" + std::to_string(geometry.shared_bytes) + " is too much: with " +
           std::to_string(kernel->static_shared) + " bytes of the kernel's own, a block on this device can have " +
           std::to_string(kernel->shared_limit) + " bytes; ask for at most " +
           std::to_string(kernel->shared_limit > kernel->static_shared ? kernel->shared_limit - kernel->static_shared : 0);
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

/// Loads a call's kernel on one device that has a context; returns what is wrong.
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

inline XLA_FFI_Error* instantiate(XLA_FFI_CallFrame* frame) {
  Call call;
  if (!read_call(frame, &call)) return fail_attrs(frame);
  const int name_size = static_cast<int>(call.name->len);
  const Driver& cuda = driver();
  if (!cuda.problem.empty())
    return fail(frame, XLA_FFI_Error_Code_FAILED_PRECONDITION, "%.*s: %s", name_size, call.name->ptr,
                cuda.problem.c_str());
  Kernel* kernel = kernels().find(call.id);
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
  // Of devices of several kinds the program may use only those that the kernel serves.
  if (problem.empty() || any_works) return nullptr;
  return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%.*s: %s", name_size, call.name->ptr, problem.c_str());
}

}  // namespace be_launch
