// One run of a scenario file: the scenario without its sweep, or one point of the sweep.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scenario/load.h"

namespace csdsim::scenario {

struct LoadedPoint {
  Resolved resolved;
  std::size_t points = 0;  ///< number of points of the sweep; 0 without one
};

/// As load_scenario(), but only what is run is checked: a value that does not fit another point is no mistake. Throws
/// UserError if the sweep has no such point.
LoadedPoint load_point(const std::filesystem::path& file, const std::vector<std::string>& sets,
                       const std::shared_ptr<const Registries>& registries, std::optional<std::size_t> point);

}  // namespace csdsim::scenario
