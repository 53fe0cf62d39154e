// Properties of the present GPU.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace csdsim::host::cuda {

struct DeviceInfo {
  std::string name;
  int compute_capability = 0;  ///< 90 for 9.0
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  std::size_t shared_bytes_per_block = 0;  ///< that a kernel may request
  double memory_bytes_per_second = 0;      ///< peak, from bus width and memory clock; 0 where the driver does not say
  int driver_version = 0;                  ///< newest CUDA version that the driver knows: 13000 for 13.0
};

/// The current device; nothing if there is no GPU or no driver.
std::optional<DeviceInfo> present_device();

/// The current device. UserError if there is none.
DeviceInfo require_device();

}  // namespace csdsim::host::cuda
