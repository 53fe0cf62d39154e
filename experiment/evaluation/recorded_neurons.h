// Reads and writes recordings of neurons: `csdsim eval --record-neurons` writes them, for timing runs.
//
// JSON: {csdsim_neurons: 1, model, text, predictor, threshold, rank, fatrelu, neurons, active_within, locality,
// stretches}. `stretches` is [window of text][layer][token] with the ascending indices of the active neurons; the rest
// follows from it or says where it is from. `active_within` is s(1), s(2), ...: by layer, and the mean of layers.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "host_runtime/core/features/neurons/model/neuron_recording.h"

namespace csdsim::experiment {

/// Tokens up to which s(k) is written: one more than the longest window that it serves.
inline constexpr std::uint32_t kRecordedWithin = 33;

/// The document of a recording. `origin` holds the keys that say where it is from. UserError if it has no token.
nlohmann::ordered_json neuron_document(const host::NeuronRecording& recording, const nlohmann::ordered_json& origin);

/// UserError with the file name when the file cannot be read or is not a recording.
host::NeuronRecording read_neurons(const std::filesystem::path& file);

}  // namespace csdsim::experiment
