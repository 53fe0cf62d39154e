// Feed-forward networks in the drives, alone or beside the KV cache.
#pragma once

#include "base/one_of.h"
#include "host_runtime/core/systems/flash_parameters.h"
#include "host_runtime/core/systems/instinfer/instinfer.h"

namespace csdsim::host {

/// The place of K and V, and the processor that attends.
inline constexpr EnumValue<Place> kFfnKvPlaces[] = {
    {Place::gpu(), "gpu", "In GPU memory; the GPU attends."},
    {Place::drive_kv(), "drive", "In the same drives, which attend, as with instinfer-dense."}};

/// Weights in flash as LlmInAFlash, but no neuron travels in a decode step: the drives compute the feed-forward network
/// of the predicted neurons from their own pages. With K and V in the drives, they also keep K and V and attend, as
/// InstinferDense does.
class InDriveFfn final : public CopyableSystem<InDriveFfn> {
 public:
  static constexpr std::string_view kKind = "in-drive-ffn";
  static constexpr std::string_view kDoc =
      "Weights in flash: the drives compute the feed-forward network of the predicted neurons.";

  RecordLayout records = RecordLayout::bundled;
  NeuronDivision divide = NeuronDivision::neurons;
  OneOf<kFfnKvPlaces> kv;
  FlashParameters flash;  ///< flash parameters; options() replaces those that say what comes into memory

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  /// One: the prefill reads all weights for each mini-batch. With more, the drives compute for one mini-batch while the
  /// GPU works for another.
  SystemTraits traits() const override { return {.mini_batches = 1}; }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  RunFeatures features(const PlannerInputs& inputs) const override;
  FlashWeights flash_weights(const PlannerInputs& inputs) const;

 private:
  FlashParameters parameters() const;
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::NeuronDivision> {
  static constexpr EnumValue<host::NeuronDivision> values[] = {
      {host::NeuronDivision::layers, "layers", "The layers are on the drives in turn: one drive works at a time."},
      {host::NeuronDivision::neurons, "neurons",
       "Each drive has a part of the neurons of every layer; the GPU adds their sums."}};
};

template <>
struct EnumValues<host::RecordLayout> {
  static constexpr EnumValue<host::RecordLayout> values[] = {
      {host::RecordLayout::rows, "rows", "Matrix after matrix, each with the rows of all neurons."},
      {host::RecordLayout::bundled, "bundled", "The rows of a neuron side by side."}};
};

}  // namespace csdsim
