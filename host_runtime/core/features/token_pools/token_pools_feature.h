// The feature of systems that keep tokens in host memory and in drives.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "host_runtime/core/features/token_pools/carried_pools.h"
#include "host_runtime/core/features/token_pools/pooled_kv.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// Chooses the tokens in host memory and in the drives, those that matter in a step, and those that change places.
class PooledTokens final : public RunFeature {
 public:
  /// The counts, over all sequences and layers.
  enum Count : std::size_t {
    kPromoted,
    kDemoted,
    kWritten,
    kImportantHot,
    kImportantCold,
    kHostScores,
    kDriveScores,
    kWastedScores
  };

  /// Without a plan (before it is chosen) only the metrics are known.
  PooledTokens(std::optional<PooledPlan> plan, const ModelShape& model) : plan_(std::move(plan)), model_(model) {}

  void begin(const ModelledSources& sources) override;
  CarriedFeature* carry(DecoderData& data, const CheckpointSources&) override;
  void skip_to(std::uint32_t step, std::uint32_t layers, std::span<const std::uint32_t> prompts) override;
  std::vector<StoredTokens> stored(DriveIndex drive, SequenceId sequence, LayerId layer) const override;
  std::optional<Work> resolve(const Operation& op) override;
  void count(std::vector<double>& totals) const override;
  std::vector<FeatureMetric> metrics() const override;

 private:
  /// Null before the run.
  const PooledKv* pools() const;

  std::optional<PooledPlan> plan_;
  ModelShape model_;
  std::optional<ModelledPools> modelled_;
  std::unique_ptr<CarriedPools> carried_;
};

}  // namespace csdsim::host
