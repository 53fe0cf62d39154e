// Implements `csdsim pools`: what recorded important tokens move between the pools of HillInfer, and how local they
// are.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "experiment/evaluation/recorded_tokens.h"
#include "host_runtime/core/tokens/pool_replay.h"

namespace csdsim::experiment {

/// Replays the recording with each setting. A row has the shares of the context that are cold, important, promoted,
/// demoted and written in a step, `moved` (promoted and demoted), and `cold_important`, the share of the important
/// tokens that are cold when they are needed. UserError as host::replay().
nlohmann::ordered_json pool_rows(const RecordedTokenFile& file, const std::vector<host::PoolShares>& settings);

}  // namespace csdsim::experiment
