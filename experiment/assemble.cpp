#include "experiment/assemble.h"

#include <algorithm>

#include "platform/platform_config.h"

namespace csdsim::experiment {

csd_model::DriveConfig drive_config(const scenario::Scenario& s) {
  csd_model::DriveConfig config = csd_model::drive_config(s.platform.device, s.seed);
  // A namespace that a workload does not use keeps what its FTL needs to exist.
  config.kv_share = s.platform.device.has_engine() ? s.workload->kv_share(s) : 0;
  config.data = s.simulation.data;
  return config;
}

platform::PlatformParams platform_params(const scenario::Scenario& s) {
  return platform::platform_params(s.platform, drive_config(s));
}

host::LinkModel gpu_link_of(const scenario::Scenario& s) {
  const nvme::GpuLinkConfig& link = s.platform.gpu.link;
  return {.bandwidth = std::min(link.payload_bandwidth(), s.platform.host.memory_bandwidth), .latency = link.latency};
}

}  // namespace csdsim::experiment
