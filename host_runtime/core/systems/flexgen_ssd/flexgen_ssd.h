// FlexGen with K and V on an SSD: zig-zag block schedule, policy in percent.
#pragma once

#include "host_runtime/core/plan/searched_system.h"
#include "host_runtime/core/systems/kv_parameters.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

/// The source of the percentages.
enum class PolicySource : std::uint8_t { searched, given };

/// FlexGen (arXiv 2303.06865): weights, K and V are divided between GPU, host and files. A block of mini-batches goes
/// through a layer before the next layer's weights are used. Loads of weights, loads of K and V, computation and stores
/// overlap.
class FlexGenSsd final : public CopyableSystem<FlexGenSsd>, public SearchedSystem {
 public:
  static constexpr std::string_view kKind = "flexgen-ssd";
  static constexpr std::string_view kDoc =
      "FlexGen: weights, K and V divided between GPU, host memory and files on the drives; the GPU attends.";

  PolicySource policy = PolicySource::searched;
  Ratio kv_on_gpu{0, 1};
  Ratio kv_on_host{0, 1};
  std::uint32_t kv_buffers = 2;
  KvFormat kv;
  WeightPlacement weights;
  bool stores_attention_weights = true;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  void choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) override;
  std::vector<std::string> unused_parameters() const override;
  /// As many mini-batches as the search has chosen. Without a search one: a mini-batch's copies overlap with
  /// computation anyway.
  SystemTraits traits() const override {
    return {.mini_batches = gpu_batches_, .ends_sequences = true, .serves_arrivals = true, .kv_format = kv.rows()};
  }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  Remarks remarks(const ModelShape& model, std::uint32_t longest) const override;

 private:
  /// SystemNeeds::what_would_fit.
  std::string shares_that_fit(const PlannerInputs& run, Place home, Bytes capacity) const;
  std::uint32_t gpu_batches_ = 1;
  std::string chosen_;  ///< the result that the search expects; empty without a search
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::PolicySource> {
  static constexpr EnumValue<host::PolicySource> values[] = {
      {host::PolicySource::searched, "searched",
       "Searched: the fastest shares and mini-batches by the rates of the platform that fit into the memories."},
      {host::PolicySource::given, "given", "kv_on_gpu, kv_on_host, weights_on_host and weights_in_files."}};
};

}  // namespace csdsim
