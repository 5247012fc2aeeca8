#pragma once

/// \file
/// GPUs of the process: one checked call at a time on each, and none after a fault.

#include <mutex>
#include <string>

namespace be_guard {

struct Device {
  std::mutex mutex;
  std::string lost_by;  ///< the call whose fault has ended the GPU's context; empty while it works
};

constexpr int kDeviceCount = 64;
inline Device* const devices = new Device[kDeviceCount];  // calls may run while the process ends

}  // namespace be_guard
