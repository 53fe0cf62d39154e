#include "experiment/assemble.h"

#include <algorithm>

#include "platform/platform_config.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

/// Share of the erase blocks that the KV namespace gets; 0 leaves it the minimum that its FTL needs.
double kv_share(const Scenario& s) { return s.platform.device.has_engine() ? s.workload->kv_share() : 0; }

}  // namespace

csd_model::DriveConfig drive_config(const Scenario& s) {
  csd_model::DriveConfig config = csd_model::drive_config(s.platform.device, s.seed);
  config.kv_share = kv_share(s);
  config.data = s.simulation.data == scenario::DataMode::carried ? ftl::DataMode::carried : ftl::DataMode::timing;
  return config;
}

platform::PlatformParams platform_params(const Scenario& s) {
  return platform::platform_params(s.platform, drive_config(s));
}

}  // namespace csdsim::experiment
