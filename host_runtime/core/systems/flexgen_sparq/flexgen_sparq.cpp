#include "host_runtime/core/systems/flexgen_sparq/flexgen_sparq.h"

#include <algorithm>

#include "host_runtime/core/features/head_rows/head_rows_feature.h"

namespace csdsim::host {

void FlexGenSparq::describe(ParamVisitor& v) {
  describe_sparf(v, sparq.budget);
  v.param("written_tokens", sparq.written_tokens, {1, 65'536},
          "Newest tokens of a sequence that stay in host memory; when there are so many, they are written to the files "
          "of tokens and of components together.",
          assumed("one token is 2 B in a row of a component; 64 tokens are 128 B"));
  v.param("kv_buffers", sparq.kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch in the prefill, on their way out.",
          assumed("double buffering, as in FlexGen's schedule"));
  describe_weights(v, weights);
  describe_weights_in_files(v, weights);
  v.param("stores_attention_weights", sparq.stores_attention_weights,
          "The attention of the prefill stores the weights of all pairs of tokens before and after the softmax in GPU "
          "memory.",
          assumed("FlexGen's prefill is not a fused kernel; InstInfer VI-C: its intermediates exceed GPU memory"));
}

void FlexGenSparq::check(config::Problems& problems, const SystemContext& context) const {
  check_sparf(problems, context, sparq.budget);
  check_weights(problems, context, weights);
}

std::vector<std::string> FlexGenSparq::unused_parameters() const {
  std::vector<std::string> unused = unused_sparf_parameters(sparq.budget);
  for (std::string& name : unused_weight_parameters(weights)) unused.push_back(std::move(name));
  return unused;
}

SystemNeeds FlexGenSparq::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  SystemNeeds needs{.kv = Place::drive_blocks(),
                    .residents = weight_residents(model, weights),
                    .files = FilePath::file_system,
                    .written_tokens = sparq.written_tokens,
                    .written_piece = Bytes{model.element_bytes}};
  const std::uint64_t sequences = workload.size();
  const Bytes kv = model.kv_bytes_per_token() * (workload.longest_contexts() + sequences);
  needs.residents.push_back({Place::drive_blocks(), "K and V", kv});
  needs.residents.push_back({Place::drive_blocks(), "K by component", {kv.value / 2}});
  needs.residents.push_back(
      {Place::host(), "K and V of the newest tokens", model.kv_bytes_per_token() * (sequences * sparq.written_tokens)});
  const std::uint64_t elements = sequences * model.layers * model.kv_heads * model.head_dim;
  needs.residents.push_back({Place::gpu(), "means of V", Bytes{4 * elements}});  // fp32
  return needs;
}

RunFeatures FlexGenSparq::features(const PlannerInputs&) const {
  RunFeatures features;
  features.add(std::make_unique<FileRows>());
  return features;
}

std::unique_ptr<Planner> FlexGenSparq::plan(const PlannerInputs& inputs) const {
  return std::make_unique<SparqPlanner>(inputs, sparq, weights);
}

}  // namespace csdsim::host
