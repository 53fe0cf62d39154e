#include "report/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "report/result_lookup.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::report {

using nlohmann::ordered_json;

namespace {

void require_metrics(const Search& search, const std::vector<ordered_json>& results) {
  for (const std::string& name : search.names()) {
    std::set<std::string> known;
    const bool found = std::ranges::any_of(results, [&](const ordered_json& result) {
      for (const std::string& metric : metric_names(result)) known.insert(metric);
      return metric_of(result, name).has_value();
    });
    const std::vector<std::string> names(known.begin(), known.end());
    if (!found) throw UserError(fmt::format("no point has the metric '{}'{}", name, did_you_mean(name, names)));
  }
}

bool meets(const Formula& constraint, const ordered_json& result) {
  bool whole = true;
  const double value = constraint.evaluate([&](const std::string& name) {
    const auto metric = metric_of(result, name);
    whole = whole && metric.has_value();
    return metric.value_or(0);
  });
  return whole && value != 0;
}

/// Value of a point that misses constraints: larger than any metric.
constexpr double kMissed = 1e100;

/// How far a point misses a constraint: 0 if it meets it, otherwise up to 1. Of one comparison, the relative distance
/// of its two sides; 1 for other formulas.
double missed_by(const Formula& constraint, const ordered_json& result) {
  if (meets(constraint, result)) return 0;
  const std::string& text = constraint.text();
  const std::size_t at = text.find_first_of("<>=!"), after = text.find_first_not_of("<>=!", at);
  if (at == std::string::npos || after == std::string::npos ||
      text.find_first_of("<>=!&|?", after) != std::string::npos)
    return 1;
  try {
    const auto side = [&](const std::string& of) {
      return Formula(of).evaluate([&](const std::string& name) { return metric_of(result, name).value(); });
    };
    const double left = side(text.substr(0, at)), right = side(text.substr(after));
    const double share = std::abs(left - right) / (std::abs(left) + std::abs(right));
    return std::isfinite(share) ? std::clamp(share, 1e-9, 1.0) : 1;
  } catch (const UserError&) {  // a comparison inside brackets
    return 1;
  } catch (const std::bad_optional_access&) {
    return 1;
  }
}

/// The objectives of a point, all to be maximized; nothing if it lacks one.
std::optional<std::vector<double>> scores_of(const Search& search, const ordered_json& result) {
  std::vector<double> scores;
  for (const Objective& objective : search.objectives) {
    const auto value = metric_of(result, objective.metric);
    if (!value) return std::nullopt;
    scores.push_back(objective.maximize ? *value : -*value);
  }
  return scores;
}

/// True if `a` is at least as good everywhere and better somewhere.
bool beats(const std::vector<double>& a, const std::vector<double>& b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] < b[i]) return false;
    better = better || a[i] > b[i];
  }
  return better;
}

}  // namespace

std::vector<std::string> Search::names() const {
  std::set<std::string> all;
  for (const Objective& objective : objectives) all.insert(objective.metric);
  for (const Formula& constraint : constraints) all.insert(constraint.names().begin(), constraint.names().end());
  return {all.begin(), all.end()};
}

std::string Search::text() const {
  std::vector<std::string> parts;
  for (const Objective& objective : objectives)
    parts.push_back(fmt::format("{} {}", objective.maximize ? "most" : "least", objective.metric));
  for (const Formula& constraint : constraints) parts.push_back(constraint.text());
  if (evaluations > 0) parts.push_back(fmt::format("{} evaluations", evaluations));
  return join(parts);
}

Found search_points(const Search& search, const std::vector<ordered_json>& results) {
  require_metrics(search, results);
  Found found{.feasible = {}, .front = {}, .met = std::vector<std::size_t>(search.constraints.size(), 0)};
  std::vector<std::pair<std::size_t, std::vector<double>>> scored;
  for (std::size_t p = 0; p < results.size(); ++p) {
    if (results[p].is_null()) continue;
    bool feasible = true;
    for (std::size_t c = 0; c < search.constraints.size(); ++c) {
      const bool holds = meets(search.constraints[c], results[p]);
      found.met[c] += holds ? 1 : 0;
      feasible = feasible && holds;
    }
    if (!feasible) continue;
    found.feasible.push_back(p);
    if (auto scores = scores_of(search, results[p])) scored.emplace_back(p, std::move(*scores));
  }
  if (search.objectives.empty()) return found;
  for (const auto& one : scored)
    if (std::ranges::none_of(scored, [&](const auto& other) { return beats(other.second, one.second); }))
      found.front.push_back(one.first);
  return found;
}

std::optional<double> merit(const Search& search, const ordered_json& result) {
  double missed = 0;
  for (const Formula& constraint : search.constraints) missed += missed_by(constraint, result);
  if (missed > 0) return -kMissed * missed;
  const auto scores = scores_of(search, result);
  return scores ? std::optional(scores->front()) : std::nullopt;
}

ordered_json search_document(const Search& search, const Found& found, const std::vector<std::string>& labels,
                             std::size_t points) {
  const auto named = [&](const std::vector<std::size_t>& indices) {
    ordered_json names = ordered_json::array();
    for (const std::size_t point : indices) names.push_back(labels[point]);
    return names;
  };
  ordered_json document{{"objectives", ordered_json::array()}, {"constraints", ordered_json::array()}};
  for (const Objective& objective : search.objectives)
    document["objectives"].push_back({{"metric", objective.metric}, {"maximize", objective.maximize}});
  for (std::size_t c = 0; c < search.constraints.size(); ++c)
    document["constraints"].push_back({{"formula", search.constraints[c].text()}, {"points", found.met[c]}});
  document["points"] = points;
  document["looked_at"] = labels.size();
  document["feasible"] = named(found.feasible);
  document["front"] = named(found.front);
  return document;
}

std::string search_text(const Search& search, const Found& found, const std::vector<ordered_json>& results,
                        const std::vector<std::string>& labels, std::size_t points) {
  std::string text;
  if (search.evaluations > 0)
    text = fmt::format("The optimiser looked at {} of {} points; others may be better.\n", labels.size(), points);
  if (!search.constraints.empty()) {
    text += fmt::format("{} of {} points meet all constraints", found.feasible.size(), results.size());
    for (std::size_t c = 0; c < search.constraints.size(); ++c)
      text += fmt::format("{} {} meet {}", c == 0 ? ":" : ",", found.met[c], search.constraints[c].text());
    text += ".\n";
  }
  if (found.front.empty()) return text;
  std::vector<std::string> header{search.objectives.size() > 1 ? "points that no other point beats"
                                  : search.evaluations > 0     ? "best point found"
                                                               : "best point"};
  for (const Objective& objective : search.objectives)
    header.push_back(fmt::format("{} {}", objective.maximize ? "most" : "least", objective.metric));
  Table table(header);
  for (const std::size_t point : found.front) {
    std::vector<std::string> cells{labels[point]};
    for (const Objective& objective : search.objectives)
      cells.push_back(metric_text(objective.metric, *metric_of(results[point], objective.metric)));
    table.add_row(cells);
  }
  return text + table.to_text();
}

}  // namespace csdsim::report
