#pragma once

/// \file
/// A file that says which checked calls are running, for who looks at it after the process has died.
///
/// It has `kCrumbs` records of `kCrumbSize` bytes, one for each call that runs: kernel and caller, with a newline
/// between and a zero at the end. A record that begins with a zero is free.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

namespace be_guard {

constexpr int kCrumbs = 64;
constexpr size_t kCrumbSize = 1024;

inline std::atomic<char*> crumbs{nullptr};
inline std::atomic<bool> crumb_taken[kCrumbs];

/// Maps the file, which is made if need be; false when that fails.
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

/// The record of a call while this lives.
class Breadcrumb {
 public:
  Breadcrumb(const std::string& kernel, const std::string& caller) {
    char* all = crumbs.load();
    for (int i = 0; all != nullptr && i < kCrumbs; ++i) {
      if (crumb_taken[i].exchange(true)) continue;
      taken_ = i;
      at_ = all + static_cast<size_t>(i) * kCrumbSize;
      strncpy(at_, (kernel + "\n" + caller).c_str(), kCrumbSize - 1);
      return;
    }
  }
  ~Breadcrumb() {
    if (at_ == nullptr) return;
    *at_ = 0;
    crumb_taken[taken_].store(false);
  }
  Breadcrumb(const Breadcrumb&) = delete;
  Breadcrumb& operator=(const Breadcrumb&) = delete;

 private:
  char* at_ = nullptr;
  int taken_ = 0;
};

}  // namespace be_guard
