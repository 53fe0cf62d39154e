#include "host_runtime/core/systems/kvpr/kvpr.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "host_runtime/core/systems/software_parameters.h"

namespace csdsim::host {

void Kvpr::describe(ParamVisitor& v) {
  v.param("activations", activations, "Where the activations of the prompt are kept.",
          paper("KVPR 3.2: the abstract transfers them, equation 10 leaves the transfer out row by row"));
  v.optional("recomputed_share", recomputed_share, "solved for every step", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of the tokens in the cache whose K and V every step recomputes; at most the prompt.",
             paper("KVPR 3.2, equations 10 and 11"));
  v.param("split_step", split_step, {1, 65536},
          "The recomputed tokens of a mini-batch are a multiple of this number, which matrix products may prefer.",
          assumed("any number"));
  v.param("hides_recomputation", hides_recomputation,
          "W_K and W_V are copied before the other weights of a layer, and the recomputation starts when they are "
          "there; if not, when all weights of the layer are there.",
          paper("KVPR 3.3 and table 2"));
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way to the host in the prefill, copied or "
          "recomputed ahead in decode.",
          paper("KVPR 3.3: double buffering"));
  describe_kv(v, kv);
  describe_weights(v, weights);
  describe_software(v, software);
}

void Kvpr::check(config::Problems& problems, const SystemContext& context) const {
  check_kv(problems, context, kv);
  check_weights(problems, context, weights);
  if (weights.on_host == Ratio{0, 1} && !hides_recomputation)
    problems.refuse_unused("system.hides_recomputation", "system.weights_on_host", "all weights stay in GPU memory");
}

void Kvpr::choose(const ModelShape&, const BatchLengths& workload, const PlatformRates& rates) {
  rates_ = {.link = rates.host_to_gpu, .gemm = rates.gpu_gemm, .by_rows = rates.gpu.gemm_by_rows};
  shortest_prompt_ = std::ranges::min(workload.prompts());
}

std::vector<std::string> Kvpr::unused_parameters() const {
  std::vector<std::string> unused = unused_weight_parameters(weights);
  if (weights.on_host == Ratio{0, 1}) unused.emplace_back("hides_recomputation");
  add_unused_kv(kv, unused);
  return unused;
}

SystemNeeds Kvpr::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  SystemNeeds needs = needs_kv_on_host(run, weights, kv);
  std::uint64_t prompts = 0;
  for (const Request& request : run.workload.requests) prompts += request.prompt;
  needs.residents.push_back({activations == Place::host() ? Place::host() : Place::gpu(), "activations of the prompts",
                             Bytes{std::uint64_t{model.width} * model.element_bytes * model.layers * prompts}});
  return needs;
}

std::unique_ptr<Planner> Kvpr::plan(const PlannerInputs& inputs) const {
  if (!rates_ && !recomputed_share) throw InternalError("the split of KVPR is solved from rates that nobody has set");
  WeightPlacement placement = weights;
  placement.kv_first = hides_recomputation && weights.on_host > Ratio{0, 1};
  return std::make_unique<KvprPlanner>(inputs,
                                       KvprPlan{.activations = activations,
                                                .share = recomputed_share,
                                                .split_step = split_step,
                                                .hides_recomputation = hides_recomputation,
                                                .kv_buffers = kv_buffers,
                                                .rates = rates_.value_or(SplitRates{}),
                                                .format = kv.rows(),
                                                .software = software},
                                       placement);
}

bool Kvpr::needs_rates(const ModelShape& model) const {
  const SplitCosts token = split_costs(model, activations);
  return !recomputed_share && token.activations < token.kv;
}

OffloadPlan Kvpr::stream_plan(const ModelShape& model, const std::optional<StreamRates>& rates) const {
  refuse_software(software);
  refuse_few_bits(kv);
  if (needs_rates(model) && !rates)
    throw InternalError("the split of KVPR is solved from rates that nobody has measured");
  const bool on_host = all_weights_on_host(weights);
  SplitRule rule{.costs = split_costs(model, activations), .rates = {}, .share = recomputed_share, .step = split_step};
  if (rates) rule.rates = {.link = rates->link, .gemm = rates->gemm, .by_rows = rates->by_rows};
  if (!rates && !rule.share) rule.share = Ratio{0, 1};
  return {.order = on_host ? LayerOrder::column_by_column : LayerOrder::row_by_row,
          .weights_on_host = on_host,
          .weight_buffers = weights.buffers,
          .kv_buffers = kv_buffers,
          .split = [rule](std::span<const std::uint32_t> cached,
                          std::span<const std::uint32_t> prompts) { return split_of_sequences(rule, cached, prompts); },
          .activations_on_gpu = activations == Place::gpu(),
          .hides_recomputation = hides_recomputation};
}

Remarks Kvpr::remarks(const ModelShape& model, std::uint32_t longest) const {
  if (!rates_ || longest < 2) return {};
  if (recomputed_share) return {{"recomputed_tokens", format_quantity(*recomputed_share) + " of those in the cache"}};
  const SplitCosts token = split_costs(model, activations, kv.rows());
  const std::uint32_t last = longest - 1;
  const auto at = [&](std::uint32_t cached) {
    return split_point(token, *rates_, cached, std::min(shortest_prompt_, cached), 1);
  };
  return {{"recomputed_tokens", fmt::format("{} of {} cached tokens, {} of {} (at most the prompt)",
                                            at(shortest_prompt_), shortest_prompt_, at(last), last)},
          {"most_gain", fmt::format("{:.3f} over copying all K and V, by the rates of link and GPU",
                                    most_split_gain(token, *rates_))}};
}

}  // namespace csdsim::host
