#include "host_runtime/core/features/neurons/drive_neurons.h"

#include "base/error.h"
#include "host_runtime/core/features/neurons/model/neuron_runs.h"

namespace csdsim::host {

void DriveNeurons::step(LayerId layer, MiniBatch mini_batch, std::span<const std::uint32_t> active) {
  Parts& parts = latest_[{layer, mini_batch}];
  parts.assign(weights_.parts(), {});
  for (const std::uint32_t neuron : active) parts[neuron % weights_.parts()].push_back(neuron);
}

const std::vector<std::uint32_t>& DriveNeurons::of(const Operation& op) const {
  const auto latest = latest_.find({*op.tag.layer, op.tag.mini_batch});
  if (latest == latest_.end()) throw InternalError("a drive computes with neurons that have not been chosen");
  return latest->second.at(weights_.divides_neurons() ? op.resource.index : 0);
}

std::optional<Work> DriveNeurons::resolve(const Operation& op) const {
  const auto* const planned = std::get_if<NeuronWork>(&op.work);
  if (planned == nullptr) return std::nullopt;
  std::vector<std::uint32_t> on_drive = of(op);
  for (std::uint32_t& neuron : on_drive) neuron /= weights_.parts();
  NeuronWork work = *planned;
  work.runs = neuron_runs(weights_.directory(), weights_.on_drive(*op.tag.layer), on_drive);
  return work;
}

}  // namespace csdsim::host
