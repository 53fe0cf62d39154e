#include "reproduction/definition_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace csdsim::reproduction {
namespace {

using config::Origin;

class DefinitionCheck {
 public:
  DefinitionCheck(const Definition& definition, config::Diagnostics& diagnostics)
      : d_(definition), diagnostics_(diagnostics), complete_(diagnostics.ok()) {
    for (const PointDefinition& point : d_.points) points_.push_back(point.name);
    for (const Row& row : d_.rows) ids_.push_back(row.id);
  }

  void check() {
    std::set<std::string> seen;
    for (const Row& row : d_.rows) {
      if (!row.id.empty() && !seen.insert(row.id).second) error(row.origin, fmt::format("a second row '{}'", row.id));
      for (const std::string& point : points_of(row.finding)) use(point, row.origin);
    }
    for (const Constant& constant : d_.constants)
      if (!constant.point.empty()) use(constant.point, constant.origin);
    check_columns();
    std::set<std::string> files;
    for (const Curve& curve : d_.curves) {
      if (!files.insert(curve.file).second) error(curve.origin, fmt::format("a second curve '{}'", curve.file));
      for (const std::string& point : points_of(curve.series)) use(point, curve.origin);
    }
    // A row that could not be read would be missed here a second time.
    if (complete_) check_uses();
  }

 private:
  void check_columns() {
    std::set<std::string> names;
    std::size_t plain = 0;
    for (const Column& column : d_.columns) {
      if (!names.insert(column.name).second) error(column.origin, fmt::format("a second column '{}'", column.name));
      if (column.overrides.empty()) ++plain;
      for (const std::string& point : column.points) check_point(point, column.origin);
    }
    if (complete_ && !d_.columns.empty() && plain != 1)
      error(d_.columns.front().origin,
            fmt::format("{} of the columns have no overrides: exactly one shows the points as they are", plain));
  }
  void check_uses() {
    for (const Inconsistency& inconsistency : d_.inconsistencies)
      for (const std::string& id : inconsistency.rows)
        if (std::find(ids_.begin(), ids_.end(), id) == ids_.end())
          error(inconsistency.origin, fmt::format("unknown row '{}'{}", id, did_you_mean(id, ids_)));
    for (const PointDefinition& point : d_.points)
      if (!used_.contains(point.name))
        error(point.origin, fmt::format("point {} is used by no row and no curve", point.name));
  }
  void use(const std::string& point, const Origin& origin) {
    used_.insert(point);
    check_point(point, origin);
  }
  void check_point(const std::string& point, const Origin& origin) {
    if (std::find(points_.begin(), points_.end(), point) == points_.end())
      error(origin, fmt::format("unknown point '{}'{}", printable(point), did_you_mean(point, points_)));
  }
  void error(const Origin& origin, const std::string& message) { diagnostics_.error(origin, message); }

  const Definition& d_;
  config::Diagnostics& diagnostics_;
  bool complete_;  ///< everything could be read
  std::vector<std::string> points_;
  std::vector<std::string> ids_;
  std::set<std::string> used_;
};

}  // namespace

bool computes_number(const Finding& finding) {
  return std::holds_alternative<ValueFinding>(finding) || std::holds_alternative<LargestFinding>(finding);
}

std::vector<std::string> points_of(const std::vector<PointSeries>& series) {
  std::vector<std::string> points;
  for (const PointSeries& each : series) {
    points.insert(points.end(), each.points.begin(), each.points.end());
    if (!each.relative_to.empty()) points.push_back(each.relative_to);
  }
  return points;
}

std::vector<std::string> points_of(const Finding& finding) {
  if (const auto* const drops = std::get_if<DropsFinding>(&finding)) return points_of(drops->series);
  if (const auto* const largest = std::get_if<LargestFinding>(&finding)) return largest->points;
  const auto* const value = std::get_if<ValueFinding>(&finding);
  const Expression& expression = value != nullptr ? value->value : std::get<HoldsFinding>(finding).condition;
  std::vector<std::string> points;
  for (const MetricName& name : expression.names()) points.push_back(name.point);
  return points;
}

void check_definition(const Definition& definition, config::Diagnostics& diagnostics) {
  DefinitionCheck(definition, diagnostics).check();
}

}  // namespace csdsim::reproduction
