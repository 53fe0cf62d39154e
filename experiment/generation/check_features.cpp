#include "experiment/generation/check_features.h"

#include "experiment/assemble.h"
#include "experiment/checkpoint/trained_predictor.h"
#include "host_runtime/core/carried/carried_feature.h"
#include "host_runtime/core/systems/systems.h"

namespace csdsim::experiment {

void check_features(scenario::Checker& c, const GenerationWorkload& work) {
  const scenario::Scenario& s = c.scenario();
  if (!c.readable({"system", "model"})) return;
  const host::PlannerInputs run = planned_run(s, work.lengths());
  const host::SystemTraits traits = s.system->traits();
  const bool carried = s.simulation.data == ftl::DataMode::carried;
  const host::FeatureContext context{.system = s.system.kind(),
                                     .kv_in_drives = s.system->needs(run).kv == host::Place::drive_kv(),
                                     .chooses_tokens = traits.chooses_tokens,
                                     .restores_lost_kv = traits.restores_lost_kv,
                                     .flash_errors = s.platform.device.flash.reliability.has_value(),
                                     .carried = carried,
                                     .requests = work.requests.has_value()};
  const host::CheckpointSources sources{.trained = [&] { return trained_predictor(s); }};
  const host::LostKv lost_kv = s.attention_on_host ? host::LostKv::stop : work.lost_kv;
  for (const auto& feature : host::features_of(*s.system, run, lost_kv)) {
    feature->check_run(c, context);
    if (carried && s.model.path) feature->check(c, sources);
  }
}

}  // namespace csdsim::experiment
