#include "reproduction/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/config/diagnostics.h"
#include "base/text.h"

namespace csdsim::reproduction {
namespace {

using Names = std::set<std::string>;

bool has_curve(const Names& points, const Curve& curve) {
  return std::ranges::all_of(points_of(curve.series), [&](const std::string& name) { return points.contains(name); });
}

void check_ids(const Definition& definition, const std::vector<std::string>& ids) {
  std::vector<std::string> known;
  for (const Row& row : definition.rows) known.push_back(row.id);
  config::Diagnostics diagnostics;
  for (const std::string& id : ids) {
    const config::Origin origin{config::Layer::override, "--rows " + printable(id), 0, 0, ""};
    if (std::find(known.begin(), known.end(), id) != known.end()) continue;
    const auto absent = std::find_if(definition.absent.begin(), definition.absent.end(),
                                     [&](const AbsentRow& each) { return each.id == id; });
    if (absent != definition.absent.end()) {
      diagnostics.error(origin, fmt::format("this result has no row: {}", absent->why));
      continue;
    }
    const std::string hint = did_you_mean(id, known);
    diagnostics.error(
        origin, fmt::format("{} has no such row{}", definition.name, hint.empty() ? "; exists: " + join(known) : hint));
  }
  diagnostics.throw_if_any();
}

}  // namespace

Definition only_rows(Definition d, const std::vector<std::string>& ids) {
  check_ids(d, ids);
  const Names wanted(ids.begin(), ids.end());
  std::erase_if(d.rows, [&](const Row& row) { return !wanted.contains(row.id); });
  Names points;
  for (const Row& row : d.rows)
    for (std::string& name : points_of(row.finding)) points.insert(std::move(name));
  for (Column& column : d.columns) {
    std::erase_if(column.points, [&](const std::string& name) { return !points.contains(name); });
    for (const std::string& name : column.points) points.insert(column.point(name));
  }
  // Where no point of these rows is in a column, one column is enough.
  if (std::ranges::all_of(d.columns, [](const Column& column) { return column.points.empty(); })) d.columns.clear();
  // Every constant is shown with its value, for which its point need not run.
  Names of_constants;
  for (const Constant& constant : d.constants) of_constants.insert(constant.point);
  std::erase_if(d.points, [&](const PointDefinition& point) {
    return !points.contains(point.name) && !of_constants.contains(point.name);
  });
  for (PointDefinition& point : d.points)
    if (!points.contains(point.name)) point.planned = true;
  std::erase_if(d.curves, [&](const Curve& curve) { return !has_curve(points, curve); });
  for (Inconsistency& each : d.inconsistencies)
    std::erase_if(each.rows, [&](const std::string& id) { return !wanted.contains(id); });
  std::erase_if(d.inconsistencies, [](const Inconsistency& each) { return each.rows.empty(); });
  d.absent.clear();
  return d;
}

Definition one_column(Definition d) {
  Names others;
  for (const Column& column : d.columns)
    for (const std::string& name : column.points) others.insert(column.point(name));
  std::erase_if(d.points, [&](const PointDefinition& point) { return others.contains(point.name); });
  d.columns.clear();
  return d;
}

}  // namespace csdsim::reproduction
