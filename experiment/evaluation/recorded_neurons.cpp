#include "experiment/evaluation/recorded_neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "host_runtime/core/features/neurons/model/locality_fit.h"

namespace csdsim::experiment {

using host::NeuronRecording;
using nlohmann::ordered_json;

namespace {

constexpr std::uint64_t kMostNeurons = std::uint64_t{1} << 24;

ordered_json fit_json(const std::vector<double>& shares) {
  // A layer in which nothing fires, or in which everything does, has no locality.
  if (shares.size() < 2 || shares[0] <= 0 || shares[0] >= 1) return nullptr;
  const host::LocalityFit fit = host::fit_locality(shares);
  return {{"active", fit.params.active},
          {"concentration", fit.params.concentration},
          {"persistence", fit.params.persistence},
          {"worst_error", fit.worst}};
}

NeuronRecording::Active active_of(const nlohmann::json& list, std::uint32_t neurons) {
  if (!list.is_array()) throw UserError("the neurons of a token are not a list");
  NeuronRecording::Active active;
  for (const nlohmann::json& each : list) {
    if (!each.is_number_unsigned() || each.get<std::uint64_t>() >= neurons)
      throw UserError(fmt::format("{} is not a neuron below {}", each.dump().substr(0, 40), neurons));
    active.push_back(each.get<std::uint32_t>());
    if (active.size() > 1 && active[active.size() - 2] >= active.back())
      throw UserError("the neurons of a token do not ascend");
  }
  return active;
}

/// Every stretch has the same number of layers, and its layers have the same number of tokens.
void check_shape(const NeuronRecording& recording) {
  for (const auto& stretch : recording.stretches) {
    if (stretch.empty() || stretch.size() != recording.layers()) throw UserError("stretches differ in their layers");
    for (const auto& tokens : stretch)
      if (tokens.empty() || tokens.size() != stretch[0].size()) throw UserError("layers differ in their tokens");
  }
}

NeuronRecording recording_of(const nlohmann::json& document) {
  if (!document.is_object() || !document.contains("csdsim_neurons"))
    throw UserError("is no recording of csdsim eval --record-neurons");
  if (document["csdsim_neurons"] != 1) throw UserError("this build reads recordings of version 1");
  if (!document.contains("neurons") || !document.contains("stretches"))
    throw UserError("neurons or stretches are missing");
  const nlohmann::json &neurons = document["neurons"], &stretches = document["stretches"];
  if (!neurons.is_number_unsigned() || neurons == 0 || neurons.get<std::uint64_t>() > kMostNeurons)
    throw UserError(fmt::format("neurons is not a count from 1 to {}", kMostNeurons));
  if (!stretches.is_array() || stretches.empty()) throw UserError("there is no stretch");
  NeuronRecording recording{.neurons = neurons.get<std::uint32_t>(), .stretches = {}};
  for (const nlohmann::json& layers : stretches) {
    if (!layers.is_array()) throw UserError("a stretch is not a list of layers");
    auto& stretch = recording.stretches.emplace_back();
    for (const nlohmann::json& tokens : layers) {
      if (!tokens.is_array()) throw UserError("a layer is not a list of tokens");
      auto& layer = stretch.emplace_back();
      for (const nlohmann::json& token : tokens) layer.push_back(active_of(token, recording.neurons));
    }
  }
  check_shape(recording);
  return recording;
}

}  // namespace

ordered_json neuron_document(const NeuronRecording& recording, const ordered_json& origin) {
  check_shape(recording);
  if (recording.stretches.empty()) throw UserError("nothing to record");
  ordered_json document{{"csdsim_neurons", 1}};
  document.update(origin);
  document["neurons"] = recording.neurons;
  ordered_json within = ordered_json::array(), fits = ordered_json::array();
  for (std::uint32_t layer = 0; layer < recording.layers(); ++layer) {
    const auto shares = host::active_within(recording, LayerId{layer}, kRecordedWithin);
    within.push_back(shares);
    fits.push_back(fit_json(shares));
  }
  const auto mean = host::active_within(recording, kRecordedWithin);
  document["active_within"] = {{"mean", mean}, {"layers", within}};
  document["locality"] = {{"mean", fit_json(mean)}, {"layers", fits}};
  document["stretches"] = recording.stretches;
  return document;
}

NeuronRecording read_neurons(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  try {
    return recording_of(nlohmann::json::parse(file, nullptr, false));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace csdsim::experiment
