#include "host_runtime/core/features/chosen_rows/chosen_rows_feature.h"

#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_data.h"

namespace csdsim::host {

void FetchedHeadRows::begin(const ModelledSources& sources) {
  if (!sources.tokens) throw InternalError("chosen rows without data need a model of the important tokens");
  modelled_.emplace(rows_, sources.tokens());
}

CarriedFeature* FetchedHeadRows::carry(DecoderData& data, const CheckpointSources&) {
  const ModelConfig& model = data.decoder().config();
  std::unique_ptr<AttentionMethod> method = configure_method(method_, settings_, model.head_dim).method;
  std::unique_ptr<ChoosingMethod> choosing(dynamic_cast<ChoosingMethod*>(method.get()));
  if (!choosing) throw InternalError(fmt::format("{} does not choose rows before it has them", method->name()));
  method.release();
  carried_ = std::make_unique<CarriedRows>(rows_, model, std::move(choosing), data.tensors());
  return carried_.get();
}

void FetchedHeadRows::set_inputs(const PlannerInputs& inputs) {
  if (modelled_) modelled_->set_plan(plan_of_(inputs));
}

std::optional<Work> FetchedHeadRows::resolve(const Operation& op) {
  if (carried_) return carried_->resolve(op);
  return modelled_ ? modelled_->resolve(op) : std::nullopt;
}

}  // namespace csdsim::host
