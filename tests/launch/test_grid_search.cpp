// The choice of points by an optimiser, on functions whose best points are known.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/rng.h"
#include "launch/grid_search.h"

namespace test_grid_search {

using csdsim::Rng;
using csdsim::launch::GridSearch;
using Coordinates = GridSearch::Coordinates;
using Merit = std::function<std::optional<double>(const Coordinates&)>;

namespace {

std::vector<Coordinates> grid(const Coordinates& sizes) {
  std::vector<Coordinates> points{{}};
  for (const std::size_t size : sizes) {
    std::vector<Coordinates> longer;
    for (const Coordinates& point : points)
      for (std::size_t i = 0; i < size; ++i) {
        longer.push_back(point);
        longer.back().push_back(i);
      }
    points = std::move(longer);
  }
  return points;
}

struct Outcome {
  std::vector<std::size_t> looked_at;
  std::optional<double> best;
};

Outcome search(const std::vector<Coordinates>& points, std::size_t evaluations, const Merit& merit) {
  Outcome outcome;
  GridSearch search(points, evaluations);
  for (auto chosen = search.next(); !chosen.empty(); chosen = search.next())
    for (const std::size_t point : chosen) {
      const auto value = merit(points[point]);
      outcome.looked_at.push_back(point);
      if (value && (!outcome.best || *value > *outcome.best)) outcome.best = value;
      search.tell(point, value);
    }
  return outcome;
}

}  // namespace

TEST_CASE("each point is looked at once, and no more than asked") {
  const auto points = grid({5, 4, 3});
  const Merit flat = [](const Coordinates&) { return 1.0; };
  for (const std::size_t evaluations : {1, 2, 7, 59, 60, 1000}) {
    INFO("evaluations " << evaluations);
    const Outcome found = search(points, evaluations, flat);
    CHECK(found.looked_at.size() == std::min<std::size_t>(evaluations, 60));
    CHECK(std::set(found.looked_at.begin(), found.looked_at.end()).size() == found.looked_at.size());
    CHECK(found.looked_at.front() == 0);
  }
}

TEST_CASE("a search finds the top of smooth hills, and of those that a constraint cuts") {
  const auto points = grid({20, 15, 10});
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed);
    const double x = 20 * rng.unit(), y = 15 * rng.unit(), z = 10 * rng.unit();
    const bool cut = seed % 2 == 0;
    const Merit hill = [&](const Coordinates& at) -> std::optional<double> {
      const double a = double(at[0]) - x, b = double(at[1]) - y, c = double(at[2]) - z;
      if (cut && at[0] + at[1] + at[2] > 30) return std::nullopt;
      return -(a * a + b * b + c * c + a * b / 2);
    };
    std::vector<double> all;
    for (const Coordinates& point : points)
      if (const auto value = hill(point)) all.push_back(*value);
    std::ranges::sort(all, std::greater<>());
    const Outcome found = search(points, 150, hill);
    REQUIRE(found.best);
    CHECK(*found.best >= all[9]);  // one of the best ten of 3,000
    CHECK(search(points, 150, hill).looked_at == found.looked_at);
  }
}

TEST_CASE("a search finds a point that random points would hardly find") {
  const auto points = grid({32, 32, 8});
  const Merit peaks = [](const Coordinates& at) -> std::optional<double> {
    const auto peak = [&](double x, double y, double z, double height) {
      const double d = std::hypot(double(at[0]) - x, double(at[1]) - y, double(at[2]) - z);
      return height - d;
    };
    return std::max(peak(3, 4, 5, 30), peak(27, 25, 2, 32));
  };
  CHECK(*search(points, 200, peaks).best >= 30);
}

TEST_CASE("places without points, axes that advance together and axes with one value do no harm") {
  std::vector<Coordinates> points;
  for (std::size_t a = 0; a < 16; ++a)
    for (std::size_t b = 0; b < 16; ++b)
      if ((a + b) % 3 != 0 || a == b) points.push_back({a, 0, b, a});
  const Merit slope = [](const Coordinates& at) { return double(at[0]) - std::abs(double(at[2]) - 7); };
  const Outcome found = search(points, 80, slope);
  CHECK(*found.best >= 14);
  CHECK(found.looked_at.size() == 80);
}

TEST_CASE("where no point can be chosen the search still ends") {
  const Outcome found = search(grid({6, 6}), 100, [](const Coordinates&) { return std::nullopt; });
  CHECK(found.looked_at.size() == 36);
  CHECK_FALSE(found.best);
  CHECK(search({}, 10, {}).looked_at.empty());
  CHECK(search({{0}}, 10, [](const Coordinates&) { return 1.0; }).looked_at == std::vector<std::size_t>{0});
}

}  // namespace test_grid_search
