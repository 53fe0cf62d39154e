// Implements `csdsim pools`: what recorded important tokens move between the pools of HillInfer, and how local they
// are.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "experiment/evaluation/recorded_tokens.h"
#include "host_runtime/core/features/token_pools/model/pool_replay.h"

namespace csdsim::experiment {

/// Replays the recording with each setting. A row has the shares of the context that are cold, important, promoted,
/// demoted and written in a step, `moved` (promoted and demoted), and `cold_important`, the share of the important
/// tokens that are cold when they are needed. UserError as host::replay().
nlohmann::ordered_json pool_rows(const RecordedTokenFile& file, const std::vector<host::PoolShares>& settings);

/// How local the recorded tokens are, and those of a locality model that is fitted to them: two rows, with the
/// statistics of host::TokenStatistics and the share of the important tokens that is cold in the given pools. `recent`
/// and the overlaps are fitted, the other columns are not. The second row has the constants of the model. UserError as
/// host::fit_token_locality().
nlohmann::ordered_json locality_rows(const RecordedTokenFile& file, const host::PoolShares& pools);

}  // namespace csdsim::experiment
