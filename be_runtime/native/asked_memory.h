#pragma once

/// \file
/// The memory that a kernel allocates while it runs: from XLA on a GPU, and from a stack of each thread on the CPU,
/// where XLA allocates none.

#include <stdlib.h>

#include "arguments.h"
#include "brainevent/workspace.h"

namespace BE::detail {

/// Exception for memory that can't be allocated.
struct AllocationError : std::exception {
  Message message;
  const char* what() const noexcept override { return message.text; }
};

/// More bytes than a machine can address.
constexpr int64_t kAbsurd = int64_t{1} << 47;

[[noreturn]] __attribute__((cold, noinline)) void throw_exhausted(size_t bytes, const char* reason) {
  AllocationError error;
  error.message.add("allocate of %zu bytes: %s", bytes, reason);
  throw error;
}

[[noreturn]] __attribute__((cold, noinline)) void throw_absurd(int64_t count, size_t size) {
  Message message;
  message.add("allocate of %ld", count);
  if (size != 1) message.add(" objects of %zu", size);
  message.add(" bytes: a size must be between 0 and %ld bytes", kAbsurd);
  throw CheckError(message.text);
}

/// Header of a block of host memory; its bytes follow.
struct alignas(Workspace::kAlignment) Block {
  Block* below;
  size_t size;
  size_t used;
};

/// The host memory of one thread's calls, a stack because calls nest. It grows, and keeps one block for later calls.
class Arena {
 public:
  Block* top() const noexcept { return top_; }
  size_t used() const noexcept { return top_ == nullptr ? 0 : top_->used; }

  void* take(size_t bytes) {
    bytes = (bytes + Workspace::kAlignment - 1) & ~(Workspace::kAlignment - 1);
    if (top_ == nullptr || top_->size - top_->used < bytes) push(bytes);
    char* at = reinterpret_cast<char*>(top_ + 1) + top_->used;
    top_->used += bytes;
    return at;
  }

  /// Return to an earlier state.
  void drop(Block* top, size_t used) noexcept {
    while (top_ != top) {
      Block* block = top_;
      top_ = block->below;
      keep(block);
    }
    if (top_ != nullptr) top_->used = used;
  }

  void free_all() noexcept {
    drop(nullptr, 0);
    free(spare_);
    spare_ = nullptr;
  }

 private:
  static constexpr size_t kLeast = size_t{64} << 10, kMostKept = size_t{64} << 20;

  __attribute__((noinline)) void push(size_t bytes);

  /// Keep a block for later calls if it is larger than the kept block, and not too large.
  void keep(Block* block) noexcept {
    Block* other = spare_;
    const bool is_better = block->size <= kMostKept && (other == nullptr || other->size < block->size);
    if (is_better) spare_ = block;
    Block* worse = is_better ? other : block;
    if (worse != nullptr) free(worse);
  }

  Block* top_ = nullptr;
  Block* spare_ = nullptr;
};

thread_local Arena arena;

/// Owner that frees a thread's memory at its end. A destructor of the memory itself would slow down each use.
thread_local struct ArenaOwner {
  ~ArenaOwner() { arena.free_all(); }
  bool is_here = false;
} arena_owner;

void Arena::push(size_t bytes) {
  arena_owner.is_here = true;
  Block* block = spare_;
  if (block != nullptr && block->size >= bytes) {
    spare_ = nullptr;
  } else {
    // Double the size, so that one block soon serves a whole call.
    const size_t grown = top_ == nullptr || top_->size > kMostKept / 2 ? kLeast : 2 * top_->size;
    const size_t size = bytes > grown ? bytes : grown;
    block = static_cast<Block*>(aligned_alloc(Workspace::kAlignment, sizeof(Block) + size));
    if (block == nullptr) throw_exhausted(bytes, "the host is out of memory");
    block->size = size;
  }
  block->below = top_;
  block->used = 0;
  top_ = block;
}

BE_BEGIN_COLD
/// One piece of a GPU's memory, in the list of a call.
struct DevicePiece {
  void* below;
  void* data;
  size_t size;
};

__attribute__((noinline)) void* allocate_on_device(AskedMemory& memory, size_t bytes) {
  DevicePiece* piece = new DevicePiece{memory.be_last, nullptr, bytes};
  if (XLA_FFI_Error* error = be_xla::allocate(memory.be_frame, bytes, &piece->data)) {
    delete piece;
    Message message;
    message.add("%s", be_xla::message_of(memory.be_frame, error));
    be_xla::drop_error(memory.be_frame, error);
    throw_exhausted(bytes, message.text);
  }
  memory.be_last = piece;
  return piece->data;
}

/// Free a call's GPU memory.
__attribute__((noinline)) void free_on_device(AskedMemory& memory) noexcept {
  while (DevicePiece* piece = static_cast<DevicePiece*>(memory.be_last)) {
    be_xla::free(memory.be_frame, piece->data, piece->size);
    memory.be_last = piece->below;
    delete piece;
  }
}
}  // namespace BE::detail

void* be_refuse_data() {
  throw BE::CheckError("data() of a bare scratch, which has no memory of its own: call allocate(bytes), or declare it, "
                       "as in scratch[n*4]");
}

void be_refuse_size(size_t size, size_t declared) {
  Message message;
  message.add("the scratch memory is declared with %zu bytes, and the call passes %zu", declared, size);
  throw BE::CheckError(message.text);
}
BE_END_COLD

void be_open_memory(AskedMemory& memory) noexcept {
  if (memory.be_frame != nullptr) return;
  memory.be_arena = &arena;
  memory.be_last = arena.top();
  memory.be_used = arena.used();
}

void be_close_memory(AskedMemory& memory) noexcept {
  if (memory.be_frame != nullptr) return free_on_device(memory);
  static_cast<Arena*>(memory.be_arena)->drop(static_cast<Block*>(memory.be_last), memory.be_used);
}

void* be_allocate(AskedMemory* asked, int64_t count, size_t size) {
  if (__builtin_expect(asked == nullptr, 0))
    throw BE::CheckError("allocate() of a declared scratch, which has data(); for memory while running write a bare "
                         "`scratch` in the arg_spec");
  AskedMemory& memory = *asked;
  int64_t bytes;
  if (count < 0 || __builtin_mul_overflow(count, size, &bytes) || bytes > kAbsurd)
    throw_absurd(count, size);
  if (bytes == 0) return nullptr;
  const size_t room = static_cast<size_t>(bytes);
  return memory.be_frame != nullptr ? allocate_on_device(memory, room) : arena.take(room);
}
