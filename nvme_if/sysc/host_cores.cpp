// The CPU cores of a host.
#include <algorithm>

#include "base/error.h"
#include "nvme_if/sysc/nvme_driver.h"

namespace csdsim::nvme {

HostCores::HostCores(std::uint32_t count) : free_at_(count) {
  if (count == 0) throw UserError("a host needs at least one core");
}

SimTime HostCores::run(std::size_t index, SimTime work, SimTime now) {
  const std::size_t core = index % free_at_.size();
  SimTime& free = free_at_[core];
  const SimTime start = std::max(now, free);
  busy_ += work;
  waited_ += start - now;
  if (observer_ != nullptr && work.ps > 0)
    observer_->work(static_cast<std::uint32_t>(core), "submit", start, start + work, 0);
  return free = start + work;
}

}  // namespace csdsim::nvme
