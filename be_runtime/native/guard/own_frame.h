#pragma once

/// \file
/// A call's frame with buffers of our own.

#include <vector>

#include "arrays.h"
#include "check.h"

namespace be_guard {

/// A call's frame with other buffers, and without the attribute `be_check`.
class OwnFrame {
 public:
  OwnFrame(const XLA_FFI_CallFrame* frame, const std::vector<Array>& arrays) : frame_(*frame) {
    for (int64_t i = 0; i < frame->attrs.size; ++i) {
      if (is_check(*frame->attrs.names[i])) continue;
      names_.push_back(frame->attrs.names[i]);
      types_.push_back(frame->attrs.types[i]);
      values_.push_back(frame->attrs.attrs[i]);
    }
    frame_.attrs.size = static_cast<int64_t>(names_.size());
    frame_.attrs.names = names_.data();
    frame_.attrs.types = types_.data();
    frame_.attrs.attrs = values_.data();
    args_.assign(frame->args.args, frame->args.args + frame->args.size);
    rets_.assign(frame->rets.rets, frame->rets.rets + frame->rets.size);
    for (const Array& array : arrays) buffers_.push_back(*array.buffer);
    size_t arg = 0, ret = 0;
    for (size_t i = 0; i < arrays.size(); ++i)
      (arrays[i].is_result ? rets_[ret++] : args_[arg++]) = &buffers_[i];
    frame_.args.args = args_.data();
    frame_.rets.rets = rets_.data();
  }
  OwnFrame(const OwnFrame&) = delete;
  OwnFrame& operator=(const OwnFrame&) = delete;

  void point(size_t array, void* data) { buffers_[array].data = data; }
  XLA_FFI_CallFrame* get() { return &frame_; }

 private:
  XLA_FFI_CallFrame frame_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<void*> values_, args_, rets_;
  std::vector<XLA_FFI_Buffer> buffers_;
};

}  // namespace be_guard
