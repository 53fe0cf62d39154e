#include "host_runtime/core/systems/hillinfer/hillinfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "host_runtime/core/features/token_pools/token_pools_feature.h"
#include "host_runtime/core/machine/rates.h"

namespace csdsim::host {

namespace {

std::uint64_t longest_of(const BatchLengths& workload) {
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < workload.size(); ++i) longest = std::max<std::uint64_t>(longest, workload.length_of(i));
  return longest;
}

}  // namespace

void Hillinfer::describe(ParamVisitor& v) {
  v.param("ratio", ratio, {Ratio::of(1, 1024), Ratio{1, 1}}, "Share of the tokens that a step attends to (alpha).",
          paper("HillInfer 5.2: 0.2"));
  v.param("pinned", pinned, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of the tokens, the newest ones, that stay in host memory.", paper("HillInfer 4.2: 10 to 20 %"));
  v.param("kept_hot", kept_hot, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of the tokens, those with the most hits, that come to host memory.",
          paper("HillInfer 4.2: the share that is attended to"));
  v.param("chunk", chunk, {1, 1'048'576}, "Tokens of a sequence that the drive scores in one operation.",
          assumed("HillInfer 4.2 states none"));
  v.param(
      "streamed", streamed,
      "Scores of a chunk travel while the next chunk is scored, and are merged when they arrive; if not, one operation "
      "scores all tokens of the drive.",
      paper("HillInfer 4.1"));
  v.param("prefetch", prefetch,
          "Tokens of the next layer are scored and fetched under this one, by queries from the input of this one; if "
          "not, each layer's own queries score them first.",
          paper("HillInfer 4.3: the next layer is evaluated and prefetched; how its queries are known is not stated: "
                "as in InfiniGen"));
  v.param("precision", precision, "Arithmetic of the scores; K and V stay in fp16.",
          assumed("the most exact; HillInfer 4.4 has INT8 and INT4, too"));
  v.param(
      "aggregate", aggregate,
      "How the scores of the query heads become one list per layer, or one per KV head, each with pools of its own.",
      paper("HillInfer 4.4: the hardware sums them"));
  v.optional("host_share", host_share, "solved from the rates of both sides", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of the longest context that is in host memory.", paper("HillInfer 4.3, equation 4"));
  v.optional("important_hot", important_hot, "ratio", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of the tokens in host memory that a step attends to, for solving host_share.",
             assumed("HillInfer 4.3 takes the same share on both sides; results of a run state both"));
  v.optional("important_cold", important_cold, "ratio", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of the tokens in the drive that a step attends to, for solving host_share.",
             assumed("HillInfer 4.3 takes the same share on both sides; results of a run state both"));
  v.param("pools", pools, "Which tokens change places after a step.", paper("HillInfer 4.2"));
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch in the prefill, on their way out.",
          assumed("double buffering, as in FlexGen's schedule"));
  describe_weights(v, weights);
}

void Hillinfer::check(config::Problems& problems, const SystemContext& context) const {
  check_weights(problems, context, weights);
  problems.require(
      context.precisions.empty() || std::ranges::find(context.precisions, precision) != context.precisions.end(),
      {"system.precision", "platform.device.engine.scoring"},
      fmt::format("system.precision: the engine of the drive does not score in {0}; give it "
                  "platform.device.engine.scoring.{0}_lanes",
                  csdsim::name_of(precision)));
  const double least = pinned.value() + (pools == PoolPolicy::naive ? ratio : kept_hot).value();
  problems.require(
      !host_share || host_share->value() >= std::min(1.0, least) - 1e-9,
      {"system.host_share", "system.pinned", "system.kept_hot", "system.ratio"},
      fmt::format(
          "system.host_share: {} of the tokens are in host memory, which has to hold {}: those that "
          "are pinned and those that come to it",
          format_quantity(host_share.value_or(Ratio{0, 1})),
          format_quantity(Ratio::of(static_cast<std::uint64_t>(std::llround(std::min(1.0, least) * 1000)), 1000))));
  for (const char* const name : {"important_hot", "important_cold"})
    if (host_share) problems.refuse_unused(fmt::format("system.{}", name), "system.host_share", "host_share is given");
  if (!streamed) problems.refuse_unused("system.chunk", "system.streamed", "one operation scores all tokens");
  if (pools == PoolPolicy::naive)
    problems.refuse_unused("system.kept_hot", "system.pools", "the important tokens come to host memory");
}

std::vector<std::string> Hillinfer::unused_parameters() const {
  std::vector<std::string> unused = unused_weight_parameters(weights);
  if (host_share) unused.insert(unused.end(), {"important_hot", "important_cold"});
  if (!streamed) unused.emplace_back("chunk");
  if (pools == PoolPolicy::naive) unused.emplace_back("kept_hot");
  return unused;
}

PoolRates Hillinfer::pool_rates(const ModelShape& model) const {
  const PlatformRates& rates = rates_.value();
  const auto rate = [](double bytes) {
    return Bandwidth{std::max<std::uint64_t>(1, static_cast<std::uint64_t>(bytes))};
  };
  // A score reads K, half of the bytes, and takes 2 d operations per query head.
  const double flops_per_byte = static_cast<double>(model.heads) * 2 * model.head_dim /
                                static_cast<double>(model.kv_bytes_per_token_and_layer().value);
  const double keys_on_host = 2 * per_second(rates.host_memory_bandwidth);
  const double products_on_host = static_cast<double>(rates.host_attention.flop_per_second) / flops_per_byte;
  const DriveRates& drive = rates.drive;
  const double row = static_cast<double>(model.head_dim) * model.element_bytes;
  const double unit =
      drive.scores[static_cast<std::size_t>(precision)] * model.element_bytes * model.kv_heads / model.heads;
  const double keys_in_drive = std::min(per_second(drive.reads), unit);
  // Share of the rows in a read that are wanted; reads without wanted rows are not made.
  const double chosen = std::max(1e-6, pool_shares().cold.value());
  const double rows = std::max(1.0, bytes(drive.fetch) / row);
  const double useful = chosen / (1 - std::pow(1 - chosen, rows));
  const double fetched = std::min(useful * per_second(drive.fetches), per_second(drive.link));
  return {.host_scores = rate(std::min(keys_on_host, products_on_host)),
          .drive_scores = rate(rates.drives * 2 * keys_in_drive),
          .host_link = rates.host_to_gpu,
          .drive_link = rate(rates.drives * fetched),
          .path = rates.through_host ? ColdPath::staged : ColdPath::direct};
}

PoolShares Hillinfer::pool_shares() const { return {important_hot.value_or(ratio), important_cold.value_or(ratio)}; }

std::uint64_t Hillinfer::least_hot(std::uint64_t context) const {
  const std::uint64_t moved = pools == PoolPolicy::naive ? TokenBudget(ratio).at(context) : ceil_of(kept_hot, context);
  return std::min(context, ceil_of(pinned, context) + moved);
}

Bytes Hillinfer::passing(const ModelShape& model, const BatchLengths& workload) const {
  std::uint64_t prompts = 0;
  for (const Request& request : workload.requests) prompts += request.prompt;
  // A layer's K and V, and the copy from which the drive takes those that start cold.
  return model.kv_bytes_per_token_and_layer() * (2 * prompts * std::min(kv_buffers + 1, model.layers));
}

std::optional<std::uint64_t> Hillinfer::hot_tokens_of(const ModelShape& model, const BatchLengths& workload) const {
  const std::uint64_t longest = longest_of(workload);
  if (host_share) return std::max(host_share->round_of(longest), least_hot(longest));
  if (!rates_) return std::nullopt;
  Bytes used = passing(model, workload);
  for (const Resident& resident : weight_residents(model, weights))
    if (resident.home == Place::host()) used += resident.bytes;
  const Bytes free = rates_->host_memory > used ? rates_->host_memory - used : Bytes{};
  const std::uint64_t most = free.value / (model.kv_bytes_per_token().value * workload.batch());
  const std::uint64_t bound = std::min(longest, most > 0 ? most - 1 : 0), least = least_hot(longest);
  return std::max(hot_tokens(pool_rates(model), pool_shares(), longest, bound), least);
}

SystemNeeds Hillinfer::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  SystemNeeds needs{.kv = Place::drive_kv(), .residents = weight_residents(model, weights), .shard = ShardBy::token};
  if (workload.requests.empty()) return needs;
  const std::optional<std::uint64_t> hot = hot_tokens_of(model, workload);
  if (!hot) return needs;
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < workload.size(); ++i) tokens += std::min<std::uint64_t>(*hot + 1, workload.length_of(i));
  needs.residents.push_back({Place::host(), "K and V of hot tokens", model.kv_bytes_per_token() * tokens});
  needs.residents.push_back({Place::host(), "K and V of prompts on their way to the drive", passing(model, workload)});
  return needs;
}

RunFeatures Hillinfer::features(const PlannerInputs& inputs) const {
  RunFeatures features;
  const bool solved = host_share || rates_;
  features.add(
      std::make_unique<PooledTokens>(solved ? std::optional(pooled_plan(inputs)) : std::nullopt, inputs.model));
  return features;
}

PooledPlan Hillinfer::pooled_plan(const PlannerInputs& inputs) const {
  ModelShape whole = inputs.model;
  if (inputs.whole_layers > 0) whole.layers = inputs.whole_layers;
  const std::optional<std::uint64_t> hot = hot_tokens_of(whole, inputs.workload);
  if (!hot) throw InternalError("the split of HillInfer is solved from rates that nobody has set");
  return PooledPlan{.chosen = ratio,
                    .pools = {.hot_tokens = std::max<std::uint64_t>(2, *hot + 1),
                              .pinned = pinned,
                              .kept_hot = pools == PoolPolicy::naive ? Ratio{0, 1} : kept_hot,
                              .policy = pools},
                    .chunk = streamed ? chunk : 0,
                    .precision = precision,
                    .aggregate = aggregate,
                    .staged = inputs.through_host,
                    .drives = inputs.drives,
                    .lists = aggregate == ScoreAggregate::per_head ? inputs.model.kv_heads : 1,
                    .kv_buffers = kv_buffers};
}

std::unique_ptr<Planner> Hillinfer::plan(const PlannerInputs& inputs) const {
  return std::make_unique<HillinferPlanner>(inputs, pooled_plan(inputs), prefetch, weights);
}

SystemMethod Hillinfer::method() const {
  // By precision, aggregate and prefetch, in the order of their enumerations.
  constexpr std::string_view kMethods[3][3][2] = {
      {{"fp16", "fp16-ahead"}, {"fp16-max", "fp16-max-ahead"}, {"fp16-per-head", "fp16-per-head-ahead"}},
      {{"int8", "int8-ahead"}, {"int8-max", "int8-max-ahead"}, {"int8-per-head", "int8-per-head-ahead"}},
      {{"int4", "int4-ahead"}, {"int4-max", "int4-max-ahead"}, {"int4-per-head", "int4-per-head-ahead"}}};
  return SystemMethod::of_ratio(
      kMethods[static_cast<std::size_t>(precision)][static_cast<std::size_t>(aggregate)][prefetch ? 1 : 0], ratio);
}

Remarks Hillinfer::remarks(const ModelShape& model, std::uint32_t longest) const {
  if (!rates_ || host_share) return {};
  const PoolRates rates = pool_rates(model);
  const PoolShares shares = pool_shares();
  const double beta = balanced_pools(rates, shares);
  const auto gigabytes = [](Bandwidth b) { return per_second(b) * 1e-9; };
  return {
      {"host_share_by_rates",
       fmt::format("{:.3f} of {} tokens (beta {:.3f}: f_c {:.1f}, f_s {:.2f}, B_c {:.1f}, B_s {:.2f} GB/s of K and V)",
                   beta / (1 + beta), longest, beta, gigabytes(rates.host_scores), gigabytes(rates.drive_scores),
                   gigabytes(rates.host_link), gigabytes(rates.drive_link))}};
}

}  // namespace csdsim::host
