#include "experiment/assemble.h"

#include <algorithm>

#include "csd_model/exported_capacity.h"
#include "platform/platform_config.h"

namespace csdsim::experiment {

namespace {

/// A namespace that a workload does not use keeps what its FTL needs to exist.
double kv_share(const scenario::Scenario& s) { return s.platform.device.has_engine() ? s.workload->kv_share(s) : 0; }

}  // namespace

csd_model::DriveConfig drive_config(const scenario::Scenario& s) {
  csd_model::DriveConfig config = csd_model::drive_config(s.platform.device, s.seed);
  config.kv_share = kv_share(s);
  config.data = s.simulation.data;
  return config;
}

Bytes exported_capacity(const scenario::Scenario& s) {
  return csd_model::exported_capacity(s.platform.device, kv_share(s));
}

std::optional<Bytes> exported_capacity_if_any(const scenario::Scenario& s) {
  return csd_model::exported_capacity_if_any(s.platform.device, kv_share(s));
}

platform::PlatformParams platform_params(const scenario::Scenario& s) {
  return platform::platform_params(s.platform, drive_config(s));
}

host::LinkModel gpu_link_of(const scenario::Scenario& s) {
  const nvme::GpuLinkConfig& link = s.platform.gpu.link;
  return {.bandwidth = std::min(link.payload_bandwidth(), s.platform.host.memory_bandwidth), .latency = link.latency};
}

}  // namespace csdsim::experiment
