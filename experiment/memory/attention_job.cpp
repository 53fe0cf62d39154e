#include "experiment/memory/attention_job.h"

namespace csdsim::experiment {

engine::HeadJob attention_job(const host::OffloadSystem& system, const host::ModelShape& model, std::uint32_t context) {
  engine::HeadJob job{.group = model.heads / model.kv_heads};
  if (const auto budget = system.traits().method.sparse_budget(model, context)) {
    job.method = Method::sparf;
    job.sparf = {.r = budget->components, .k = budget->tokens, .l = budget->local};
  }
  return job;
}

}  // namespace csdsim::experiment
