#include "experiment/assemble.h"

#include <algorithm>

#include "platform/platform_config.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

/// A namespace that a workload does not use keeps what its FTL needs to exist.
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
