// Reads and writes recordings of important tokens: `csdsim eval --record` with methods that choose whole tokens writes
// them, `csdsim pools` and timing runs read them.
//
// JSON: {csdsim_tokens: 1, model, text, method, setting, prefill, statistics, windows}. `windows` is
// [window][layer][list][step] with the ascending positions attended to; there is one list per layer, or one per KV
// head. Step i has a context of prefill + 1 + i tokens. `statistics` follows from it: by layer, and the mean.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/features/token_pools/model/token_recording.h"

namespace csdsim::experiment {

/// Where a recording is from.
struct TokenOrigin {
  std::string model, text, method, setting;
};

struct RecordedTokenFile {
  TokenOrigin origin;
  host::TokenRecording recording;
};

/// Takes the selections of a run, whose windows, layers and KV heads come in any order, and the steps of each in order.
class TokenRecorder {
 public:
  /// With `list_per_layer` all heads of a layer attend to the same tokens.
  TokenRecorder(std::uint32_t prefill, std::uint32_t windows, std::uint32_t layers, std::uint32_t kv_heads,
                bool list_per_layer);
  void add(SequenceId window, LayerId layer, KvHead head, const host::HeadSelection& selection);
  const host::TokenRecording& recording() const { return recording_; }

 private:
  host::TokenRecording recording_;
};

nlohmann::ordered_json statistics_json(const host::TokenStatistics& statistics);

/// The document of a recording. UserError if it has no step.
nlohmann::ordered_json token_document(const host::TokenRecording& recording, const TokenOrigin& origin);

/// UserError with the name of the file and the place in it when the file cannot be read or is not a recording.
RecordedTokenFile read_tokens(const std::filesystem::path& file);

}  // namespace csdsim::experiment
