// The feature of systems that verify drafts.
#pragma once

#include <optional>
#include <vector>

#include "host_runtime/core/features/drafts/token_drafts.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// Drafts of carried runs; in others, how many tokens are accepted is a parameter (Speculation).
class Drafts final : public RunFeature {
 public:
  /// `most`: tokens of a draft at most.
  explicit Drafts(std::uint32_t most) : most_(most) {}

  /// Null in runs without data.
  const TokenDrafts* carried() const { return drafts_ ? &*drafts_ : nullptr; }

  CarriedFeature* carry(DecoderData& data, const CheckpointSources&) override;
  std::vector<FeatureMetric> metrics() const override;

 private:
  std::uint32_t most_;
  std::optional<TokenDrafts> drafts_;
};

}  // namespace csdsim::host
