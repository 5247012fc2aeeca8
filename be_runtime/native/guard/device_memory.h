#pragma once

/// \file
/// The functions of the CUDA driver for checked calls, copies of a call's arrays on a GPU, and the work that the call
/// puts on its stream.

#include "../cuda_driver.h"
#include "../xla_call.h"
#include "memory.h"

namespace be_guard {

using be_cuda::kRelaxedCapture, be_cuda::Result, be_cuda::Stream;
using Address = uint64_t;
using Graph = void*;
using GraphExec = void*;

constexpr unsigned kNonBlocking = 1;
inline Stream const kLegacyStream = reinterpret_cast<Stream>(1), kThreadStream = reinterpret_cast<Stream>(2);

/// The driver's functions; if there are none, `problem` gives the reason.
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

  /// Take each array from XLA's pool; from the driver if a sanitizer should see its ends.
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
    room->resize(size + 1);  // never empty, so that there is an address
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
