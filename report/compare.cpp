#include "report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/text.h"
#include "report/metric_direction.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::report {

using nlohmann::ordered_json;

namespace {

/// Results of one point, one per seed.
using Samples = std::vector<const ordered_json*>;
using Groups = std::vector<std::pair<std::string, Samples>>;

std::string text_of(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

Groups groups_of(const std::vector<ComparedPoint>& points) {
  Groups groups;
  for (const ComparedPoint& point : points) {
    std::vector<std::string> parts;
    for (const auto& [path, value] : point.axes)
      if (path != "seed") parts.push_back(fmt::format("{}={}", path.substr(path.rfind('.') + 1), text_of(value)));
    const std::string name = join(parts);
    auto found = std::ranges::find(groups, name, &Groups::value_type::first);
    if (found == groups.end()) found = groups.insert(groups.end(), {name, {}});
    found->second.push_back(&point.result);
  }
  return groups;
}

/// Mean of a metric over the samples, and half the width in which chance puts it.
struct Estimate {
  double mean = 0;
  double standard_error = 0;
  double sampling = 0;  ///< estimated error of sampled runs
};

std::optional<Estimate> estimate(const Samples& samples, const std::string& metric) {
  std::vector<double> values;
  Estimate result;
  for (const ordered_json* sample : samples) {
    const ordered_json& metrics = (*sample)["metrics"];
    if (!metrics.contains(metric) || !metrics[metric].is_number()) return std::nullopt;
    values.push_back(metrics[metric].get<double>());
    result.mean += values.back() / static_cast<double>(samples.size());
    if (const auto error = metrics.find("relative_error_estimate"); error != metrics.end() && error->is_number())
      result.sampling = std::max(result.sampling, error->get<double>());
  }
  if (metric.ends_with("error_estimate")) result.sampling = 0;
  result.sampling *= std::abs(result.mean);
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  const auto n = static_cast<double>(values.size());
  result.standard_error = std::sqrt(squares / (n - 1) / n);
  return result;
}

void flatten(const ordered_json& value, const std::string& path, std::map<std::string, ordered_json>& out) {
  if (!value.is_object()) {
    out[path] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten(inner, path.empty() ? key : path + "." + key, out);
}

class Comparison {
 public:
  void add(const std::string& point, const Samples& a, const Samples& b) {
    ++points_;
    add_parameters(*a.front(), *b.front(), a.size() > 1 || b.size() > 1);
    for (const auto& [metric, unused] : (*a.front())["metrics"].items()) add_metric(point, metric, a, b);
    for (const auto& [metric, unused] : (*b.front())["metrics"].items())
      if (!(*a.front())["metrics"].contains(metric)) add_metric(point, metric, a, b);
  }

  ordered_json document() const {
    ordered_json parameters = ordered_json::array();
    for (const auto& [change, points] : parameters_)
      parameters.push_back({{"path", std::get<0>(change)},
                            {"a", ordered_json::parse(std::get<1>(change))},
                            {"b", ordered_json::parse(std::get<2>(change))},
                            {"points", points}});
    return {{"parameters", parameters},
            {"summary", summary()},
            {"metrics", metrics_},
            {"metrics_only_in_a", ordered_json(only_in_a_)},
            {"metrics_only_in_b", ordered_json(only_in_b_)},
            {"points", points_},
            {"equal", equal_}};
  }

 private:
  /// Metrics that are better, worse, or have changed and are neither: in how many points, and by how much.
  ordered_json summary() const {
    ordered_json sides{
        {"better", ordered_json::array()}, {"worse", ordered_json::array()}, {"changed", ordered_json::array()}};
    for (const ordered_json& row : metrics_) {
      const Better good = better_of(row["metric"].get_ref<const std::string&>());
      const bool more = row["b"].get<double>() > row["a"].get<double>();
      ordered_json& side = sides[good == Better::neither          ? "changed"
                                 : more == (good == Better::more) ? "better"
                                                                  : "worse"];
      auto found = std::ranges::find(side, row["metric"], [](const ordered_json& of) { return of["metric"]; });
      if (found == side.end()) {
        side.push_back({{"metric", row["metric"]}, {"points", 0}, {"least", row["change"]}, {"most", row["change"]}});
        found = side.end() - 1;
      }
      (*found)["points"] = (*found)["points"].get<std::size_t>() + 1;
      if (row["change"].is_null()) continue;
      for (const auto& [bound, beyond] : {std::pair{"least", -1.0}, std::pair{"most", 1.0}})
        if ((*found)[bound].is_null() || beyond * (row["change"].get<double>() - (*found)[bound].get<double>()) > 0)
          (*found)[bound] = row["change"];
    }
    return sides;
  }

  /// Several samples have several seeds, which are noise; of one sample the seed may be why it differs.
  void add_parameters(const ordered_json& a, const ordered_json& b, bool seeds_are_samples) {
    std::map<std::string, ordered_json> before, after;
    flatten(a.value("scenario", ordered_json::object()), "", before);
    flatten(b.value("scenario", ordered_json::object()), "", after);
    for (const auto& [path, value] : before)
      if (!after.contains(path))
        ++parameters_[{path, value.dump(), "null"}];
      else if (after[path] != value && !(path == "seed" && seeds_are_samples))
        ++parameters_[{path, value.dump(), after[path].dump()}];
    for (const auto& [path, value] : after)
      if (!before.contains(path)) ++parameters_[{path, "null", value.dump()}];
  }

  void add_metric(const std::string& point, const std::string& metric, const Samples& a, const Samples& b) {
    const auto before = estimate(a, metric), after = estimate(b, metric);
    if (!before || !after) {
      if (before) only_in_a_.insert(metric);
      if (after) only_in_b_.insert(metric);
      return;
    }
    const double noise =
        2 * std::hypot(before->standard_error, after->standard_error) + before->sampling + after->sampling;
    const double change = after->mean - before->mean;
    // Sums of doubles in another order differ in their last digits.
    if (std::abs(change) <= noise + 1e-12 * std::abs(before->mean)) {
      ++equal_;
      return;
    }
    const auto relative = [&](double value) {
      return before->mean == 0 ? ordered_json(nullptr) : ordered_json(value / std::abs(before->mean));
    };
    metrics_.push_back({{"point", point},
                        {"metric", metric},
                        {"a", before->mean},
                        {"b", after->mean},
                        {"change", relative(change)},
                        {"noise", relative(noise)}});
  }

  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> parameters_;
  ordered_json metrics_ = ordered_json::array();
  std::set<std::string> only_in_a_, only_in_b_;  ///< metrics with a value in one of the results only
  std::size_t points_ = 0, equal_ = 0;
};

std::string percent(const ordered_json& share, bool sign) {
  if (share.is_null()) return "-";
  return fmt::format(fmt::runtime(sign ? "{:+.3g} %" : "{:.3g} %"), share.get<double>() * 100);
}

/// What is better and what is worse, a line for each metric.
std::string summary_text(const ordered_json& comparison) {
  const ordered_json& summary = comparison["summary"];
  const std::size_t points = comparison["points"];
  std::string text = fmt::format(
      "{} point{} compared: {} metrics are better, {} worse, {} have changed and are neither; {} figures are "
      "unchanged.\n",
      points, points == 1 ? "" : "s", summary["better"].size(), summary["worse"].size(), summary["changed"].size(),
      comparison["equal"].get<std::size_t>());
  for (const char* const side : {"worse", "better"}) {
    for (const ordered_json& row : summary[side]) {
      const std::string least = percent(row["least"], true), most = percent(row["most"], true);
      text +=
          fmt::format("  {}: {}{}{}\n", side, row["metric"].get<std::string>(),
                      points == 1 ? "" : fmt::format(" in {} of {} points", row["points"].get<std::size_t>(), points),
                      row["least"].is_null() ? "" : ", " + (least == most ? most : least + " to " + most));
    }
  }
  return text;
}

}  // namespace

ordered_json compare_results(const std::vector<ComparedPoint>& a, const std::vector<ComparedPoint>& b) {
  const Groups before = groups_of(a), after = groups_of(b);
  Comparison comparison;
  ordered_json only_a = ordered_json::array(), only_b = ordered_json::array(), build = ordered_json::object();
  for (const auto& [point, samples] : before) {
    const auto found = std::ranges::find(after, point, &Groups::value_type::first);
    if (found == after.end())
      only_a.push_back(point);
    else
      comparison.add(point, samples, found->second);
  }
  for (const auto& [point, samples] : after)
    if (std::ranges::find(before, point, &Groups::value_type::first) == before.end()) only_b.push_back(point);
  const ordered_json old_build = a.front().result.value("build", ordered_json::object());
  const ordered_json new_build = b.front().result.value("build", ordered_json::object());
  for (const auto& [name, value] : old_build.items())
    if (new_build.value(name, ordered_json()) != value) build[name] = {value, new_build.value(name, ordered_json())};
  ordered_json document{{"build", build}};
  document.update(comparison.document());
  document["only_in_a"] = only_a;
  document["only_in_b"] = only_b;
  return document;
}

std::string comparison_text(const ordered_json& comparison) {
  std::string text = summary_text(comparison);
  for (const char* const side : {"a", "b"}) {
    const std::vector<std::string> points = comparison[fmt::format("only_in_{}", side)];
    if (!points.empty()) text += fmt::format("Only in {}: {}.\n", side, join(points, "; "));
    const std::vector<std::string> metrics = comparison[fmt::format("metrics_only_in_{}", side)];
    if (!metrics.empty()) text += fmt::format("Metrics with a value in {} only: {}.\n", side, join(metrics));
  }
  for (const auto& [name, values] : comparison["build"].items())
    text += fmt::format("Build: {} {} -> {}\n", name, text_of(values[0]), text_of(values[1]));
  for (const ordered_json& row : comparison["parameters"])
    text += fmt::format("Parameter: {} {} -> {} ({} point{})\n", row["path"].get<std::string>(), text_of(row["a"]),
                        text_of(row["b"]), row["points"].get<std::size_t>(), row["points"] == 1 ? "" : "s");
  const ordered_json& metrics = comparison["metrics"];
  const std::size_t equal = comparison["equal"];
  if (metrics.empty()) return text + fmt::format("No metric has changed beyond noise ({} compared).\n", equal);
  Table table({"point", "metric", "a", "b", "change", "noise"});
  for (const ordered_json& row : metrics) {
    const std::string metric = row["metric"];
    table.add_row({row["point"], metric, metric_text(metric, row["a"]), metric_text(metric, row["b"]),
                   percent(row["change"], true), percent(row["noise"], false)});
  }
  return text + "\n" + table.to_text() + fmt::format("{} further metrics have not changed beyond noise.\n", equal);
}

}  // namespace csdsim::report
