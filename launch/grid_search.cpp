#include "launch/grid_search.h"

#include <algorithm>
#include <cmath>
#include <nlopt.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/rng.h"

namespace csdsim::launch {

namespace {

/// Worse than all merits: a point that is not to be chosen, and a place without a point. The method wants numbers.
constexpr double kNotChosen = 1e200, kNoPoint = 2e200;

}  // namespace

struct GridSearch::Descent {
  const GridSearch& search;
  std::optional<std::size_t> unknown{};

  double value(const std::vector<double>& at) {
    Coordinates place(at.size());
    std::ranges::transform(at, place.begin(), [](double x) { return static_cast<std::size_t>(std::llround(x)); });
    const auto point = search.index_.find(place);
    if (point == search.index_.end()) return kNoPoint;
    const auto merit = search.merits_.find(point->second);
    if (merit == search.merits_.end()) {
      unknown = point->second;
      throw nlopt::forced_stop();
    }
    return merit->second ? -*merit->second : kNotChosen;
  }
};

GridSearch::GridSearch(std::vector<Coordinates> points, std::size_t evaluations)
    : points_(points.size()), evaluations_(std::min(evaluations, points.size())), starts_(points.size()) {
  std::set<Coordinates> columns;
  for (std::size_t axis = 0; !points.empty() && axis < points.front().size(); ++axis) {
    Coordinates column;
    for (const Coordinates& point : points) column.push_back(point[axis]);
    const bool constant = std::ranges::count(column, column.front()) == std::ssize(column);
    if (constant || !columns.insert(column).second) continue;
    for (std::size_t p = 0; p < points.size(); ++p) points_[p].push_back(column[p]);
  }
  for (std::size_t p = 0; p < points_.size(); ++p) index_.emplace(points_[p], p);
  std::iota(starts_.begin(), starts_.end(), std::size_t{0});
  Rng rng(0, "grid search");
  for (std::size_t left = starts_.size(); left > 2; --left)  // point 0 stays first
    std::swap(starts_[left - 1], starts_[1 + rng.below(left - 1)]);
}

std::vector<std::size_t> GridSearch::next() {
  std::set<std::size_t> chosen;
  std::vector<std::size_t> running;
  std::size_t at = 0;
  while (running.size() < kSideBySide && merits_.size() + chosen.size() < evaluations_) {
    if (at == running_.size()) {
      if (next_start_ == starts_.size()) break;
      running_.push_back(starts_[next_start_++]);
    }
    const std::size_t start = running_[at++];
    const std::optional<std::size_t> point = first_unknown(start);
    if (!point) continue;
    running.push_back(start);
    chosen.insert(*point);
  }
  running_ = std::move(running);
  return {chosen.begin(), chosen.end()};
}

std::optional<std::size_t> GridSearch::first_unknown(std::size_t start) const {
  if (!merits_.contains(start)) return start;
  const std::size_t axes = points_[start].size();
  if (axes == 0) return std::nullopt;
  std::vector<double> at(points_[start].begin(), points_[start].end()), high(axes, 0), step;
  for (const Coordinates& point : points_)
    for (std::size_t a = 0; a < axes; ++a) high[a] = std::max(high[a], static_cast<double>(point[a]));
  for (const double last : high) step.push_back(std::max(1.0, last / 4));
  Descent descent{*this};
  nlopt::opt method(nlopt::LN_COBYLA, static_cast<unsigned>(axes));
  method.set_min_objective([](const std::vector<double>& place, std::vector<double>&,
                              void* data) { return static_cast<Descent*>(data)->value(place); },
                           &descent);
  method.set_lower_bounds(0);
  method.set_upper_bounds(high);
  method.set_initial_step(step);
  method.set_xtol_abs(0.4);  // closer places have the same point
  method.set_maxeval(static_cast<int>(200 * axes));
  double least = 0;
  try {
    method.optimize(at, least);
  } catch (const nlopt::roundoff_limited&) {  // the search has ended
  } catch (const nlopt::forced_stop&) {       // at an unknown point
  }
  return descent.unknown;
}

}  // namespace csdsim::launch
