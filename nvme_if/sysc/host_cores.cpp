// The CPU cores of a host.
#include <algorithm>

#include "base/error.h"
#include "nvme_if/sysc/nvme_driver.h"

namespace csdsim::nvme {

HostCores::HostCores(std::uint32_t count) : free_at_(count) {
  if (count == 0) throw UserError("a host needs at least one core");
}

SimTime HostCores::run(std::size_t index, SimTime work, SimTime now) {
  SimTime& free = free_at_[index % free_at_.size()];
  const SimTime start = std::max(now, free);
  busy_ += work;
  waited_ += start - now;
  return free = start + work;
}

}  // namespace csdsim::nvme
