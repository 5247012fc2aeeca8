#pragma once

/// \file
/// Copies of a call's arrays with bytes around them, in memory of the host or of a GPU, and the functions of the CUDA
/// driver for them.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../cuda_driver.h"
#include "../xla_call.h"

namespace be_guard {

/// Memory for one array. The array begins `before` bytes past the beginning; `behind` bytes follow it.
struct Block {
  char* begin = nullptr;
  size_t before = 0, bytes = 0, behind = 0;

  char* data() const { return begin + before; }
  size_t size() const { return before + bytes + behind; }
  /// Return the bytes to allocate: an empty array has an address, too.
  size_t room() const { return size() == 0 ? 1 : size(); }
};

using Bytes = std::vector<unsigned char>;

/// The memory of a call, and its stream. A function that fails gives the reason in `problem`.
class Memory {
 public:
  Memory(const std::string& device, std::string* lost_by, bool can_hold)
      : device(device), lost_by(lost_by), can_hold(can_hold) {}
  Memory& operator=(Memory&&) = delete;
  virtual ~Memory() = default;

  const std::string device;    ///< its name, such as cuda:0
  std::string* const lost_by;  ///< the place for the call whose fault ends the GPU's context; null on the CPU
  const bool can_hold;         ///< whether the code may be recorded instead of run

  /// \param name  of the array, for the handler of a fault
  virtual bool make(Block* block, size_t bytes, const std::string& name) = 0;
  virtual void drop(const Block& block) = 0;
  virtual bool fill(void* at, unsigned char byte, size_t size) = 0;
  virtual bool copy(void* to, const void* from, size_t size) = 0;
  /// Return the bytes at an address, in `room` if they must be copied to the host; null on failure.
  virtual const unsigned char* read(const void* from, size_t size, Bytes* room) = 0;
  /// Wait for the call's work.
  virtual bool wait() = 0;

  /// Hold the work that the call puts on its stream from now on; false if that is impossible.
  virtual bool hold() { return false; }
  /// Stop holding, and keep the held work; false if some of the work can't be held, and then none of it runs.
  virtual bool keep() { return false; }
  /// Read bytes that may have been written although the call's stream was held.
  virtual const unsigned char* read_early(const void*, size_t, Bytes*) { return nullptr; }
  /// Run the held work, once; false if it can't run.
  virtual bool let_go() { return false; }

  std::string problem;       ///< of the last function that failed
  std::string hold_problem;  ///< of `hold` or a function below it that failed, which is harmless
};

/// True for no bytes around arrays, so that a sanitizer detects accesses past their ends.
inline bool exact_blocks = false;

/// Return the sizes of an array's block; the memory is allocated later.
inline Block block_for(size_t bytes) {
  if (exact_blocks) return {nullptr, 0, bytes, 0};
  return {nullptr, 256, bytes, bytes < 256 ? 256 : bytes < 65536 ? bytes : 65536};
}

/// An array of the host and the pages around it, which must not be accessed.
struct Surroundings {
  std::atomic<const char*> begin;  ///< null where the record is free
  const char *end, *data;
  size_t bytes;
  char name[112];
};

/// The records that the handler of a fault reads; pages around further arrays have no name.
inline Surroundings surroundings[256];

class HostMemory final : public Memory {
 public:
  HostMemory() : Memory("cpu", nullptr, false) {}
  bool make(Block* block, size_t bytes, const std::string& name) override {
    *block = block_for(bytes);
    if (exact_blocks) {
      void* begin = nullptr;
      if (posix_memalign(&begin, 64, block->room()) != 0) return false;
      block->begin = static_cast<char*>(begin);
      return true;
    }
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    block->behind += page - 1 - (block->size() + page - 1) % page;
    void* all =
        mmap(nullptr, block->size() + 2 * kAround, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return false;
    block->begin = static_cast<char*>(all) + kAround;
    if (mprotect(block->begin, block->size(), PROT_READ | PROT_WRITE) == 0) return tell(*block, name), true;
    drop(*block);
    return false;
  }
  void drop(const Block& block) override {
    if (exact_blocks) return free(block.begin);
    char* const begin = block.begin - kAround;
    for (Surroundings& each : surroundings)
      if (each.begin.load() == begin) each.begin.store(nullptr);
    munmap(begin, block.size() + 2 * kAround);
  }
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

 private:
  static constexpr size_t kAround = size_t{64} << 20;  // of addresses, not of memory

  static void tell(const Block& block, const std::string& name) {
    static const char kTaken = 0;
    for (Surroundings& each : surroundings) {
      const char* free = nullptr;
      if (!each.begin.compare_exchange_strong(free, &kTaken)) continue;
      each.end = block.begin + block.size() + kAround;
      each.data = block.data();
      each.bytes = block.bytes;
      strncpy(each.name, name.c_str(), sizeof(each.name) - 1);
      each.begin.store(block.begin - kAround);
      return;
    }
  }
};

using be_cuda::kRelaxedCapture, be_cuda::Result, be_cuda::Stream;
using Address = uint64_t;
using Graph = void*;
using GraphExec = void*;

constexpr unsigned kNonBlocking = 1;
inline Stream const kLegacyStream = reinterpret_cast<Stream>(1), kThreadStream = reinterpret_cast<Stream>(2);

/// The driver's functions; if one is missing, `problem` has the reason.
struct DeviceDriver : be_cuda::DriverLibrary {
  Result (*cuCtxGetDevice)(int*) = find("cuCtxGetDevice");
  Result (*cuMemAlloc)(Address*, size_t) = find("cuMemAlloc_v2");
  Result (*cuMemFree)(Address) = find("cuMemFree_v2");
  Result (*cuMemsetD8Async)(Address, unsigned char, size_t, Stream) = find("cuMemsetD8Async");
  Result (*cuMemcpyDtoDAsync)(Address, Address, size_t, Stream) = find("cuMemcpyDtoDAsync_v2");
  Result (*cuMemcpyDtoHAsync)(void*, Address, size_t, Stream) = find("cuMemcpyDtoHAsync_v2");
  Result (*cuStreamCreate)(Stream*, unsigned) = find("cuStreamCreate");
  Result (*cuStreamDestroy)(Stream) = find("cuStreamDestroy_v2");
  Result (*cuStreamSynchronize)(Stream) = find("cuStreamSynchronize");
  Result (*cuStreamIsCapturing)(Stream, int*) = find("cuStreamIsCapturing");
  Result (*cuStreamBeginCapture)(Stream, int) = find("cuStreamBeginCapture_v2");
  Result (*cuStreamEndCapture)(Stream, Graph*) = find("cuStreamEndCapture");
  Result (*cuGraphInstantiateWithFlags)(GraphExec*, Graph, unsigned long long) = find("cuGraphInstantiateWithFlags");
  Result (*cuGraphLaunch)(GraphExec, Stream) = find("cuGraphLaunch");
  Result (*cuGraphExecDestroy)(GraphExec) = find("cuGraphExecDestroy");
  Result (*cuGraphDestroy)(Graph) = find("cuGraphDestroy");
};

/// Opened on first use, never closed.
inline const DeviceDriver& device_driver() {
  static const DeviceDriver* const opened = new DeviceDriver;
  return *opened;
}

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(const XLA_FFI_CallFrame* frame, Stream stream, const std::string& name, std::string* lost_by,
               bool can_hold)
      : Memory(name, lost_by, can_hold), frame_(frame), stream_(stream) {}
  ~DeviceMemory() override { forget_graph(); }

  /// Allocate an array from XLA's pool, or from the driver if a sanitizer must detect accesses past its ends.
  bool make(Block* block, size_t bytes, const std::string&) override {
    *block = block_for(bytes);
    if (exact_blocks) {
      Address address = 0;
      if (!is_good(cuda_.cuMemAlloc(&address, block->room()))) return false;
      block->begin = reinterpret_cast<char*>(address);
      return true;
    }
    void* data = nullptr;
    if (XLA_FFI_Error* error = be_xla::allocate(frame_, block->room(), &data)) {
      problem = be_xla::message_of(frame_, error);
      be_xla::drop_error(frame_, error);
      return false;
    }
    block->begin = static_cast<char*>(data);
    return true;
  }

  void drop(const Block& block) override {
    if (exact_blocks) cuda_.cuMemFree(reinterpret_cast<Address>(block.begin));
    else be_xla::free(frame_, block.begin, block.size());
  }

  bool fill(void* at, unsigned char byte, size_t size) override {
    return size == 0 || is_good(cuda_.cuMemsetD8Async(reinterpret_cast<Address>(at), byte, size, stream_));
  }

  bool copy(void* to, const void* from, size_t size) override {
    return size == 0 || is_good(cuda_.cuMemcpyDtoDAsync(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from),
                                                        size, stream_));
  }

  const unsigned char* read(const void* from, size_t size, Bytes* room) override {
    return read_by(stream_, from, size, room);
  }

  /// Wait for the call's stream, and for the default streams, on which a kernel may run by mistake.
  bool wait() override {
    return is_good(cuda_.cuStreamSynchronize(stream_)) && is_good(cuda_.cuStreamSynchronize(kLegacyStream)) &&
           is_good(cuda_.cuStreamSynchronize(kThreadStream));
  }

  bool hold() override { return can(cuda_.cuStreamBeginCapture(stream_, kRelaxedCapture)); }

  bool keep() override {
    if (can(cuda_.cuStreamEndCapture(stream_, &graph_)) && graph_ != nullptr) return true;
    forget_graph();
    return false;
  }

  /// Read by another stream, because the held work must not run yet.
  const unsigned char* read_early(const void* from, size_t size, Bytes* room) override {
    Stream own = nullptr;
    if (!can(cuda_.cuStreamSynchronize(kLegacyStream)) || !can(cuda_.cuStreamSynchronize(kThreadStream)) ||
        !can(cuda_.cuStreamCreate(&own, kNonBlocking)))
      return nullptr;
    const unsigned char* found = read_by(own, from, size, room);
    if (found == nullptr) hold_problem = problem;
    cuda_.cuStreamDestroy(own);
    return found;
  }

  bool let_go() override {
    GraphExec exec = nullptr;
    const bool is_run =
        can(cuda_.cuGraphInstantiateWithFlags(&exec, graph_, 0)) && can(cuda_.cuGraphLaunch(exec, stream_));
    if (exec != nullptr) cuda_.cuGraphExecDestroy(exec);  // running work goes on
    forget_graph();
    return is_run;
  }

 private:
  bool is_good(Result result) {
    if (result != 0) problem = cuda_.describe(result);
    return result == 0;
  }

  bool can(Result result) {
    if (result != 0) hold_problem = cuda_.describe(result);
    return result == 0;
  }

  const unsigned char* read_by(Stream stream, const void* from, size_t size, Bytes* room) {
    room->resize(size + 1);  // never empty, so that its address is not null
    const bool is_read =
        size == 0 || (is_good(cuda_.cuMemcpyDtoHAsync(room->data(), reinterpret_cast<Address>(from), size, stream)) &&
                      is_good(cuda_.cuStreamSynchronize(stream)));
    return is_read ? room->data() : nullptr;
  }

  void forget_graph() {
    if (graph_ != nullptr) cuda_.cuGraphDestroy(graph_);
    graph_ = nullptr;
  }

  const XLA_FFI_CallFrame* frame_;
  Stream stream_;
  const DeviceDriver& cuda_ = device_driver();
  Graph graph_ = nullptr;
};

}  // namespace be_guard
