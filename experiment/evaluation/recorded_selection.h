// Reads and writes selection files: `csdsim eval --record` writes them, `simulation.selection: {kind: recorded}` reads
// them.
//
// JSON: {csdsim_selection: 1, head_dim, setting, model, text, records}. A record is [window, layer, KV head, tokens in
// the cache, [components], [selected tokens]] with ascending indices. Dense heads (S <= k) have no record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "attention_engine/core/selection.h"
#include "host_runtime/core/attention/attention.h"

namespace csdsim::experiment {

class SelectionRecorder {
 public:
  void add(SequenceId window, LayerId layer, KvHead head, std::uint32_t tokens, const host::HeadSelection& selection);
  nlohmann::ordered_json document(std::uint32_t head_dim, const std::string& setting, const std::string& model,
                                  const std::string& text) const;

 private:
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
};

/// Throws UserError with the file name when the file cannot be read or is not a recording.
engine::RecordedSelection read_selection(const std::filesystem::path& file);

}  // namespace csdsim::experiment
