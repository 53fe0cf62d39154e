// Formulas over the metrics of points.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "reproduction/expression.h"

namespace test_expression {

using namespace csdsim;
using namespace csdsim::reproduction;
using Catch::Matchers::Contains;

namespace {

/// The value of a formula in which `a.x` is 6 and `b.stats.drives.0.y` is 4.
double value(const std::string& text) {
  return Expression(text).evaluate([](const MetricName& name) {
    if (name.text() == "a.x") return 6.0;
    if (name.text() == "b.stats.drives.0.y") return 4.0;
    throw UserError("asked for " + name.text());
  });
}

}  // namespace

TEST_CASE("arithmetic, comparisons and functions") {
  CHECK(value("a.x / b.stats.drives.0.y") == 1.5);
  CHECK(value("100 * (1 - b.stats.drives.0.y / a.x)") == Approx(100.0 / 3));
  CHECK(value("max(a.x, b.stats.drives.0.y, 5) + abs(-1)") == 7);
  CHECK(value("a.x > 5 && b.stats.drives.0.y > 5") == 0);
  CHECK(value("a.x > 5 || b.stats.drives.0.y > 5") == 1);
  CHECK(value("a.x > 5 ? 2 : 3") == 2);
  CHECK(value("2.5 * a.x") == 15);
  CHECK(value("3 * GiB") == 3.0 * (1 << 30));
  CHECK(value("2 * KiB + 1 * kB + MB / TB") == Approx(3048).margin(1e-3));
  CHECK(std::isinf(value("1 / (a.x - 6)")));
}

TEST_CASE("a formula knows its names") {
  std::vector<std::string> names;
  const Expression two("b.x + a.y * a.y - GiB");
  for (const MetricName& name : two.names()) names.push_back(name.text());
  CHECK(names == std::vector<std::string>{"a.y", "b.x"});
  const Expression path("b.stats.z");
  CHECK(path.names().front().point == "b");
  CHECK(path.names().front().metric == "stats.z");
}

TEST_CASE("what is no formula is refused") {
  CHECK_THROWS_WITH(Expression("a.x +"), Contains("'a.x +' is not a formula: ") && Contains("end of expression"));
  CHECK_THROWS_WITH(Expression("(a.x"), Contains("parenthesis"));
  CHECK_THROWS_WITH(Expression("nothing(a.x)"), Contains("nothing"));
  CHECK_THROWS_WITH(Expression("a.x, a.x"), Contains("several results"));
  CHECK_THROWS_WITH(Expression("a"), "'a' is not a metric of a point: write POINT.METRIC");
  CHECK_THROWS_WITH(Expression("a."), "'a.' is not a metric of a point: write POINT.METRIC");
  CHECK_THROWS_WITH(Expression("A.x"), "'A.x' is not a metric of a point: write POINT.METRIC");
  CHECK_THROWS_WITH(Expression("a.x = 3"), "'a.x = 3' is not a formula: write == to compare");
  CHECK(value("a.x == 6 && a.x != 5 && a.x <= 6 && a.x >= 6") == 1);
}

TEST_CASE("names of points") {
  CHECK(is_point_name("dense_b64"));
  for (const char* const name : {"", "Dense", "64", "a-b", "_a", "a b"}) CHECK_FALSE(is_point_name(name));
}

}  // namespace test_expression
