#include "host_runtime/core/features/drafts/drafts.h"

#include "host_runtime/core/carried/decoder_data.h"

namespace csdsim::host {

CarriedFeature* Drafts::carry(DecoderData& data, const CheckpointSources&) {
  return &drafts_.emplace(most_, data.outputs());
}

std::vector<FeatureMetric> Drafts::metrics() const {
  return {{.info = {.name = "tokens_per_step",
                    .unit = "1",
                    .meaning = "With drafts: tokens of a sequence per decode step."},
           .value = [](const FeatureCounts& c) -> std::optional<double> {
             if (c.decode_steps == 0 || c.decode_steps >= c.decode_tokens) return std::nullopt;
             return c.decode_tokens / c.decode_steps;
           }},
          {.info = {.name = "draft_tokens_verified",
                    .unit = "tokens",
                    .meaning = "With drafts and real tokens: drafts that the model has checked."},
           .value = [this](const FeatureCounts&) -> std::optional<double> {
             return drafts_ ? std::optional(double(drafts_->all_verified())) : std::nullopt;
           },
           .whole = true},
          {.info = {.name = "draft_acceptance",
                    .unit = "1",
                    .meaning = "With drafts and real tokens: share of the checked drafts that are accepted."},
           .value = [this](const FeatureCounts&) -> std::optional<double> {
             if (!drafts_ || drafts_->all_verified() == 0) return std::nullopt;
             return double(drafts_->all_accepted()) / double(drafts_->all_verified());
           }}};
}

}  // namespace csdsim::host
