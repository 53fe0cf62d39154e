// The feature of systems whose feed-forward weights are in flash.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_runtime/core/features/neurons/carried_neurons.h"
#include "host_runtime/core/features/neurons/flash_neurons.h"
#include "host_runtime/core/features/neurons/neuron_data.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// Weights in the block namespaces of drives: which neurons a step reads, what it reads and how long that takes.
class Neurons final : public RunFeature {
 public:
  /// The counts: seconds with a read of weights, or with a network in a drive; seconds in which neurons are
  /// deleted from memory and inserted; bytes read, whole blocks; neurons that came into memory.
  enum Count : std::size_t { kFlashTime, kMemoryTime, kFlashBytes, kLoaded };

  explicit Neurons(const FlashWeights& weights, const Speculation& speculation = {})
      : weights_(weights), speculation_(speculation) {}

  const FlashWeights& weights() const { return weights_; }
  /// Carried runs: uses this predictor instead of the system's.
  void set_predictor(std::shared_ptr<const NeuronPredictor> predictor) { predictor_ = std::move(predictor); }
  /// Null in runs without data.
  const CarriedNeurons* carried() const { return carried_ ? &*carried_ : nullptr; }
  /// The neurons in memory; null before the run, and if none come into memory.
  const FlashNeurons* in_memory() const;

  void check(config::Problems& problems, const CheckpointSources& sources) const override;
  void complete(PlannerInputs& inputs, const CheckpointSources& sources) const override;
  bool takes_neurons() const override { return weights_.predicts(); }
  std::string layers_differ() const override;
  std::vector<std::uint32_t> breaks(std::uint32_t steps) const override;
  std::uint64_t blocks(DriveIndex drive) const override { return weights_.blocks(drive); }
  HostRun on_host() const override;
  std::unique_ptr<Planner> loading() const override;
  void begin(const ModelledSources& sources) override;
  CarriedFeature* carry(DecoderData& data, const CheckpointSources& sources) override;
  void skip_to(std::uint32_t step, std::uint32_t layers, std::span<const std::uint32_t> prompts) override;
  std::optional<Work> resolve(const Operation& op) override;
  void observe(const OperationRecord& record, bool measured) override;
  void count(std::vector<double>& totals) const override;
  std::vector<FeatureMetric> metrics() const override;
  std::string verify(nlohmann::ordered_json& stats) const override;

 private:
  struct Interval {
    SimTime start, end;
  };
  double bytes_error(const FeatureCounts& counts) const;

  FlashWeights weights_;
  Speculation speculation_;
  std::shared_ptr<const NeuronPredictor> predictor_;
  std::optional<ModelledNeurons> modelled_;
  std::optional<CarriedNeurons> carried_;
  std::unique_ptr<NeuronData> data_;
  SimTime flash_time_;           ///< with a read of weights from blocks, or with a network in a drive
  std::vector<Interval> reads_;  ///< reads of such work; those without a gap between them are joined
  SimTime memory_time_;          ///< records deleted and inserted
  Bytes flash_bytes_;
  std::map<std::uint32_t, double> layer_bytes_;  ///< by layer: read in measured steps
};

}  // namespace csdsim::host
