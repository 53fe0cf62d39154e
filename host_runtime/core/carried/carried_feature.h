// The part of a feature that runs which carry data need: the data of its operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/fp16.h"
#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/model/weight_source.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

struct LowRankWeights;

/// Sources of a carried run beside the decoder.
struct CheckpointSources {
  const WeightSource* weights = nullptr;  ///< weights of the checkpoint
  /// The predictor of neurons beside the checkpoint. UserError if there is none for it.
  std::function<std::shared_ptr<const LowRankWeights>()> trained = {};
  NeuronSums sums = {};  ///< what drives compute; without, it is not checked
};

/// All functions of OperationData are asked for operations that it serves, and for these only.
class CarriedFeature : public OperationData {
 public:
  virtual bool serves(const Operation& op) const = 0;
  /// True if tokens of a prompt leave the GPU together, whichever drive gets them later.
  virtual bool places_tokens() const { return false; }
  /// True if projected() is to be called.
  virtual bool learns_prompts() const { return false; }
  /// The prompts of an operation have been projected: q, k and v as [row][heads][d].
  virtual void projected(const Operation&, std::span<const Half> /*q*/, std::span<const Half> /*k*/,
                         std::span<const Half> /*v*/) {}

  /// True if decode steps verify proposed() tokens; the next two functions are called only then.
  virtual bool proposes() const { return false; }
  /// The tokens that the next step of a sequence verifies behind its latest one.
  virtual std::span<const TokenId> proposed(SequenceId) const { return {}; }
  /// A step has chosen `chosen` tokens, all but the last one as proposed. `tokens` is the prompt and all that was
  /// generated.
  virtual void chose(SequenceId, std::uint32_t /*chosen*/, std::span<const TokenId> /*tokens*/) {}
};

}  // namespace csdsim::host
