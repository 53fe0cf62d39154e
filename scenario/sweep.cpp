#include "scenario/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "scenario/axis_range.h"
#include "scenario/catalog.h"
#include "scenario/load.h"
#include "scenario/metrics.h"

namespace csdsim::scenario {
namespace {

using config::Entry;
using config::Node;

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

/// Reads one section `sweep`.
class SweepReader {
 public:
  SweepReader(const std::shared_ptr<const Registries>& registries, config::Diagnostics& diagnostics)
      : registries_(registries), paths_(parameter_paths(registries)), diagnostics_(diagnostics) {}

  Sweep read(const Node& sweep) {
    static const std::vector<std::string> keys{"axes",     "zip",        "where",      "maximize",
                                               "minimize", "subject_to", "evaluations"};
    for (const Entry& entry : sweep.entries)
      if (std::ranges::find(keys, entry.key) == keys.end())
        diagnostics_.error(entry.origin, fmt::format("unknown key '{}' in sweep{}; exists: {}", printable(entry.key),
                                                     did_you_mean(entry.key, keys), join(keys)));
    const Entry* const axes = sweep.find("axes");
    const Entry* const zip = sweep.find("zip");
    if (axes) read_axes(*axes, false);
    if (zip) read_axes(*zip, true);
    if (sweep_.axes.empty()) {
      if (!axes && !zip) diagnostics_.error(sweep.origin, "sweep: expected axes: {PATH: [values], ...}");
      return std::move(sweep_);
    }
    check_overlaps();
    for_each_text(sweep.find("where"), [&](const Node& text) { read_condition(text); });
    for (const char* const key : {"maximize", "minimize"})
      for_each_text(sweep.find(key), [&](const Node& text) {
        sweep_.search.objectives.push_back({text.scalar, key == std::string_view("maximize")});
        add_metric(text.scalar, text.origin);
      });
    for_each_text(sweep.find("subject_to"), [&](const Node& text) { read_constraint(text); });
    if (const Entry* const evaluations = sweep.find("evaluations")) read_evaluations(*evaluations);
    return std::move(sweep_);
  }

 private:
  /// `zip`: the axes of the map advance together.
  void read_axes(const Entry& list, bool zip) {
    if (!list.value.is_map() || list.value.entries.empty()) {
      diagnostics_.error(list.origin, fmt::format("sweep: expected {}: {{PATH: [values], ...}}", list.key));
      return;
    }
    std::vector<std::size_t> group;
    for (const Entry& entry : list.value.entries) {
      std::vector<Node> values = values_of(entry, list.key);
      if (values.empty()) continue;
      if (zip && !group.empty() && values.size() != sweep_.axes[group.front()].values.size()) {
        const Axis& first = sweep_.axes[group.front()];
        diagnostics_.error(entry.origin, fmt::format("sweep.zip: {} has {} values, {} has {}; they advance together",
                                                     entry.key, values.size(), first.path, first.values.size()));
        continue;
      }
      if (!zip) sweep_.groups.push_back({sweep_.axes.size()});
      group.push_back(sweep_.axes.size());
      sweep_.axes.push_back({entry.key, entry.origin, std::move(values)});
      check_repeats(sweep_.axes.back(), list.key, zip);
      for (Node& value : sweep_.axes.back().values) mark_as_axis(value);
    }
    if (zip && !group.empty()) sweep_.groups.push_back(std::move(group));
  }

  /// The values of an axis with its ranges expanded; empty after an error.
  std::vector<Node> values_of(const Entry& entry, const std::string& key) {
    if (entry.key == "name") {
      diagnostics_.error(entry.origin, fmt::format("sweep.{}: a name changes no result; each point has a name of its "
                                                   "own, made from its axes",
                                                   key));
      return {};
    }
    if (std::find(paths_.begin(), paths_.end(), entry.key) == paths_.end()) {
      diagnostics_.error(entry.origin, fmt::format("sweep.{}: unknown path '{}'{}", key, printable(entry.key, 120),
                                                   path_hint(entry.key, registries_)));
      return {};
    }
    std::vector<Node> values;
    const bool list = entry.value.kind == Node::Kind::list;
    for (const Node& item : list ? entry.value.items : std::vector<Node>{entry.value}) {
      try {
        const auto range = item.kind == Node::Kind::scalar ? expand_range(item.scalar, kMaxSweepPoints) : std::nullopt;
        if (!range && !list) break;
        Node value = item;
        for (const std::string& text : range.value_or(std::vector<std::string>{item.scalar})) {
          value.scalar = text;
          values.push_back(value);
        }
      } catch (const UserError& error) {
        diagnostics_.error(item.origin, fmt::format("sweep.{}: {}: {}", key, entry.key, error.what()));
        return {};
      }
    }
    if (values.empty())
      diagnostics_.error(entry.origin,
                         fmt::format("sweep.{}: {} needs a list of values, or a range such as 2..32 step 2, 1..64 "
                                     "times 2 or 0.7..2.8 GB/s log 3",
                                     key, entry.key));
    return values;
  }

  void check_repeats(const Axis& axis, const std::string& key, bool zip) {
    std::set<std::string> seen;
    for (const Node& value : axis.values) {
      if (value.kind == Node::Kind::null)
        diagnostics_.error(value.origin, fmt::format("sweep.{}: {} has an empty value", key, axis.path));
      else if (!zip && value.kind == Node::Kind::scalar && !seen.insert(value.scalar).second)
        diagnostics_.error(value.origin, fmt::format("sweep.{}: {} has the value '{}' twice", key, axis.path,
                                                     printable(value.scalar)));
    }
  }

  void check_overlaps() {
    for (std::size_t a = 0; a < sweep_.axes.size(); ++a)
      for (std::size_t b = 0; b < sweep_.axes.size(); ++b) {
        const Axis &axis = sweep_.axes[a], &other = sweep_.axes[b];
        if (axis.path.starts_with(fmt::format("{}.", other.path)))
          diagnostics_.error(
              axis.origin, fmt::format("sweep.axes: {} lies inside {}, which is an axis, too", axis.path, other.path));
        if (b < a && axis.path == other.path)
          diagnostics_.error(axis.origin, fmt::format("sweep.zip: {} is in axes, too", axis.path));
      }
  }

  /// Calls `use` with a text, or with each text of a list.
  template <class F>
  void for_each_text(const Entry* entry, const F& use) {
    if (!entry) return;
    const Node& value = entry->value;
    const std::vector<Node> items = value.kind == Node::Kind::list ? value.items : std::vector<Node>{value};
    if (items.empty()) diagnostics_.error(entry->origin, fmt::format("sweep.{}: is an empty list", entry->key));
    for (const Node& item : items) {
      try {
        if (item.kind != Node::Kind::scalar)
          throw UserError(fmt::format("expected a text, found {}", item.kind_name()));
        use(item);
      } catch (const UserError& error) {
        diagnostics_.error(item.origin, fmt::format("sweep.{}: {}", entry->key, error.what()));
      }
    }
  }

  void read_condition(const Node& text) {
    std::vector<Condition::Axis> axes;
    const std::vector<std::string> names = short_names(sweep_.axes);
    for (std::size_t a = 0; a < names.size(); ++a) {
      Condition::Axis& axis = axes.emplace_back(Condition::Axis{{names[a], sweep_.axes[a].path}, {}});
      for (const Node& value : sweep_.axes[a].values) axis.values.push_back(axis_value_text(value));
    }
    sweep_.where.emplace_back(Condition(text.scalar, axes), text.origin);
  }

  void read_constraint(const Node& text) {
    const Formula& constraint = sweep_.search.constraints.emplace_back(text.scalar);
    if (constraint.names().empty())
      throw UserError(fmt::format("'{}' names no metric; write e.g. energy_per_token_j < 3", printable(text.scalar)));
    for (const std::string& name : constraint.names()) add_metric(name, text.origin);
  }

  void read_evaluations(const Entry& entry) {
    const std::string& text = entry.value.scalar;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sweep_.search.evaluations);
    if (entry.value.kind != Node::Kind::scalar || error != std::errc() || end != text.data() + text.size() ||
        sweep_.search.evaluations < 1 || sweep_.search.evaluations > kMaxSweepPoints)
      diagnostics_.error(entry.origin,
                         fmt::format("sweep.evaluations: expected a count from 1 to {}", kMaxSweepPoints));
    else if (sweep_.search.objectives.size() != 1)
      diagnostics_.error(entry.origin, "sweep.evaluations: the optimiser needs one metric in maximize or minimize");
  }

  void add_metric(const std::string& name, const config::Origin& origin) {
    if (name.find('.') == std::string::npos) sweep_.metrics.emplace_back(name, origin);
  }

  const std::shared_ptr<const Registries>& registries_;
  std::vector<std::string> paths_;
  config::Diagnostics& diagnostics_;
  Sweep sweep_;
};

}  // namespace

std::string axis_value_text(const Node& value) {
  if (value.kind == Node::Kind::scalar) return value.scalar;
  if (value.kind == Node::Kind::list) {
    std::vector<std::string> items;
    for (const Node& item : value.items) items.push_back(axis_value_text(item));
    return fmt::format("[{}]", join(items));
  }
  if (value.entries.empty()) return "on";  // a section with its defaults, beside "off" or "none"
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

Sweep read_sweep(const Node& sweep, const std::shared_ptr<const Registries>& registries,
                 config::Diagnostics& diagnostics) {
  return SweepReader(registries, diagnostics).read(sweep);
}

void check_metrics(const Sweep& sweep, const std::string& workload, const Registries& registries,
                   config::Diagnostics& diagnostics) {
  if (sweep.metrics.empty()) return;
  const std::vector<std::string> known = metric_names(described_metrics(registries), workload);
  if (known.empty()) return;
  for (const auto& [name, origin] : sweep.metrics)
    if (std::ranges::find(known, name) == known.end())
      diagnostics.error(
          origin, fmt::format("sweep: a run of workload {} has no metric '{}'{}; docs/metrics.md lists them", workload,
                              printable(name), did_you_mean(name, known)));
}

std::vector<AxisPoint> sweep_points(const Sweep& sweep, config::Diagnostics& diagnostics) {
  if (sweep.axes.empty()) return {};
  std::size_t grid = 1;
  for (const auto& group : sweep.groups) {
    grid *= sweep.axes[group.front()].values.size();
    if (grid > (sweep.where.empty() ? kMaxSweepPoints : kMaxSweepGrid))
      throw UserError(fmt::format("sweep: more than {} {}", sweep.where.empty() ? kMaxSweepPoints : kMaxSweepGrid,
                                  sweep.where.empty() ? "points" : "points before the conditions of `where`"));
  }
  const auto names = short_names(sweep.axes);
  std::vector<AxisPoint> points;
  std::set<std::string> taken;
  std::vector<std::size_t> indices(sweep.axes.size(), 0);
  const auto advance = [&] {
    for (std::size_t g = sweep.groups.size(); g-- > 0;) {
      const auto& group = sweep.groups[g];
      const bool again = ++indices[group.front()] == sweep.axes[group.front()].values.size();
      for (const std::size_t axis : group) indices[axis] = again ? 0 : indices[group.front()];
      if (!again) return true;
    }
    return false;
  };
  const auto name_at_indices = [&] {
    std::vector<std::string> parts;
    for (std::size_t a = 0; a < sweep.axes.size(); ++a)
      parts.push_back(fmt::format("{}={}", names[a], file_safe(axis_value_text(sweep.axes[a].values[indices[a]]))));
    return join(parts, ",");
  };
  do {
    bool kept = true;
    for (const auto& [condition, origin] : sweep.where) {
      try {
        kept = kept && condition.holds(indices);
      } catch (const UserError& error) {
        diagnostics.error(origin, fmt::format("sweep.where: {}, at {}", error.what(), name_at_indices()));
        return {};
      }
    }
    if (!kept) continue;
    if (points.size() == kMaxSweepPoints) throw UserError(fmt::format("sweep: more than {} points", kMaxSweepPoints));
    std::string name = name_at_indices();
    // File systems limit names to 255 bytes.
    if (name.size() > 200) name.resize(200);
    if (!taken.insert(name).second) {
      name += fmt::format("#{}", points.size());
      taken.insert(name);
    }
    points.push_back({std::move(name), indices});
  } while (advance());
  if (points.empty()) throw UserError("sweep: no point meets the conditions of `where`");
  return points;
}

}  // namespace csdsim::scenario
