// Memory whose size a parameter states.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "nvme_if/sysc/physical_memory.h"

namespace csdsim::nvme {

/// Memory of the size that the parameter `key` states. UserError that names the parameter if the address space for it
/// cannot be reserved.
inline std::unique_ptr<PhysicalMemory> make_memory(const std::string& name, Bytes size, std::string_view key) {
  try {
    return std::make_unique<PhysicalMemory>(name.c_str(), size);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}; lower it, or raise the limit of the process (ulimit -v)", key, error.what()));
  }
}

}  // namespace csdsim::nvme
