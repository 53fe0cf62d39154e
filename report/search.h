// The best among points: those that meet all constraints and that no other such point beats.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/formula.h"

namespace csdsim::report {

struct Objective {
  std::string metric;
  bool maximize = true;
};

/// What is searched for. Names are metrics, or paths into the result document ("resources.fits").
struct Search {
  std::vector<Objective> objectives;
  std::vector<Formula> constraints;  ///< hold where they are not 0
  std::size_t evaluations = 0;       ///< points that an optimiser may look at; 0: every point is looked at

  bool empty() const { return objectives.empty() && constraints.empty(); }
  /// Every name in objectives and constraints, once.
  std::vector<std::string> names() const;
  /// The same for equal searches.
  std::string text() const;
};

struct Found {
  std::vector<std::size_t> feasible;  ///< points that meet all constraints
  std::vector<std::size_t> front;     ///< points that no other one beats; with one objective the best
  std::vector<std::size_t> met;       ///< by constraint: points that meet it
};

/// `results` are the documents of the points; a point without document (null) failed and is left out. A point that
/// lacks a metric meets no constraint on it, and is not in the front. Throws UserError for a name that no point has.
Found search_points(const Search& search, const std::vector<nlohmann::ordered_json>& results);

/// How good a point is in a search with one objective: the larger, the better. A point that misses constraints is worse
/// than all others, and the worse the further the sides of a comparison are apart. Nothing if it lacks the metric.
std::optional<double> merit(const Search& search, const nlohmann::ordered_json& result);

/// The search and what it has found, as JSON. `points` is the number of points of the sweep; `labels` are those looked
/// at.
nlohmann::ordered_json search_document(const Search& search, const Found& found, const std::vector<std::string>& labels,
                                       std::size_t points);

/// How many points meet the constraints, and a table of the front; `labels` name the points looked at, of `points`.
std::string search_text(const Search& search, const Found& found, const std::vector<nlohmann::ordered_json>& results,
                        const std::vector<std::string>& labels, std::size_t points);

}  // namespace csdsim::report
