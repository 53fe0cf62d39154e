#include "report/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "report/metric_direction.h"
#include "report/page_files.h"
#include "report/page_parts.h"

namespace csdsim::report {

namespace {

using nlohmann::ordered_json;

/// A number with nine digits: charts need no more, and a page of many points stays small.
ordered_json rounded(const ordered_json& value) {
  if (!value.is_number_float()) return value;
  return ordered_json::parse(fmt::format("{:.9g}", value.get<double>()), nullptr, false);
}

/// Values by name, each as a list with a value for each point, null where a point has none.
class Columns {
 public:
  explicit Columns(std::size_t points) : points_(points) {}

  void put(const std::string& name, std::size_t point, const ordered_json& value) {
    const auto [at, added] = index_.try_emplace(name, names_.size());
    if (added) {
      names_.push_back(name);
      values_.emplace_back(points_, ordered_json(nullptr));
    }
    values_[at->second][point] = rounded(value);
  }
  ordered_json json() const {
    ordered_json all = ordered_json::object();
    for (std::size_t i = 0; i < names_.size(); ++i) all[names_[i]] = values_[i];
    return all;
  }

 private:
  std::size_t points_;
  std::map<std::string, std::size_t> index_;
  std::vector<std::string> names_;
  std::vector<std::vector<ordered_json>> values_;
};

/// The values of an axis as numbers, or null if one is none.
ordered_json numbers_of(const std::vector<ordered_json>& values, const NumberOf& number_of) {
  ordered_json numbers = ordered_json::array();
  for (const ordered_json& value : values) {
    if (value.is_null()) return nullptr;
    const auto number = value.is_string() ? number_of(value.get<std::string>()) : std::nullopt;
    if (value.is_string() && !number) return nullptr;
    numbers.push_back(number ? ordered_json(*number) : value);
  }
  return numbers;
}

/// The axes: their values in the order of the sweep, and which of them each point has.
ordered_json axes_of(const std::vector<PagePoint>& points, const NumberOf& number_of) {
  ordered_json axes = ordered_json::array();
  for (std::size_t a = 0; a < points.front().axes.size(); ++a) {
    std::vector<ordered_json> values;
    ordered_json at = ordered_json::array();
    std::unordered_map<std::string, std::size_t> known;  // by the value as JSON
    for (const PagePoint& point : points) {
      const ordered_json& value = point.axes.at(a).second;
      const auto [found, is_new] = known.try_emplace(value.dump(), values.size());
      if (is_new) values.push_back(value);
      at.push_back(found->second);
    }
    axes.push_back({{"path", points.front().axes[a].first},
                    {"values", values},
                    {"numbers", numbers_of(values, number_of)},
                    {"at", at}});
  }
  return axes;
}

ordered_json metrics_of(const std::vector<PagePoint>& points) {
  Columns columns(points.size());
  for (std::size_t p = 0; p < points.size(); ++p) {
    if (!points[p].error.empty()) continue;
    const ordered_json metrics = points[p].result.value("metrics", ordered_json::object());
    for (const auto& [name, value] : metrics.items())
      if (value.is_number()) columns.put(name, p, value);
  }
  return columns.json();
}

/// Utilisation, critical path and what binds, by phase.
ordered_json phases_of(const std::vector<PagePoint>& points) {
  struct Phase {
    Columns utilization, path;
    ordered_json bound_by;
  };
  std::map<std::string, Phase> phases;
  for (std::size_t p = 0; p < points.size(); ++p) {
    if (!points[p].error.empty()) continue;
    const ordered_json breakdown = points[p].result.value("breakdown", ordered_json::object());
    for (const auto& [name, phase] : breakdown.items()) {
      if (!phase.is_object() || !phase.contains("utilization")) continue;
      const std::vector<ordered_json> none(points.size(), nullptr);
      Phase& of = phases.try_emplace(name, Phase{Columns(points.size()), Columns(points.size()), none}).first->second;
      if (phase.contains("bound_by")) of.bound_by[p] = phase["bound_by"];
      if (phase.contains("bound_by") && phase.contains("waits_for"))
        of.bound_by[p] = phase["bound_by"].get<std::string>() + "; requests are in " +
                         phase["waits_for"].get_ref<const std::string&>();
      for (const auto& [resource, share] : phase["utilization"].items()) of.utilization.put(resource, p, share);
      const ordered_json path = phase.value("critical_path_s", ordered_json::object());
      for (const auto& [part, seconds] : path.items()) of.path.put(part, p, seconds);
    }
  }
  ordered_json all = ordered_json::object();
  for (const auto& [name, phase] : phases)
    all[name] = {{"bound_by", phase.bound_by},
                 {"utilization", phase.utilization.json()},
                 {"critical_path_s", phase.path.json()}};
  return all;
}

/// Curves of each point ("series": over time, "distributions"), null where it has none. Of large sweeps none, so that
/// the page stays small.
ordered_json curves_of(const std::vector<PagePoint>& points, const char* name) {
  constexpr std::size_t kMost = 64;
  ordered_json all = ordered_json::array();
  if (points.size() > kMost) return all;
  for (const PagePoint& point : points)
    all.push_back(point.error.empty() ? point.result.value(name, ordered_json(nullptr)) : ordered_json(nullptr));
  return std::ranges::all_of(all, &ordered_json::is_null) ? ordered_json::array() : all;
}

/// Mean times of the requests of one run by their stages, in ns; of a sweep none.
ordered_json stages_of(const std::vector<PagePoint>& points) {
  if (points.size() > 1) return ordered_json::object();
  const ordered_json breakdown = points.front().result.value("breakdown", ordered_json::object());
  return breakdown.value("latency_stages", ordered_json::object());
}

/// The leaves of a configuration as {path, value, origin}.
void add_parameters(const ordered_json& value, const std::string& path, const ordered_json& origins,
                    ordered_json& rows) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items())
      add_parameters(inner, path.empty() ? key : fmt::format("{}.{}", path, key), origins, rows);
    return;
  }
  rows.push_back({path, value.is_string() ? value : ordered_json(value.dump()), origins.value(path, "")});
}

/// For each metric that has one: which side is better.
ordered_json sides_of(const ordered_json& metrics) {
  ordered_json sides = ordered_json::object();
  for (const auto& [name, unused] : metrics.items())
    if (const Better better = better_of(name); better != Better::neither)
      sides[name] = better == Better::more ? "more" : "less";
  return sides;
}

/// For each metric that has one: what it means.
ordered_json meanings_of(const Page& page, const ordered_json& metrics) {
  ordered_json meanings = ordered_json::object();
  for (const auto& [name, unused] : metrics.items())
    if (const auto found = page.meanings.find(name); found != page.meanings.end()) meanings[name] = found->second;
  return meanings;
}

std::string summary(const Page& page, const ordered_json& axes, std::size_t failed) {
  std::string text = fmt::format("{} point{}", page.points.size(), page.points.size() == 1 ? "" : "s");
  for (std::size_t a = 0; a < axes.size(); ++a)
    text += fmt::format("{} {} ({} value{})", a == 0 ? " over" : " x", axes[a]["path"].get<std::string>(),
                        axes[a]["values"].size(), axes[a]["values"].size() == 1 ? "" : "s");
  if (failed > 0) text += fmt::format("; {} failed", failed);
  return text + ".";
}

ordered_json data_of(const Page& page, const NumberOf& number_of) {
  const auto good = std::ranges::find_if(page.points, [](const PagePoint& p) { return p.error.empty(); });
  if (good == page.points.end()) throw InternalError("a page about no result");
  const ordered_json axes = axes_of(page.points, number_of), metrics = metrics_of(page.points);
  ordered_json errors = ordered_json::array();
  for (const PagePoint& point : page.points) errors.push_back(point.error);
  ordered_json parameters = ordered_json::array();
  const ordered_json config = good->result.value("scenario", ordered_json::object());
  add_parameters(config, "", page.origins, parameters);
  return {{"name", page.name},
          {"question", page.question},
          {"summary", summary(page, axes,
                              static_cast<std::size_t>(std::ranges::count_if(
                                  page.points, [](const PagePoint& p) { return !p.error.empty(); })))},
          {"points", page.points.size()},
          {"headline", headline(metrics)},
          {"axes", axes},
          {"metrics", metrics},
          {"better", sides_of(metrics)},
          {"meanings", meanings_of(page, metrics)},
          {"phases", phases_of(page.points)},
          {"stages", stages_of(page.points)},
          {"series", curves_of(page.points, "series")},
          {"distributions", curves_of(page.points, "distributions")},
          {"errors", errors},
          {"build", good->result.value("build", ordered_json::object())},
          {"seed", good->result.value("seed", ordered_json(nullptr))},
          {"statement", good->result.value("stats", ordered_json::object()).value("simulated", "")},
          {"config_of", good - page.points.begin()},
          {"config", config},
          {"parameters", parameters}};
}

}  // namespace

std::string headline(const ordered_json& metrics) {
  for (const char* const name : {"request_ttft_mean_s", "decode_tokens_per_s", "iops", "tokens_per_s"})
    if (metrics.contains(name)) return name;
  return metrics.empty() ? "" : metrics.begin().key();
}

std::string html_page(const Page& page, const NumberOf& number_of) {
  return filled_page("page.html", page.name, data_of(page, number_of),
                     fmt::format("{}\n{}\n{}\n{}", page_file("helpers.js"), page_file("model.js"),
                                 page_file("charts.js"), page_file("page.js")));
}

}  // namespace csdsim::report
