// Chooses which points of a grid to look at, where they are too many to look at each.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace csdsim::launch {

/// Searches for the point with the largest merit by local searches from several points: COBYLA of NLopt
/// (linear models; Powell 1994) over the coordinates, rounded to those of a point. The first search starts at point 0,
/// the others at random points. Several of them advance side by side, so that their points can be simulated at the same
/// time. The choice depends on the points and their merits only.
///
///   GridSearch search(coordinates, 100);
///   for (auto points = search.next(); !points.empty(); points = search.next())
///     for (std::size_t point : points) search.tell(point, merit_of(point));
class GridSearch {
 public:
  using Coordinates = std::vector<std::size_t>;

  /// `points` are the coordinates of all points, all different. A place of the grid may have no point. At most
  /// `evaluations` points are chosen.
  GridSearch(std::vector<Coordinates> points, std::size_t evaluations);

  /// Points to look at now, each for the first time; none at the end. Precondition: those before have been told.
  std::vector<std::size_t> next();
  /// The merit of a point, above -1e200; nothing if it has none, because it failed.
  void tell(std::size_t point, std::optional<double> merit) { merits_[point] = merit; }

 private:
  static constexpr std::size_t kSideBySide = 4;

  /// The first point without a merit that a local search from `start` wants; nothing if the search ends before.
  std::optional<std::size_t> first_unknown(std::size_t start) const;
  /// What a local search from `start` minimises.
  struct Descent;

  std::vector<Coordinates> points_;  ///< without axes on which all points are equal, or that another axis repeats
  std::size_t evaluations_;
  std::map<Coordinates, std::size_t> index_;
  std::vector<std::size_t> starts_;   ///< all points in the order in which searches start there
  std::size_t next_start_ = 0;        ///< in `starts_`
  std::vector<std::size_t> running_;  ///< points where the searches started that have not ended
  std::map<std::size_t, std::optional<double>> merits_;
};

}  // namespace csdsim::launch
