// A feature is what a run does beyond plain layers. The offload system makes the object and the run owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/problems.h"
#include "base/metric.h"
#include "contracts/row_quantisation.h"
#include "host_runtime/core/plan/executor.h"
#include "host_runtime/core/plan/neuron_activity.h"
#include "host_runtime/core/plan/operation.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/core/plan/token_importance.h"

namespace csdsim::host {

class CarriedFeature;
class DecoderData;
class LostRows;
struct CheckpointSources;

/// The rows of a head of a sparse sequence that a read of a file touches: ascending numbers of the components, or of
/// the tokens in the file. They are valid until the next call.
using RowSource = std::function<std::span<const std::uint32_t>(const HeadRows& rows, LayerId layer,
                                                               const HeadRows::Sequence& of, std::uint32_t head)>;

/// Sources of data-dependent sizes in a run without data.
struct ModelledSources {
  /// Recorded neurons, from their first token on; null: as the system's constants say.
  std::function<std::unique_ptr<NeuronActivity>()> neurons = {};
  std::function<std::unique_ptr<TokenImportance>()> tokens = {};  ///< the tokens that matter
  RowSource rows = {};
  std::uint64_t seed = 0;
};

/// Facts of a run for the checks of its features.
struct FeatureContext {
  std::string_view system;  ///< its kind
  bool kv_in_drives = false;
  bool chooses_tokens = false;    ///< SystemTraits::chooses_tokens
  bool restores_lost_kv = false;  ///< SystemTraits::restores_lost_kv
  bool flash_errors = false;      ///< reads of flash may fail
  bool carried = false;           ///< the run carries data
  bool requests = false;          ///< requests have their own lengths
};

/// A run on the host that a carried run is compared with, so that both compute the same values.
struct HostRun {
  bool follows_plan = false;     ///< by the system's plan instead of one with everything on the GPU
  bool needs_drives = false;     ///< with as many drives, whose results are added in this order
  bool speculation = true;       ///< steps may verify several tokens (BatchLengths::speculation)
  RowQuantisation weights = {};  ///< format of the weights
};

/// Tokens that a drive holds of some heads.
struct StoredTokens {
  HeadRange heads;
  std::uint32_t tokens = 0;
};

/// The counts of a feature (RunFeature::count()) in the phases of a run, for all layers and steps.
struct FeatureCounts {
  std::span<const double> prefill, decode;
  /// Estimated relative error of a count of `decode`, because steps were left out.
  std::function<double(std::size_t)> error = {};
  double decode_steps = 0;
  std::uint32_t layers = 0;         ///< layers of the model
  std::uint32_t decode_tokens = 0;  ///< that the decode steps generate of the longest sequence
  double gpu_busy_s = 0;            ///< busy time of the GPUs in the decode steps, summed over the GPUs
  double drive_neurons = 0;         ///< neurons that drives computed in the decode steps
};

/// A metric of a feature.
using FeatureMetric = Metric<FeatureCounts>;

/// A part of a system's plan that depends on data: pools of tokens, neurons in flash, drafts. A run calls each function
/// of all its features; a feature overrides those that concern it.
class RunFeature {
 public:
  virtual ~RunFeature() = default;

  // Before the run.
  /// Records what the run or its drives do not offer to the feature, each at its path.
  virtual void check_run(config::Problems&, const FeatureContext&) const {}
  /// Records what is wrong with the files of a carried run.
  virtual void check(config::Problems&, const CheckpointSources&) const {}
  /// Fills the inputs of a carried run's plan that depend on the checkpoint.
  virtual void complete(PlannerInputs&, const CheckpointSources&) const {}
  /// True if a run without data asks ModelledSources::neurons.
  virtual bool takes_neurons() const { return false; }
  /// The reason why some layers do not stand for all of them; empty if they do.
  virtual std::string layers_differ() const { return {}; }
  /// Decode steps, of `steps`, at which the growth of the work changes.
  virtual std::vector<std::uint32_t> breaks(std::uint32_t /*steps*/) const { return {}; }
  /// Blocks of a drive's block namespace that hold the feature's data.
  virtual std::uint64_t blocks(DriveIndex) const { return 0; }
  /// The run on the host whose values are equal.
  virtual HostRun on_host() const { return {}; }
  /// Writes to the block namespaces what is there when a carried run begins; null: nothing.
  virtual std::unique_ptr<Planner> loading() const { return nullptr; }

  // The run: one without data begins with begin(), one with data with carry(). The feature keeps what it returns.
  virtual void begin(const ModelledSources&) {}
  virtual CarriedFeature* carry(DecoderData& /*data*/, const CheckpointSources&) { return nullptr; }
  /// The steps that follow have these inputs: a part of the layers.
  virtual void set_inputs(const PlannerInputs&) {}
  /// The prefill and the decode steps before `step` happen in no time, in the first `layers` layers.
  virtual void skip_to(std::uint32_t /*step*/, std::uint32_t /*layers*/, std::span<const std::uint32_t> /*prompts*/) {}
  /// Tokens of a sequence that a drive holds now; empty: as KvDivision says.
  virtual std::vector<StoredTokens> stored(DriveIndex, SequenceId, LayerId) const { return {}; }
  /// The work of an operation that depends on data, when it starts; nothing to keep the plan's.
  virtual std::optional<Work> resolve(const Operation&) { return std::nullopt; }

  /// Handles K and V that a drive cannot read back; null: the feature does not handle them.
  virtual LostRows* lost_rows() { return nullptr; }

  // Counts and metrics.
  /// An operation has ended. `measured`: in a step that stands for others.
  virtual void observe(const OperationRecord&, bool /*measured*/) {}
  /// Appends its totals since the start, always as many.
  virtual void count(std::vector<double>&) const {}
  /// The metrics; only `value` may differ between objects of one class.
  virtual std::vector<FeatureMetric> metrics() const { return {}; }
  /// After a carried run: adds statistics, and returns what was wrong, or nothing.
  virtual std::string verify(nlohmann::ordered_json& /*stats*/) const;
};

/// The features of a run.
class RunFeatures {
 public:
  void add(std::unique_ptr<RunFeature> feature) { features_.push_back(std::move(feature)); }
  auto begin() const { return features_.begin(); }
  auto end() const { return features_.end(); }

  /// The feature of a class; null if the run has none.
  template <class Feature>
  Feature* find() const {
    for (const auto& feature : features_)
      if (auto* const found = dynamic_cast<Feature*>(feature.get())) return found;
    return nullptr;
  }
  /// The work of an operation by the first feature that knows it.
  std::optional<Work> resolve(const Operation& op) const;
  /// All totals, feature after feature.
  std::vector<double> counts() const;
  std::string layers_differ() const;

  /// A metric and its value.
  struct Value {
    FeatureMetric metric;
    double value = 0;
  };
  /// The metrics that a run has, from counts of all features.
  std::vector<Value> values(const FeatureCounts& all) const;

 private:
  std::vector<std::unique_ptr<RunFeature>> features_;
};

}  // namespace csdsim::host
