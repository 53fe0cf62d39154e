// KVPR: part of K and V is recomputed from activations while the rest travels (arXiv 2411.17089).
#pragma once

#include <optional>

#include "base/one_of.h"
#include "base/units.h"
#include "host_runtime/core/plan/searched_system.h"
#include "host_runtime/core/plan/software.h"
#include "host_runtime/core/plan/streamed_system.h"
#include "host_runtime/core/systems/kv_parameters.h"
#include "host_runtime/core/systems/kvpr/planner.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

inline constexpr EnumValue<Place> kKvprActivations[] = {
    {Place::host(), "host", "Host memory; they are copied to the GPU before the recomputation."},
    {Place::gpu(), "gpu", "GPU memory, which has to hold them for all layers."}};

/// K and V are in host memory. In every decode step, the GPU recomputes those of the first l tokens from activations,
/// while those of the other tokens are copied to it. l is solved from the rates of link and GPU for every step.
class Kvpr final : public CopyableSystem<Kvpr>, public SearchedSystem, public StreamedSystem {
 public:
  static constexpr std::string_view kKind = "kvpr";
  static constexpr std::string_view kDoc =
      "KVPR: K and V in host memory; the GPU recomputes part of them from activations while the rest is copied.";

  OneOf<kKvprActivations> activations;
  std::optional<Ratio> recomputed_share;
  std::uint32_t split_step = 1;
  bool hides_recomputation = true;
  std::uint32_t kv_buffers = 2;
  KvFormat kv;
  WeightPlacement weights;
  Software software;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  void choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) override;
  std::vector<std::string> unused_parameters() const override;
  /// One: what is copied overlaps with what is recomputed anyway.
  SystemTraits traits() const override {
    return {.mini_batches = 1, .recomputes_kv = recomputed_share != Ratio{0, 1}, .kv_format = kv.rows()};
  }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  bool needs_rates(const ModelShape& model) const override;
  OffloadPlan stream_plan(const ModelShape& model, const std::optional<StreamRates>& rates) const override;
  Remarks remarks(const ModelShape& model, std::uint32_t longest) const override;

 private:
  std::optional<SplitRates> rates_;
  std::uint32_t shortest_prompt_ = 0;
};

}  // namespace csdsim::host
