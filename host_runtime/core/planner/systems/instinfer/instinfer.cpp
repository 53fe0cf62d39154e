#include "host_runtime/core/planner/systems/instinfer/instinfer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/quantity.h"

namespace csdsim::host {

namespace {

void describe_common(ParamVisitor& v, DriveMethod& stated, std::uint32_t& kv_buffers, ShardBy& shard) {
  v.param("method", stated, "Repeats the method; must agree with kind.", paper("InstInfer VI-A"));
  v.param(
      "kv_buffers", kv_buffers, {1, 1024},
      "Layers whose K and V the GPU holds per mini-batch during the prefill. When all are in use, the GPU waits until "
      "the drives have accepted the oldest.",
      assumed("double buffering; InstInfer states no number"));
  v.param("shard", shard,
          "What several drives divide: KV heads, or the tokens of every head, whose partial outputs the GPU merges by "
          "their log-sum-exp. The same with one drive. SparF takes head only.",
          paper("InstInfer IV-D: heads; token is split-K attention as in FlashDecoding"));
}

void check_method(config::Problems& problems, DriveMethod stated, DriveMethod own, std::string_view kind) {
  problems.require(stated == own, {"system.method", "system.kind"},
                   fmt::format("system.method: {} disagrees with system.kind {}", csdsim::name_of(stated), kind));
}

/// InstInfer IV-B: weights stay on the GPU, keys and values in the drives.
SystemNeeds instinfer_needs(const ModelShape& model, bool component_major, ShardBy shard) {
  return {.kv = Home::drive_kv,
          .component_major = component_major,
          .residents = {{Home::gpu, "weights", model.weight_bytes()}},
          .shard = shard};
}

}  // namespace

void InstinferDense::describe(ParamVisitor& v) { describe_common(v, stated, kv_buffers, shard); }

void InstinferDense::check(config::Problems& problems, const SystemContext&) const {
  check_method(problems, stated, DriveMethod::dense, kKind);
}

SystemNeeds InstinferDense::needs(const ModelShape& model, const BatchLengths&) const {
  return instinfer_needs(model, false, shard);
}

std::unique_ptr<Planner> InstinferDense::plan(const PlannerInputs& inputs) const {
  return std::make_unique<InstInfer>(inputs, kv_buffers, shard);
}

void InstinferSparf::describe(ParamVisitor& v) {
  describe_common(v, stated, kv_buffers, shard);
  v.param("ratio", sparf.ratio, {Ratio::of(1, 1024), Ratio{1, 1}}, "Compression ratio.", paper("InstInfer VI-A: 1/8"));
  v.param("ratio_mode", sparf.mode, "What the ratio applies to.",
          assumed("the paper does not define it; both readings are offered"));
  v.optional("r", sparf.r, "auto", {1, 1024}, "Components of q that approximate the scores; auto follows from ratio.",
             assumed("follows from ratio"));
  v.optional("k", sparf.k, "auto", {1, 16'777'216}, "Tokens attended to; auto follows from ratio.",
             assumed("follows from ratio"));
  v.optional("l", sparf.local, "auto", {0, 16'777'216},
             "Newest tokens that are always attended to, counted in k; auto is k/4.",
             paper("SparQ (arXiv 2312.04985), as recalled: l = k/4"));
}

void InstinferSparf::check(config::Problems& problems, const SystemContext& context) const {
  check_method(problems, stated, DriveMethod::sparf, kKind);
  problems.require(shard == ShardBy::head, {"system.shard", "system.kind"},
                   "system.shard: token: SparF chooses k of all tokens of a head. A choice by each drive among its own "
                   "tokens would be another method; a choice over all drives takes a second exchange of scores, which "
                   "is not modelled. Use shard: head, or instinfer-dense");
  for (const std::string& unused : unused_parameters())
    problems.refuse_unused(fmt::format("system.{}", unused), problems.stronger("system.r", "system.k"),
                           "r and k are both given");
  const std::uint32_t d = context.head_dim;
  if (sparf.r && d > 0)
    problems.require(*sparf.r <= d, {"system.r", "model.head_dim"},
                     fmt::format("system.r: {} components of a head of {}", *sparf.r, d));
  if (d > 0 && (!sparf.r || *sparf.r <= d)) {
    try {
      SparfBudget(sparf, d);
    } catch (const UserError& e) {
      problems.error_at("system.ratio", e.what());
    }
  }
  if (sparf.k && sparf.local)
    problems.require(
        *sparf.local <= *sparf.k, {"system.l", "system.k"},
        fmt::format("system.l: {} newest tokens do not fit into the {} tokens attended", *sparf.local, *sparf.k));
}

std::vector<std::string> InstinferSparf::unused_parameters() const {
  if (sparf.r && sparf.k) return {"ratio", "ratio_mode"};
  return {};
}

SystemNeeds InstinferSparf::needs(const ModelShape& model, const BatchLengths&) const {
  return instinfer_needs(model, true, shard);
}

std::unique_ptr<Planner> InstinferSparf::plan(const PlannerInputs& inputs) const {
  return std::make_unique<InstInfer>(inputs, kv_buffers, shard, sparf);
}

MethodSettings InstinferSparf::method_settings() const {
  return {.ratio = sparf.ratio,
          .meaning = sparf.mode == RatioMode::traffic ? RatioMeaning::traffic : RatioMeaning::tokens,
          .r = sparf.r,
          .k = sparf.k,
          .local = sparf.local};
}

std::vector<std::pair<std::string, std::string>> InstinferSparf::parameters_of(const MethodSettings& settings) const {
  std::vector<std::pair<std::string, std::string>> parameters;
  if (!settings.r || !settings.k) {
    parameters.emplace_back("ratio", format_quantity(settings.ratio));
    const RatioMode mode = settings.meaning == RatioMeaning::traffic ? RatioMode::traffic : RatioMode::uniform;
    parameters.emplace_back("ratio_mode", csdsim::name_of(mode));
  }
  const auto add = [&](const char* name, std::optional<std::uint32_t> value) {
    if (value) parameters.emplace_back(name, std::to_string(*value));
  };
  add("r", settings.r);
  add("k", settings.k);
  add("l", settings.local);
  return parameters;
}

std::optional<SparseBudget> InstinferSparf::sparse_budget(const ModelShape& model, std::uint32_t context) const {
  const SparfBudget budget(sparf, model.head_dim);
  return SparseBudget{
      .components = budget.components(), .tokens = budget.top_k(context), .local = budget.local(context)};
}

std::vector<std::pair<std::string, std::string>> InstinferSparf::remarks(const ModelShape& model,
                                                                         std::uint32_t longest) const {
  return {{"sparf", SparfBudget(sparf, model.head_dim).describe(longest)}};
}

}  // namespace csdsim::host
