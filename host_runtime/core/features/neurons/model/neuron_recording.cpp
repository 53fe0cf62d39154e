#include "host_runtime/core/features/neurons/model/neuron_recording.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {
namespace {

/// Adds a run of `length` tokens without the neuron: windows of k tokens within it do not have the neuron.
void add_gap(std::size_t length, std::vector<std::uint64_t>& windows_without) {
  for (std::size_t k = 1; k <= std::min(length, windows_without.size()); ++k) windows_without[k - 1] += length - k + 1;
}

void add(std::span<const double> terms, double factor, std::vector<double>& sum) {
  if (sum.empty()) sum.resize(terms.size());
  sum.resize(std::min(sum.size(), terms.size()));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * terms[i];
}

}  // namespace

std::vector<double> active_within(std::span<const NeuronRecording::Active> tokens, std::uint32_t neurons,
                                  std::uint32_t most) {
  std::vector<std::uint64_t> without(std::min<std::size_t>(most, tokens.size()));
  std::vector<std::size_t> after(neurons);  // the token after the last one that had the neuron
  for (std::size_t token = 0; token < tokens.size(); ++token) {
    for (const std::uint32_t neuron : tokens[token]) {
      add_gap(token - after[neuron], without);
      after[neuron] = token + 1;
    }
  }
  for (const std::size_t first : after) add_gap(tokens.size() - first, without);
  std::vector<double> shares;
  for (std::size_t k = 1; k <= without.size(); ++k) {
    const auto windows = static_cast<double>(tokens.size() - k + 1);
    shares.push_back(1 - static_cast<double>(without[k - 1]) / (windows * neurons));
  }
  return shares;
}

std::vector<double> active_within(const NeuronRecording& recording, LayerId layer, std::uint32_t most) {
  std::vector<double> mean;
  for (const auto& stretch : recording.stretches)
    add(active_within(stretch.at(layer.value), recording.neurons, most),
        1 / static_cast<double>(recording.stretches.size()), mean);
  return mean;
}

std::vector<double> active_within(const NeuronRecording& recording, std::uint32_t most) {
  std::vector<double> mean;
  for (std::uint32_t layer = 0; layer < recording.layers(); ++layer)
    add(active_within(recording, LayerId{layer}, most), 1 / static_cast<double>(recording.layers()), mean);
  return mean;
}

RecordedActivity::RecordedActivity(NeuronRecording recording) : recording_(std::move(recording)) {
  const auto& stretches = recording_.stretches;
  const auto empty = [](const auto& stretch) {
    return stretch.empty() || std::ranges::any_of(stretch, [](const auto& tokens) { return tokens.empty(); });
  };
  if (stretches.empty() || std::ranges::any_of(stretches, empty))
    throw UserError("a recording of neurons without tokens cannot be replayed");
}

void RecordedActivity::next(SequenceId sequence, LayerId layer, std::vector<std::uint32_t>& active) {
  const auto& stretches = recording_.stretches;
  Position& place =
      places_.try_emplace({sequence, layer}, Position{sequence.value % stretches.size(), 0}).first->second;
  const auto& tokens = stretches[place.stretch][layer.value % recording_.layers()];
  active = tokens[place.token];
  if (++place.token == tokens.size()) place = {(place.stretch + 1) % stretches.size(), 0};
}

}  // namespace csdsim::host
