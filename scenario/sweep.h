// The axes of a sweep, its points, and what is searched for among them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config/diagnostics.h"
#include "base/config/node.h"
#include "report/search.h"
#include "scenario/condition.h"
#include "scenario/registries.h"

namespace csdsim::scenario {

struct Axis {
  std::string path;
  config::Origin origin;
  std::vector<config::Node> values;  ///< origins are of Layer::axis
};

struct Sweep {
  std::vector<Axis> axes;
  std::vector<std::vector<std::size_t>> groups;             ///< axes that advance together; each axis is in one group
  std::vector<std::pair<Condition, config::Origin>> where;  ///< points that do not meet them are left out
  report::Search search;
  std::vector<std::pair<std::string, config::Origin>> metrics;  ///< that `search` names, without paths
};

/// Reads the section `sweep` of a scenario (docs/sweeps.md). Records its errors, unknown paths included.
Sweep read_sweep(const config::Node& sweep, const std::shared_ptr<const Registries>& registries,
                 config::Diagnostics& diagnostics);

/// Records an error for each metric of the search that a built-in workload does not have.
void check_metrics(const Sweep& sweep, const std::string& workload, const Registries& registries,
                   config::Diagnostics& diagnostics);

/// One point: the index of its value on every axis.
struct AxisPoint {
  std::string name;
  std::vector<std::size_t> indices;
};

/// The points that meet all conditions, last group fastest. Names are unique and fit for a directory. Records an error
/// when a condition has no value at a point. Throws UserError when there is no point, or when there are more than
/// kMaxSweepPoints.
std::vector<AxisPoint> sweep_points(const Sweep& sweep, config::Diagnostics& diagnostics);

/// Formats a value: "0.7 GB/s", "[4, 8]", the kind or preset of a map.
std::string axis_value_text(const config::Node& value);

}  // namespace csdsim::scenario
