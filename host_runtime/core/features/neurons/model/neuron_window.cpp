#include "host_runtime/core/features/neurons/model/neuron_window.h"

#include "base/error.h"

namespace csdsim::host {

NeuronWindow::NeuronWindow(std::uint32_t neurons, std::uint32_t tokens) : tokens_(tokens), uses_(neurons) {
  if (tokens == 0) throw UserError("a window of 0 tokens keeps no neurons, must be at least 1");
}

const NeuronWindow::Change& NeuronWindow::step(std::span<const std::uint32_t> active) {
  change_.load.clear();
  change_.drop.clear();
  for (const std::uint32_t neuron : active)
    if (uses_.at(neuron)++ == 0) change_.load.push_back(neuron);
  active_.emplace_back(active.begin(), active.end());
  if (active_.size() > tokens_) {
    for (const std::uint32_t neuron : active_.front())
      if (--uses_[neuron] == 0) change_.drop.push_back(neuron);
    active_.pop_front();
  }
  size_ += static_cast<std::uint32_t>(change_.load.size());
  size_ -= static_cast<std::uint32_t>(change_.drop.size());
  return change_;
}

}  // namespace csdsim::host
