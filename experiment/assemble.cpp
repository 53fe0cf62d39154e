#include "experiment/assemble.h"

#include <algorithm>

#include "platform/platform_config.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

/// A namespace that a workload does not use keeps what its FTL needs to exist.
double kv_share(const Scenario& s) {
  if (!s.platform.device.has_engine() || s.block_only()) return 0;
  const auto* generation = std::get_if<scenario::GenerationWorkload>(&s.workload);
  return generation != nullptr && generation->background ? 1 - generation->background->capacity_share.value() : 1;
}

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

GenerationSetup generation_setup(const Scenario& s, std::vector<std::uint32_t> prompt_tokens) {
  const auto& workload = std::get<scenario::GenerationWorkload>(s.workload);
  GenerationSetup setup;
  setup.platform = platform_params(s);
  setup.gpu = s.platform.gpu;
  const nvme::GpuLinkConfig& gpu_link = s.platform.gpu.link;
  setup.gpu_link = {.bandwidth = std::min(gpu_link.payload_bandwidth(), s.platform.host.memory_bandwidth),
                    .latency = gpu_link.latency};
  setup.granularity = s.platform.device.nvme.granularity;
  if (workload.background) setup.queues_of_others = 1;
  setup.plan.system.through_host = s.platform.device.nvme.transfer == nvme::DataPath::host;
  setup.plan.model = s.model.shape();
  setup.plan.workload = {.prompt_tokens = std::move(prompt_tokens), .output_tokens = workload.output_tokens};
  setup.plan.drives = s.platform.device.count;
  const auto sequences = static_cast<std::uint32_t>(setup.plan.workload.prompt_tokens.size());
  setup.plan.system.mini_batches = workload.mini_batches.value_or(std::min<std::uint32_t>(2, sequences));
  if (const auto* sparf = std::get_if<scenario::InstinferSparf>(&s.system)) {
    setup.system = std::string(scenario::InstinferSparf::kKind);
    setup.plan.system.sparf = scenario::sparf_parameters(*sparf);
  } else {
    setup.system = std::string(scenario::InstinferDense::kKind);
  }
  if (s.simulation.sampling) {
    setup.sampling.layers = s.simulation.sampling->layers;
    setup.sampling.steps = s.simulation.sampling->steps;
    setup.sampling.cooldown = setup.plan.system.mini_batches > 1 ? 1 : 0;
  } else {
    setup.sampling.off = true;
  }
  return setup;
}

}  // namespace csdsim::experiment
