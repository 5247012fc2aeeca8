#pragma once

/// \file
/// Messages of a process that dies in a kernel: a line on standard error, before other handlers of the signal.
///
/// After a fatal signal, only system calls are safe. So a line has a fixed size, and code that may take a lock runs in
/// a copy of the process, for which this process waits three seconds at most.

#include <errno.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

namespace be_faults {

/// A line that is composed without allocating memory; text that does not fit is left out.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != 0 && size_ + 2 < sizeof(text_)) text_[size_++] = *text++;
    return *this;
  }
  Line& operator<<(uint64_t number) {
    char digits[21];
    char* at = digits + sizeof(digits) - 1;
    *at = 0;
    do *--at = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    return *this << at;
  }
  bool is_empty() const { return size_ == 0; }
  const char* text() const { return text_; }
  void say() {
    text_[size_++] = '\n';
    static_cast<void>(!write(STDERR_FILENO, text_, size_));
  }

 private:
  char text_[2048] = {};
  size_t size_ = 0;
};

constexpr struct {
  int number;
  const char* name;
} kSignals[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}};

inline const char* name_of(int number) {
  for (const auto& each : kSignals)
    if (each.number == number) return each.name;
  return "a signal";
}

/// Function that reports the running kernel, if there is one.
using Describe = void(int number, const siginfo_t* info, const void* context);

inline Describe* describe = nullptr;
inline struct sigaction* before = nullptr;  ///< by the number of the signal

/// Describe a fault, and pass it to the earlier handler of the signal.
inline void on_fault(int number, siginfo_t* info, void* context) {
  const int kept = errno;
  describe(number, info, context);
  errno = kept;
  const struct sigaction& next = before[number];
  if (next.sa_flags & SA_SIGINFO) return next.sa_sigaction(number, info, context);
  if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) return next.sa_handler(number);
  sigaction(number, &next, nullptr);
  if (info->si_code <= 0) raise(number);  // the signal was sent; a faulting instruction faults again
}

/// Install the handlers, once.
inline void install(Describe* how) {
  if (describe != nullptr) return;
  describe = how;
  before = new struct sigaction[NSIG];
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const auto& each : kSignals) {
    sigaction(each.number, nullptr, &before[each.number]);
    sigaction(each.number, &ours, nullptr);
  }
}

// Find the kernel in which a process dies outside of checked mode. Calls leave no record, so the frames of the stack
// are compared with the code of kernels. One library of a process does this for the kernels of all libraries.

/// A function of a library that returns the kernel for which this thread works; null if there is none.
using Running = const char*();

/// A kernel: the function that is on the stack whenever it runs, and its text in messages.
struct Kernel {
  uintptr_t code;
  uintptr_t library;  ///< its beginning; 0 for code outside of libraries
  Running* running;   ///< of its library, if the library starts threads
  const char* text;
  Kernel* next;
};

inline Kernel* kernels = nullptr;

/// Return the beginning of the library around an address; 0 if there is none.
inline uintptr_t library_of(uintptr_t address) {
  struct Search {
    uintptr_t address, found;
  } search{address, 0};
  const auto look = [](dl_phdr_info* library, size_t, void* data) {
    Search& wanted = *static_cast<Search*>(data);
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      const auto& part = library->dlpi_phdr[i];
      if (part.p_type == PT_LOAD && wanted.address - library->dlpi_addr - part.p_vaddr < part.p_memsz)
        wanted.found = library->dlpi_addr;
    }
    return static_cast<int>(wanted.found != 0);
  };
  dl_iterate_phdr(look, &search);
  return search.found;
}

/// Results of a walk along the frames of a stack, which begins at the innermost frame.
struct Shown {
  uintptr_t fault;                   ///< the instruction; frames before it belong to signal handlers
  bool is_past_handlers = false;
  const Kernel* kernel = nullptr;
  const Kernel* neighbor = nullptr;  ///< in the same library, for threads that kernels start and code without frames
};

inline _Unwind_Reason_Code look_at_frame(_Unwind_Context* frame, void* data) {
  Shown& shown = *static_cast<Shown*>(data);
  const uintptr_t at = _Unwind_GetIP(frame);
  shown.is_past_handlers |= at == shown.fault;
  if (!shown.is_past_handlers) return _URC_NO_REASON;
  const uintptr_t library = shown.neighbor == nullptr ? library_of(at) : 1;
  for (const Kernel* each = kernels; each != nullptr; each = each->next) {
    if (each->code == _Unwind_GetRegionStart(frame)) shown.kernel = each;
    if (each->library == library) shown.neighbor = each;
  }
  return shown.kernel == nullptr ? _URC_NO_REASON : _URC_NORMAL_STOP;
}

/// Return whether the text of a kernel begins with a name, which its lines may follow.
inline bool is_named(const Kernel& kernel, const char* name) {
  const size_t size = strlen(name);
  return strncmp(kernel.text, name, size) == 0 && (kernel.text[size] == 0 || kernel.text[size] == ',');
}

/// Return whether a thread in a library may run a kernel: its own kernel if it is known, else any kernel with lines.
inline bool may_be(const Kernel& kernel, const Kernel& neighbor) {
  const char* const name = neighbor.running != nullptr ? neighbor.running() : nullptr;
  if (kernel.library != neighbor.library) return false;
  return name != nullptr ? is_named(kernel, name) : strchr(kernel.text, ' ') != nullptr;
}

inline void say_kernel(int number, uintptr_t fault) {
  Shown shown{fault};
  _Unwind_Backtrace(look_at_frame, &shown);
  if (shown.kernel == nullptr && shown.neighbor == nullptr) return;
  Line line;
  line << "be_runtime: " << name_of(number) << (shown.kernel != nullptr ? " in " : " in the code of ");
  const char* between = "";
  for (const Kernel* each = kernels; each != nullptr; each = each->next) {
    if (shown.kernel != nullptr ? each != shown.kernel : !may_be(*each, *shown.neighbor)) continue;
    line << between << each->text;
    between = ", or of ";
  }
  line << (*between == 0 ? shown.neighbor->text : "");
  line.say();
}

/// Examine the stack in a copy of the process, for three seconds at most: finding a frame may take a lock that this
/// thread holds.
inline void describe_stack(int number, const siginfo_t*, const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const uintptr_t fault = static_cast<uintptr_t>(machine.gregs[REG_RIP]);
#else
  const uintptr_t fault = machine.pc;
#endif
  const pid_t copy = static_cast<pid_t>(syscall(SYS_clone, 0, 0, 0, 0, 0));  // as fork(), without its handlers
  if (copy == 0) {
    for (const auto& each : kSignals) signal(each.number, SIG_DFL);
    prctl(PR_SET_DUMPABLE, 0);
    say_kernel(number, fault);
    _exit(0);
  }
  for (int waits = 0; copy > 0 && waitpid(copy, nullptr, WNOHANG | __WALL) == 0; ++waits) {
    if (waits == 300) kill(copy, SIGKILL);
    poll(nullptr, 0, 10);
  }
}

/// Set or replace the name of a kernel's code for later messages. Only one thread may call this function at a time.
inline void name_kernel(const void* code, const char* text, Running* running) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(code);
  Kernel* kernel = kernels;
  while (kernel != nullptr && kernel->code != begin) kernel = kernel->next;
  const char* const own = strdup(text);  // a fault may show the earlier text, so it is never freed
  if (kernel != nullptr) __atomic_store_n(&kernel->text, own, __ATOMIC_RELEASE);
  else __atomic_store_n(&kernels, new Kernel{begin, library_of(begin), running, own, kernels}, __ATOMIC_RELEASE);
  install(describe_stack);
}

}  // namespace be_faults
