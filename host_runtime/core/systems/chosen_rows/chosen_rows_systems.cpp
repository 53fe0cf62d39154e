#include "host_runtime/core/systems/chosen_rows/chosen_rows_systems.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "host_runtime/core/attention/attention_chunks.h"
#include "host_runtime/core/attention/attention_infinigen.h"
#include "host_runtime/core/features/chosen_rows/chosen_rows_feature.h"

namespace csdsim::host {

void ChosenRowsSystem::describe(ParamVisitor& v) {
  v.param("kv_on_gpu", rows.kv_on_gpu, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of K and V in GPU memory, rounded to whole KV heads.", paper("HillInfer 3.2: a fifth of the tokens"));
  v.param("kv_on_host", rows.kv_on_host, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of K and V in host memory, rounded to whole KV heads; what is neither there nor in GPU memory is in "
          "files on the drives.",
          paper("HillInfer 3.2: three fifths of the tokens"));
  v.param("kv_buffers", rows.kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way out in the prefill, copied ahead in decode.",
          assumed("double buffering, as in FlexGen's schedule"));
  describe_weights(v, weights);
}

namespace {

ChosenRowsPlan chosen(ChosenRowsPlan plan, Ratio ratio, std::uint32_t layers, std::uint32_t whole_layers) {
  plan.tokens = ratio;
  if (layers >= whole_layers || plan.dense_layers == 0) return plan;
  const std::uint64_t dense = std::min(plan.dense_layers, whole_layers);
  plan.tokens =
      Ratio::of((whole_layers - dense) * ratio.numerator + dense * ratio.denominator, whole_layers * ratio.denominator);
  plan.dense_layers = 0;
  return plan;
}

}  // namespace

ChosenRowsPlan ChosenRowsSystem::chosen_rows(const PlannerInputs& inputs) const {
  return chosen(rows, ratio, inputs.model.layers, inputs.whole_layers);
}

RunFeatures ChosenRowsSystem::features(const PlannerInputs& inputs) const {
  RunFeatures features;
  features.add(std::make_unique<FetchedHeadRows>(
      inputs,
      [rows = rows, ratio = ratio](const PlannerInputs& of) {
        return chosen(rows, ratio, of.model.layers, of.whole_layers);
      },
      std::string(method_), MethodSettings{.ratio = ratio}));
  return features;
}

void ChosenRowsSystem::check(config::Problems& problems, const SystemContext& context) const {
  problems.require(rows.kv_on_gpu.value() + rows.kv_on_host.value() <= 1 + 1e-9,
                   {"system.kv_on_gpu", "system.kv_on_host"},
                   fmt::format("system.kv_on_gpu: {} on the GPU and {} on the host are more than all of K and V",
                               format_quantity(rows.kv_on_gpu), format_quantity(rows.kv_on_host)));
  check_weights(problems, context, weights);
}

std::vector<std::string> ChosenRowsSystem::unused_parameters() const { return unused_weight_parameters(weights); }

SystemNeeds ChosenRowsSystem::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  SystemNeeds needs{.kv = Place::gpu(), .residents = weight_residents(model, weights)};
  const ChosenRowsPlan plan = chosen(rows, ratio, model.layers, model.layers);
  const bool speculates = plan.choosing == RowChoosing::speculated;
  // A mini-batch chooses, copies and computes in turn. Whether another computes meanwhile lasts for tens of steps, and
  // depends on all steps before.
  if (plan.choosing == RowChoosing::bounded && run.mini_batches > 1)
    needs.why_all_steps = "for tens of steps its mini-batches hide each other's copies, or do not";
  std::uint64_t kept = 0;
  Bytes keys;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const std::uint32_t longest = workload.length_of(i);
    kept += plan.rows(longest);
    keys +=
        choosing_bytes(plan, costs(model), model, longest) * (model.layers - std::min(model.layers, plan.dense_layers));
  }
  if (!plan.evicts())
    needs.residents.push_back(
        {speculates ? Place::gpu() : Place::host(), speculates ? "partial keys" : "bounds of chunks", keys});
  const Bytes of_head = model.kv_bytes_per_token_and_head() * model.layers;
  for (const KvShard& shard : tier_heads(model.kv_heads, plan.kv_on_gpu, plan.kv_on_host)) {
    needs.kv = shard.tier == Place::gpu()    ? Place::gpu()
               : shard.tier == Place::host() ? Place::host()
                                             : Place::drive_blocks();
    needs.residents.push_back({needs.kv, "K and V", of_head * (shard.heads.count * kept)});
    if (shard.tier != Place::file()) continue;
    needs.files = FilePath::file_system;
    needs.written_tokens = plan.evicts() ? 1 : plan.written_tokens;
    needs.written_piece = model.kv_bytes_per_token_and_head() * needs.written_tokens;
    if (!plan.evicts())
      needs.residents.push_back({Place::host(), "K and V of the newest tokens",
                                 of_head * (shard.heads.count * workload.size() * plan.written_tokens)});
  }
  return needs;
}

std::unique_ptr<Planner> ChosenRowsSystem::plan(const PlannerInputs& inputs) const {
  return std::make_unique<ChosenRowsPlanner>(inputs, chosen_rows(inputs), costs(inputs.model), weights);
}

namespace {

void describe_written_tokens(ParamVisitor& v, ChosenRowsPlan& rows) {
  v.param("written_tokens", rows.written_tokens, {1, 65'536},
          "Newest tokens of a sequence that stay in host memory, of heads in files; when there are so many, they are "
          "written together.",
          assumed("a row of a head is 256 to 512 B; 64 rows are 16 KiB or more"));
}

constexpr const char* kRatioDoc = "Share of the tokens that a step attends to.";
constexpr const char* kRatioSource = "HillInfer 5.2: alpha 0.2";

}  // namespace

H2o::H2o() : ChosenRowsSystem("h2o") { rows.stores_attention_weights = true; }

void H2o::describe(ParamVisitor& v) {
  v.param("ratio", ratio, {Ratio::of(1, 1024), Ratio{1, 1}},
          "Share of the tokens that outlive a step: half of them recent ones, half heavy ones.", paper(kRatioSource));
  ChosenRowsSystem::describe(v);
  v.param("stores_attention_weights", rows.stores_attention_weights,
          "The attention of the prefill stores the weights of all pairs of tokens before and after the softmax in GPU "
          "memory.",
          assumed("H2O sums the weights of a prompt, which a fused kernel does not yield"));
}

Infinigen::Infinigen() : ChosenRowsSystem("infinigen") {
  rows.choosing = RowChoosing::speculated;
  rows.dense_layers = InfinigenOptions{}.dense_layers;
}

void Infinigen::describe(ParamVisitor& v) {
  v.param("ratio", ratio, {Ratio::of(1, 1024), Ratio{1, 1}},
          "Share of the tokens that a step attends to, at most. Timing runs fetch that many.", paper(kRatioSource));
  ChosenRowsSystem::describe(v);
  describe_written_tokens(v, rows);
}

ChoosingCosts Infinigen::costs(const ModelShape& model) const {
  return {.columns = static_cast<std::uint32_t>(infinigen_columns({}, std::max(1U, model.head_dim)))};
}

Leoam::Leoam() : ChosenRowsSystem("leoam") {
  rows.choosing = RowChoosing::bounded;
  rows.unit = ChunkOptions{}.leaf;
}

void Leoam::describe(ParamVisitor& v) {
  v.param("ratio", ratio, {Ratio::of(1, 1024), Ratio{1, 1}}, kRatioDoc, paper(kRatioSource));
  ChosenRowsSystem::describe(v);
  describe_written_tokens(v, rows);
}

ChoosingCosts Leoam::costs(const ModelShape&) const {
  return {.chunk = ChunkOptions{}.chunk, .leaf = ChunkOptions{}.leaf};
}

}  // namespace csdsim::host
