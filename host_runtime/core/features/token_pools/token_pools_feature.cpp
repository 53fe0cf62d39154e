#include "host_runtime/core/features/token_pools/token_pools_feature.h"

#include "base/error.h"
#include "host_runtime/core/carried/decoder_data.h"

namespace csdsim::host {

const PooledKv* PooledTokens::pools() const {
  if (carried_) return &carried_->pools();
  return modelled_ ? &modelled_->pools() : nullptr;
}

void PooledTokens::begin(const ModelledSources& sources) {
  if (!sources.tokens) throw InternalError("pools of tokens without data need a model of the important tokens");
  modelled_.emplace(plan_.value(), model_, sources.tokens());
}

CarriedFeature* PooledTokens::carry(DecoderData& data, const CheckpointSources&) {
  carried_ = std::make_unique<CarriedPools>(plan_.value(), data.decoder().config(), data.tensors());
  return carried_.get();
}

void PooledTokens::skip_to(std::uint32_t step, std::uint32_t layers, std::span<const std::uint32_t> prompts) {
  if (modelled_) modelled_->skip_to(step, layers, prompts);
}

/// A drive's part of the logs.
std::vector<StoredTokens> PooledTokens::stored(DriveIndex drive, SequenceId sequence, LayerId layer) const {
  const PooledKv& of = *pools();
  const std::uint32_t lists = of.plan().lists, heads = model_.kv_heads / lists;
  std::vector<StoredTokens> all;
  for (std::uint32_t list = 0; list < lists; ++list)
    all.push_back(
        {{KvHead{list * heads}, heads}, of.logged(of.pools({sequence, layer, list}).log().size(), drive.value)});
  return all;
}

std::optional<Work> PooledTokens::resolve(const Operation& op) {
  if (carried_) return carried_->resolve(op);
  return modelled_ ? modelled_->resolve(op) : std::nullopt;
}

void PooledTokens::count(std::vector<double>& totals) const {
  const PooledKv* const of = pools();
  const PoolCounts counts = of != nullptr ? of->counts() : PoolCounts{};
  for (const std::uint64_t count :
       {counts.promoted, counts.demoted, counts.written, counts.important_hot, counts.important_cold,
        counts.host_scores, counts.drive_scores, counts.wasted_scores})
    totals.push_back(double(count));
}

std::vector<FeatureMetric> PooledTokens::metrics() const {
  using Value = std::optional<double>;
  const auto per_step = [](std::size_t count) {
    return [count](const FeatureCounts& c) -> Value {
      if (c.decode[kHostScores] + c.decode[kDriveScores] <= 0) return std::nullopt;
      return c.decode[count] / c.decode_steps;
    };
  };
  const auto share = [](double part, double all) -> Value { return all > 0 ? Value(part / all) : std::nullopt; };
  return {
      {.info = {.name = "tokens_promoted_per_step",
                .unit = "tokens",
                .meaning =
                    "Pools of tokens: tokens that move from drives to host memory per decode step, over all layers "
                    "and sequences."},
       .value = per_step(kPromoted)},
      {.info = {.name = "tokens_demoted_per_step",
                .unit = "tokens",
                .meaning = "Pools of tokens: tokens whose place in host memory others take, per decode step."},
       .value = per_step(kDemoted)},
      {.info = {.name = "tokens_written_per_step",
                .unit = "tokens",
                .meaning = "Pools of tokens: tokens written to drives per decode step."},
       .value = per_step(kWritten)},
      {.info = {.name = "important_tokens_hot_share",
                .unit = "1",
                .meaning = "Pools of tokens: share of the tokens attended to that were in host memory."},
       .value = [](const FeatureCounts& c) -> Value {
         if (c.decode[kHostScores] + c.decode[kDriveScores] <= 0) return std::nullopt;
         const double important = c.decode[kImportantHot] + c.decode[kImportantCold];
         return important > 0 ? c.decode[kImportantHot] / important : 1;
       }},
      {.info = {.name = "important_share_of_hot_tokens",
                .unit = "1",
                .meaning = "Pools of tokens: share of the tokens in host memory that are attended to."},
       .value = [share](const FeatureCounts& c) { return share(c.decode[kImportantHot], c.decode[kHostScores]); }},
      {.info = {.name = "important_share_of_cold_tokens",
                .unit = "1",
                .meaning = "Pools of tokens: share of the tokens in drives that are attended to."},
       .value =
           [share](const FeatureCounts& c) {
             return share(c.decode[kImportantCold], c.decode[kDriveScores] - c.decode[kWastedScores]);
           }},
      {.info = {.name = "wasted_scores_share",
                .unit = "1",
                .meaning = "Pools of tokens: share of the drives' scores that are of tokens in host memory."},
       .value = [share](const FeatureCounts& c) { return share(c.decode[kWastedScores], c.decode[kDriveScores]); }}};
}

}  // namespace csdsim::host
