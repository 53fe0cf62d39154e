#include "scenario/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/config/dump.h"
#include "base/text.h"
#include "scenario/load.h"

namespace csdsim::scenario {
namespace {

using config::Entry;
using config::Node;

/// All paths of sections and parameters.
std::vector<std::string> known_paths(const std::shared_ptr<const Registries>& registries) {
  const auto table = config::ParamTable::of(Scenario(registries));
  std::vector<std::string> paths;
  for (const auto& section : table.sections) paths.push_back(section.path);
  for (const auto& row : table.rows) paths.push_back(row.path);
  return paths;
}

void mark_as_axis(Node& node) {
  node.origin.layer = config::Layer::axis;
  for (Node& item : node.items) mark_as_axis(item);
  for (Entry& entry : node.entries) {
    entry.origin.layer = config::Layer::axis;
    mark_as_axis(entry.value);
  }
}

/// The shortest suffix of each path that is unique among the axes.
std::vector<std::string> short_names(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) {
    std::size_t start = axis.path.rfind('.');
    const auto ambiguous = [&](std::string_view suffix) {
      return std::count_if(axes.begin(), axes.end(), [&](const Axis& other) {
               return other.path == suffix || other.path.ends_with(fmt::format(".{}", suffix));
             }) > 1;
    };
    while (start != std::string::npos && start > 0 && ambiguous(std::string_view(axis.path).substr(start + 1))) {
      start = axis.path.rfind('.', start - 1);
    }
    names.push_back(start == std::string::npos ? axis.path : axis.path.substr(start + 1));
  }
  return names;
}

/// Keeps letters, digits and a few signs that are safe in file names.
std::string file_safe(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' || c == '+') {
      out += c;
    } else if (c == '/' && text.substr(i) == "/s") {
      return out + "ps";
    } else if (c != ' ') {
      out += '-';
    }
  }
  return out;
}

}  // namespace

std::string axis_value_text(const Node& value) {
  if (value.kind == Node::Kind::scalar) return value.scalar;
  if (value.kind == Node::Kind::list) {
    std::vector<std::string> items;
    for (const Node& item : value.items) items.push_back(axis_value_text(item));
    return fmt::format("[{}]", join(items));
  }
  // "host-kv(attention: host)": what the map is, then what it changes.
  std::string what;
  std::vector<std::string> items;
  for (const Entry& entry : value.entries) {
    const bool names = entry.key == "kind" || entry.key == "preset";
    if (names && what.empty() && entry.value.kind == Node::Kind::scalar)
      what = entry.value.scalar;
    else
      items.push_back(fmt::format("{}: {}", entry.key, axis_value_text(entry.value)));
  }
  if (what.empty()) return fmt::format("{{{}}}", join(items));
  return items.empty() ? what : fmt::format("{}({})", what, join(items));
}

std::vector<Axis> read_axes(const Node& sweep, const std::shared_ptr<const Registries>& registries,
                            config::Diagnostics& diagnostics) {
  std::vector<Axis> axes;
  const Entry* list = sweep.find("axes");
  for (const Entry& entry : sweep.entries) {
    if (entry.key != "axes") {
      diagnostics.error(entry.origin, fmt::format("unknown key '{}' in sweep; exists: axes", printable(entry.key)));
    }
  }
  if (!list || !list->value.is_map() || list->value.entries.empty()) {
    diagnostics.error(list ? list->origin : sweep.origin, "sweep: expected axes: {PATH: [values], ...}");
    return axes;
  }
  const auto paths = known_paths(registries);
  std::size_t points = 1;
  for (const Entry& entry : list->value.entries) {
    if (std::find(paths.begin(), paths.end(), entry.key) == paths.end()) {
      diagnostics.error(entry.origin, fmt::format("sweep.axes: unknown path '{}'{}", printable(entry.key, 120),
                                                  did_you_mean(entry.key, paths)));
      continue;
    }
    if (entry.value.kind != Node::Kind::list || entry.value.items.empty()) {
      diagnostics.error(entry.origin, fmt::format("sweep.axes: {} needs a list of values", entry.key));
      continue;
    }
    std::set<std::string> seen;
    for (const Node& value : entry.value.items) {
      if (value.kind == Node::Kind::null) {
        diagnostics.error(value.origin, fmt::format("sweep.axes: {} has an empty value", entry.key));
      } else if (value.kind == Node::Kind::scalar && !seen.insert(value.scalar).second) {
        diagnostics.error(value.origin,
                          fmt::format("sweep.axes: {} has the value '{}' twice", entry.key, printable(value.scalar)));
      }
    }
    axes.push_back({entry.key, entry.origin, entry.value.items});
    for (Node& value : axes.back().values) mark_as_axis(value);
    points *= axes.back().values.size();
    if (points > kMaxSweepPoints) {
      diagnostics.error(entry.origin, fmt::format("sweep.axes: more than {} points", kMaxSweepPoints));
      return {};
    }
  }
  for (const Axis& axis : axes) {
    for (const Axis& other : axes) {
      if (axis.path.starts_with(fmt::format("{}.", other.path))) {
        diagnostics.error(axis.origin,
                          fmt::format("sweep.axes: {} lies inside {}, which is an axis, too", axis.path, other.path));
      }
    }
  }
  return axes;
}

std::vector<AxisPoint> axis_points(const std::vector<Axis>& axes) {
  if (axes.empty()) return {};
  const auto names = short_names(axes);
  std::vector<AxisPoint> points;
  std::set<std::string> taken;
  std::vector<std::size_t> indices(axes.size(), 0);
  while (true) {
    std::vector<std::string> parts;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      parts.push_back(fmt::format("{}={}", names[a], file_safe(axis_value_text(axes[a].values[indices[a]]))));
    }
    std::string name = join(parts, ",");
    // File systems limit names to 255 bytes.
    if (name.size() > 200) name.resize(200);
    if (!taken.insert(name).second) {
      name += fmt::format("#{}", points.size());
      taken.insert(name);
    }
    points.push_back({std::move(name), indices});
    std::size_t axis = axes.size();
    while (axis > 0 && ++indices[axis - 1] == axes[axis - 1].values.size()) indices[--axis] = 0;
    if (axis == 0) return points;
  }
}

}  // namespace csdsim::scenario
