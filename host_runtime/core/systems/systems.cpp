#include "host_runtime/core/systems/systems.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "host_runtime/core/features/lost_kv/lost_kv.h"
#include "host_runtime/core/systems/chosen_rows/chosen_rows_systems.h"
#include "host_runtime/core/systems/deepspeed_host/deepspeed_host.h"
#include "host_runtime/core/systems/flexgen_sparq/flexgen_sparq.h"
#include "host_runtime/core/systems/flexgen_ssd/flexgen_ssd.h"
#include "host_runtime/core/systems/gpu_only/gpu_only.h"
#include "host_runtime/core/systems/hf_accelerate/hf_accelerate.h"
#include "host_runtime/core/systems/hillinfer/hillinfer.h"
#include "host_runtime/core/systems/hilos/hilos.h"
#include "host_runtime/core/systems/host_kv/host_kv.h"
#include "host_runtime/core/systems/hybrid/hybrid.h"
#include "host_runtime/core/systems/in_drive_ffn/in_drive_ffn.h"
#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "host_runtime/core/systems/kvpr/kvpr.h"
#include "host_runtime/core/systems/llm_in_a_flash/llm_in_a_flash.h"

namespace csdsim::host {

SystemKinds builtin_systems() {
  SystemKinds systems("offload system");
  systems.add<InstinferDense>();
  systems.add<InstinferSparf>();
  systems.add<GpuOnly>();
  systems.add<HostKv>();
  systems.add<DeepSpeedHost>();
  systems.add<HfAccelerate>();
  systems.add<FlexGenSsd>();
  systems.add<FlexGenSparq>();
  systems.add<Kvpr>();
  systems.add<LlmInAFlash>();
  systems.add<InDriveFfn>();
  systems.add<Hillinfer>();
  systems.add<Hilos>();
  systems.add<Hybrid>();
  systems.add<H2o>();
  systems.add<Infinigen>();
  systems.add<Leoam>();
  return systems;
}

std::string_view drive_system_of(const SystemKinds& systems, std::string_view method) {
  std::vector<std::string> methods;
  for (const auto& item : systems.items()) {
    const std::unique_ptr<OffloadSystem> system = item.value();
    if (system->needs({}).kv != Place::drive_kv()) continue;
    if (system->traits().method.name == method) return item.name;
    if (std::find(methods.begin(), methods.end(), system->traits().method.name) == methods.end())
      methods.emplace_back(system->traits().method.name);
  }
  throw UserError(fmt::format("no offload system runs attention method '{}' in the drive; supported: {}",
                              printable(method), join(methods)));
}

RunFeatures features_of(const OffloadSystem& system, const PlannerInputs& inputs, LostKv lost_kv) {
  RunFeatures features = system.features(inputs);
  if (lost_kv != LostKv::stop) features.add(std::make_unique<LostTokens>(lost_kv, inputs.model));
  return features;
}

}  // namespace csdsim::host
