#pragma once

/// \file
/// Records of the running checked calls, for the handler of a fault that ends the process and, if they are kept
/// in a file, for a later reader.
///
/// There are `kCrumbs` records of `kCrumbSize` bytes, one for each running call: kernel, caller and, after a fault, the
/// kernel's access, with newlines between and a zero at the end. A record that begins with a zero is free.

#include <fcntl.h>

#include "../fault_names.h"
#include "memory.h"

namespace be_guard {

constexpr int kCrumbs = 64;
constexpr size_t kCrumbSize = 1024;

inline char own_crumbs[kCrumbs * kCrumbSize];
inline std::atomic<char*> crumbs{own_crumbs};
inline std::atomic<bool> crumb_taken[kCrumbs];
inline std::atomic<long> crumb_threads[kCrumbs];

/// Map the file, which is made if necessary; false on failure.
inline bool open_breadcrumbs(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return false;
  void* mapped = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(kCrumbs * kCrumbSize)) == 0)
    mapped = mmap(nullptr, kCrumbs * kCrumbSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return false;
  crumbs.store(static_cast<char*>(mapped));
  return true;
}

/// The stack of a thread's signal handlers, for kernels that overflow the thread's own stack.
class SignalStack {
 public:
  SignalStack() {
    stack_t now{};
    if (sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    room_ = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room_ != MAP_FAILED) set(0);
  }
  ~SignalStack() {
    if (room_ == MAP_FAILED) return;
    set(SS_DISABLE);
    munmap(room_, kSize);
  }
  SignalStack& operator=(SignalStack&&) = delete;

 private:
  static constexpr size_t kSize = size_t{64} << 10;

  void set(int flags) {
    const stack_t own{room_, flags, kSize};
    sigaltstack(&own, nullptr);
  }

  void* room_ = MAP_FAILED;
};

/// The record of a call during the lifetime of this object.
class Breadcrumb {
 public:
  Breadcrumb(const std::string& kernel, const std::string& caller) {
    static thread_local const SignalStack stack;
    for (int i = 0; i < kCrumbs; ++i) {
      if (crumb_taken[i].exchange(true)) continue;
      taken_ = i;
      at_ = crumbs.load() + static_cast<size_t>(i) * kCrumbSize;
      crumb_threads[i].store(syscall(SYS_gettid));
      strncpy(at_, (kernel + "\n" + caller).c_str(), kCrumbSize - 1);
      return;
    }
  }
  ~Breadcrumb() {
    if (at_ == nullptr) return;
    memset(at_, 0, kCrumbSize);
    crumb_taken[taken_].store(false);
  }
  Breadcrumb& operator=(Breadcrumb&&) = delete;

 private:
  char* at_ = nullptr;
  int taken_ = 0;
};

/// Describe an access beside an array, as `writes to an address 16384 bytes past result 0 (float32[6])`; add nothing
/// for other accesses.
inline void describe_access(be_faults::Line& line, const siginfo_t* info, const void* context) {
  const char* const address = static_cast<const char*>(info->si_addr);
  const char* does = "accesses";
#if defined(__x86_64__)
  does = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "writes to" : "reads from";
#else
  static_cast<void>(context);
#endif
  for (const Surroundings& each : surroundings) {
    const char* const begin = each.begin.load();
    if (info->si_code <= 0 || begin == nullptr || address < begin || address >= each.end) continue;
    const bool is_behind = address >= each.data;
    const size_t distance = static_cast<size_t>(is_behind ? address - each.data - each.bytes : each.data - address);
    line << does << " an address " << distance << (is_behind ? " bytes past " : " bytes before ") << each.name;
    return;
  }
}

/// Report the checked calls that this thread runs; if it runs none, the calls for which it may work.
inline void describe_calls(int number, const siginfo_t* info, const void* context) {
  const long thread = syscall(SYS_gettid);
  bool is_own = false;
  for (int i = 0; i < kCrumbs; ++i) is_own |= crumb_taken[i].load() && crumb_threads[i].load() == thread;
  be_faults::Line access;
  describe_access(access, info, context);
  for (int i = 0; i < kCrumbs; ++i) {
    char* const at = crumbs.load() + static_cast<size_t>(i) * kCrumbSize;
    char* const caller = strchr(at, '\n');
    if (!crumb_taken[i].load() || caller == nullptr || (is_own && crumb_threads[i].load() != thread)) continue;
    be_faults::Line line;
    line << "be_runtime: " << be_faults::name_of(number) << (is_own ? " in " : " in another thread, during ");
    *caller = 0;
    line << at << (caller[1] != 0 ? ", called at " : "") << caller + 1;
    *caller = '\n';
    if (!access.is_empty()) {
      line << ": it " << access.text();
      const size_t used = strlen(at);
      if (used + strlen(access.text()) + 2 < kCrumbSize) strcat(strcpy(at + used, "\n"), access.text());
    }
    line.say();
  }
}

}  // namespace be_guard
