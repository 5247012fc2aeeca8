#pragma once

/// \file
/// What a process says when it dies in a kernel: a line on standard error, before whatever else handles the signal.
///
/// In a process that dies little is safe but system calls, so a line has a fixed size, and whatever may take a lock
/// happens in a copy of the process, for which nobody waits long.

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

namespace be_faults {

/// A line that is composed without memory of its own; what does not fit is left out.
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

constexpr int kSignals[] = {SIGSEGV, SIGFPE, SIGABRT, SIGBUS, SIGILL};

inline const char* name_of(int number) {
  switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGFPE: return "SIGFPE";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    default: return "SIGILL";
  }
}

/// Says where the process is, if it is in a kernel.
using Describe = void(int number, const siginfo_t* info, const void* context);

inline Describe* describe = nullptr;
inline struct sigaction* before = nullptr;  ///< by the number of the signal

/// Describes a fault, and hands it on to what handled the signal before.
inline void on_fault(int number, siginfo_t* info, void* context) {
  const int kept = errno;
  describe(number, info, context);
  errno = kept;
  const struct sigaction& next = before[number];
  if (next.sa_flags & SA_SIGINFO) return next.sa_sigaction(number, info, context);
  if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) return next.sa_handler(number);
  sigaction(number, &next, nullptr);
  if (info->si_code <= 0) raise(number);  // was sent; an instruction that faults does so again
}

/// Installs the handlers; the second time nothing happens.
inline void install(Describe* how) {
  if (describe != nullptr) return;
  describe = how;
  before = new struct sigaction[NSIG];
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const int number : kSignals) {
    sigaction(number, nullptr, &before[number]);
    sigaction(number, &ours, nullptr);
  }
}

}  // namespace be_faults
