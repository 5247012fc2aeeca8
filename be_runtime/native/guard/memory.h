#pragma once

/// \file
/// Copies of a call's arrays with bytes around them, in memory of the host or of a GPU.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace be_guard {

/// Memory for one array. The array begins `before` bytes behind the beginning; `behind` bytes follow it.
struct Block {
  char* begin = nullptr;
  size_t before = 0, bytes = 0, behind = 0;

  char* data() const { return begin + before; }
  size_t size() const { return before + bytes + behind; }
  /// The bytes to ask for: there is an address also of nothing.
  size_t room() const { return size() == 0 ? 1 : size(); }
};

using Bytes = std::vector<unsigned char>;

/// The memory of a call, and its stream. What fails says why in `problem`.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  virtual bool make(Block* block, size_t bytes) = 0;
  virtual void drop(const Block& block) = 0;
  virtual bool fill(void* at, unsigned char byte, size_t size) = 0;
  virtual bool copy(void* to, const void* from, size_t size) = 0;
  /// The bytes at an address, in `room` where they must be copied to the host; null on failure.
  virtual const unsigned char* read(const void* from, size_t size, Bytes* room) = 0;
  /// Waits for the call's work.
  virtual bool wait() = 0;

  /// From here on, what the call puts on its stream is held; false where that is impossible.
  virtual bool hold() { return false; }
  /// Ends that, and keeps what was held; false when some of it can't be held, and nothing of it will run.
  virtual bool keep() { return false; }
  /// Reads what was written although the call's stream was held.
  virtual const unsigned char* read_early(const void*, size_t, Bytes*) { return nullptr; }
  /// Runs what was held, once; false when it can't run.
  virtual bool let_go() { return false; }

  std::string problem;       ///< of the last function that failed
  std::string hold_problem;  ///< the same of `hold` and what follows it, whose failures harm nothing
};

/// No bytes around arrays: a sanitizer sees the ends of each.
inline bool exact_blocks = false;

/// The block of an array, without its memory yet.
inline Block block_for(size_t bytes) {
  if (exact_blocks) return {nullptr, 0, bytes, 0};
  return {nullptr, 256, bytes, bytes < 256 ? 256 : bytes < 65536 ? bytes : 65536};
}

class HostMemory final : public Memory {
 public:
  bool make(Block* block, size_t bytes) override {
    void* begin = nullptr;
    *block = block_for(bytes);
    if (posix_memalign(&begin, 64, block->room()) != 0) return false;
    block->begin = static_cast<char*>(begin);
    return true;
  }
  void drop(const Block& block) override { free(block.begin); }
  bool fill(void* at, unsigned char byte, size_t size) override {
    memset(at, byte, size);
    return true;
  }
  bool copy(void* to, const void* from, size_t size) override {
    if (size != 0) memcpy(to, from, size);
    return true;
  }
  const unsigned char* read(const void* from, size_t, Bytes*) override {
    return static_cast<const unsigned char*>(from);
  }
  bool wait() override { return true; }
};

}  // namespace be_guard
