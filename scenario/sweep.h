// The axes of a sweep and its points.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config/diagnostics.h"
#include "base/config/node.h"
#include "scenario/registries.h"

namespace csdsim::scenario {

struct Axis {
  std::string path;
  config::Origin origin;
  std::vector<config::Node> values;  ///< origins are of Layer::axis
};

/// Reads `sweep: {axes: {PATH: [values]}}`. Records its errors, unknown paths included.
std::vector<Axis> read_axes(const config::Node& sweep, const std::shared_ptr<const Registries>& registries,
                            config::Diagnostics& diagnostics);

/// One point: the index of its value on every axis.
struct AxisPoint {
  std::string name;
  std::vector<std::size_t> indices;
};

/// All points, last axis fastest. Names are unique and fit for a directory.
std::vector<AxisPoint> axis_points(const std::vector<Axis>& axes);

/// Formats a value: "0.7 GB/s", "[4, 8]", the kind or preset of a map.
std::string axis_value_text(const config::Node& value);

}  // namespace csdsim::scenario
