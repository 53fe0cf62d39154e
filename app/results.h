// Results on disk: the folder of a run or of a sweep.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "launch/sweep_store.h"

namespace csdsim::app {

/// UserError for what is no JSON file, or nested too deep.
nlohmann::ordered_json read_json(const std::filesystem::path& path);

/// The rows of a sweep, or the one row without axes of a run. `path` is the --out of either, or a result.json. A row
/// without result has an error. Throws UserError without any.
std::vector<launch::SweepRow> read_rows(const std::filesystem::path& path);

}  // namespace csdsim::app
