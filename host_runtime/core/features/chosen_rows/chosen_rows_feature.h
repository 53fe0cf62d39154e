// The feature of systems that bring chosen rows of single heads to the GPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/features/chosen_rows/carried_rows.h"
#include "host_runtime/core/features/chosen_rows/chosen_rows.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// Chooses the rows that a step fetches: as the attention method chooses them, or a model of the important tokens.
class FetchedHeadRows final : public RunFeature {
 public:
  /// The plan of a run with some layers of the model.
  using PlanOf = std::function<ChosenRowsPlan(const PlannerInputs&)>;
  FetchedHeadRows(const PlannerInputs& inputs, PlanOf plan_of, std::string method, const MethodSettings& settings)
      : rows_(plan_of(inputs), inputs.model, inputs.workload),
        plan_of_(std::move(plan_of)),
        method_(std::move(method)),
        settings_(settings) {}

  void begin(const ModelledSources& sources) override;
  CarriedFeature* carry(DecoderData& data, const CheckpointSources&) override;
  void set_inputs(const PlannerInputs& inputs) override;
  std::optional<Work> resolve(const Operation& op) override;

 private:
  ChosenRows rows_;
  PlanOf plan_of_;
  std::string method_;
  MethodSettings settings_;
  std::optional<ModelledRows> modelled_;
  std::unique_ptr<CarriedRows> carried_;
};

}  // namespace csdsim::host
