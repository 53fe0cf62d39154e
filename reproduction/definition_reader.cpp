// Reads definitions. Each part of a definition has a described struct for its single values; what is nested is read by
// hand.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/config/yaml.h"
#include "base/param.h"
#include "base/text.h"
#include "reproduction/definition.h"
#include "reproduction/definition_check.h"
#include "reproduction/map_reader.h"
#include "reproduction/node_values.h"

namespace csdsim::reproduction {

using config::Diagnostics;
using config::Entry;
using config::Node;

void describe(ParamVisitor& v, Constant& c) {
  v.param("path", c.path, "Path of the parameter in the scenario.", assumed("none"));
  v.param("point", c.point, "The point whose scenario holds the value.", assumed("the scenario itself"));
  v.param("unit", c.unit, "Unit of the value.", assumed("a pure number"));
  v.param("meaning", c.meaning, "What the value stands for.", assumed("none"));
  v.param("fitted_on", c.fitted_on, "What of the paper it was fitted on.", assumed("none"));
  v.param("group", c.group, "Whose constant it is.", assumed("most are of the presented system"));
}

void describe(ParamVisitor& v, Inconsistency& i) {
  v.param("text", i.text, "What contradicts what.", assumed("none"));
  v.list("rows", i.rows, {0, 1000}, "Rows that it concerns.", assumed("none"));
}

void describe(ParamVisitor& v, AbsentRow& a) {
  v.param("id", a.id, "The result of the paper.", assumed("none"));
  v.param("why", a.why, "Why it has no row.", assumed("none"));
}

void describe(ParamVisitor& v, PointDefinition& p) {
  v.param("planned", p.planned, "Only what follows from the configuration is needed: nothing is simulated.",
          assumed("points are simulated"));
  v.param("expect_error", p.expected_error, "A part of the message with which the point may fail.",
          assumed("points do not fail"));
}

void describe(ParamVisitor& v, Column& c) {
  v.param("name", c.name, "Name of the column in files.", assumed("none"));
  v.param("title", c.title, "Text above the results.", assumed("none"));
  v.list("points", c.points, {0, 1000}, "Points that the overrides change.", assumed("none"));
}

void describe(ParamVisitor& v, PointSeries& s) {
  v.param("name", s.name, "Name of the line.", assumed("none"));
  v.list("points", s.points, {1, 1000}, "Points, in the order of the axis.", assumed("none"));
  v.param("relative_to", s.relative_to, "The point whose metric divides the others'.", assumed("none"));
  v.param("metric", s.metric, "What the line shows.", assumed("the metric of the picture"));
}

void describe(ParamVisitor& v, LargestFinding& f) {
  v.param("axis", f.axis, "Path of the parameter in the scenario.", assumed("none"));
  v.list("points", f.points, {1, 1000}, "Points.", assumed("none"));
}

void describe(ParamVisitor& v, DropsFinding& f) {
  v.param("axis", f.axis, "Path of the parameter in the scenario.", assumed("none"));
  v.param("metric", f.metric, "What drops.", assumed("none"));
  v.param("by", f.by, {Ratio{0, 1}, Ratio{1, 1}}, "Smallest share that counts as a drop.",
          assumed("a few times the error of a sampled run"));
}

void describe(ParamVisitor& v, Curve& c) {
  v.param("file", c.file, "Name of the picture, without .html.", assumed("none"));
  v.param("title", c.title, "Title of the picture.", assumed("none"));
  v.param("axis", c.axis, "Path of the parameter in the scenario.", assumed("none"));
  v.param("metric", c.metric, "What is drawn.", assumed("none"));
  v.param("x_title", c.x_title, "Text under the picture.", assumed("the axis"));
  v.param("y_title", c.y_title, "Text above the picture.", assumed("the metric"));
  v.param("y_scale", c.y_scale, "Scale of the y axis.", assumed("most lines differ by less than 10"));
}

void describe(ParamVisitor& v, Definition& d) {
  v.param("title", d.title, "Title of the paper.", assumed("none"));
  v.param("source", d.source, "Where the paper was published.", assumed("none"));
  v.param("scenario", d.scenario, "Scenario file beside the definition.", assumed("none"));
}

namespace {

/// The single values of a row.
struct RowFields {
  Row& row;
  std::string tolerance, value, holds, otherwise;
};
void describe(ParamVisitor& v, RowFields& f) {
  v.param("id", f.row.id, "Name of the result.", assumed("none"));
  v.param("metric", f.row.metric, "What it is, in words.", assumed("none"));
  v.param("unit", f.row.unit, "Its unit.", assumed("a pure number, or a text"));
  v.param("where", f.row.where, "Section or figure of the paper.", assumed("none"));
  v.param("kind", f.row.kind, "What kind of result it is: absolute, ratio, share or trend.",
          assumed("most are quantities"));
  v.param("tolerance", f.tolerance, "Largest error at which simulated and stated agree, '5 %' or '2 points'.",
          assumed("not judged"));
  v.param("fitted", f.row.fitted, "A constant was fitted on this result, so that it confirms nothing.",
          assumed("most rows are predictions"));
  v.param("note", f.row.note, "What a reader has to know.", assumed("none"));
  v.param("value", f.value, "Formula of a number.", assumed("none"));
  v.param("holds", f.holds, "Condition under which what is stated is true.", assumed("none"));
  v.param("otherwise", f.otherwise, "What is true instead.", assumed("none"));
}

/// "5 %" and "2 points". Throws UserError.
Tolerance tolerance_of(const std::string& text) {
  constexpr std::string_view kPoints = " points";
  if (!text.ends_with(kPoints)) {
    const Ratio most = Codec<Ratio>::parse(text);
    if (most > Ratio{10, 1}) throw UserError(fmt::format("'{}' is above 10", printable(text)));
    return {.most = most};
  }
  const std::string number = text.substr(0, text.size() - kPoints.size());
  const bool plain = number.find_first_not_of("0123456789.") == std::string::npos;
  const Ratio most = plain ? Codec<Ratio>::parse(number) : Ratio{};
  if (!plain || most > Ratio{100, 1})
    throw UserError(
        fmt::format("'{}' is not a number of percentage points from 0 to 100, such as '2 points'", printable(text)));
  return {.most = most, .points = true};
}

class DefinitionReader {
 public:
  DefinitionReader(Definition& definition, Diagnostics& diagnostics) : d_(definition), diagnostics_(diagnostics) {}

  void read(const Node& root);

 private:
  void read_points(const Entry& entry);
  void read_overrides(const Entry& entry, std::vector<std::pair<std::string, std::string>>& overrides);
  void read_column(const Node& node);
  void read_row(const Node& node);
  void read_curve(const Node& node);
  std::vector<PointSeries> read_series(const std::optional<Entry>& entry);
  std::optional<Expression> formula(const std::string& text, const config::Origin& origin);
  void read_tolerance(const MapReader& map, const std::string& text, Row& row);
  /// Exactly one of the four keys of a finding; nothing after an error.
  std::optional<Finding> read_finding(MapReader& map, const RowFields& fields, const std::optional<Entry>& drops,
                                      const std::optional<Entry>& largest);
  template <class S>
  void read_list(MapReader& top, std::string_view key, const char* what, std::vector<S>& list,
                 std::initializer_list<std::string_view> required);

  Definition& d_;
  Diagnostics& diagnostics_;
};

template <class S>
void DefinitionReader::read_list(MapReader& top, std::string_view key, const char* what, std::vector<S>& list,
                                 std::initializer_list<std::string_view> required) {
  const auto entry = top.take(key);
  if (!entry) return;
  for_each_map(*entry, diagnostics_, [&](const Node& node) {
    MapReader map(node, what, diagnostics_);
    S item;
    map.read(item, required);
    if constexpr (requires { item.origin; }) item.origin = map.origin();
    list.push_back(std::move(item));
  });
}

void DefinitionReader::read(const Node& root) {
  MapReader top(root, "a definition", diagnostics_);
  read_list(top, "constants", "a constant", d_.constants, {"path", "meaning", "fitted_on"});
  read_list(top, "inconsistencies", "an inconsistency", d_.inconsistencies, {"text"});
  read_list(top, "absent", "an absent result", d_.absent, {"id", "why"});
  if (const auto points = top.take("points", true)) read_points(*points);
  if (const auto columns = top.take("columns"))
    for_each_map(*columns, diagnostics_, [&](const Node& node) { read_column(node); });
  if (const auto rows = top.take("rows", true))
    for_each_map(*rows, diagnostics_, [&](const Node& node) { read_row(node); });
  if (const auto curves = top.take("curves"))
    for_each_map(*curves, diagnostics_, [&](const Node& node) { read_curve(node); });
  top.read(d_, {"title", "source", "scenario"});
}

void DefinitionReader::read_points(const Entry& entry) {
  if (!entry.value.is_map()) {
    diagnostics_.error(entry.origin,
                       fmt::format("points: expected a map {{NAME: {{...}}, ...}}, found {}", entry.value.kind_name()));
    return;
  }
  for (const Entry& named : entry.value.entries) {
    PointDefinition point{.name = named.key, .overrides = {}, .expected_error = {}, .origin = named.origin};
    if (!is_point_name(point.name))
      diagnostics_.error(named.origin,
                         fmt::format("points: '{}' has to begin with a small letter and to consist of small letters, "
                                     "digits and '_'",
                                     printable(point.name)));
    MapReader map(named.value, fmt::format("point {}", printable(point.name)), diagnostics_);
    if (const auto overrides = map.take("overrides", true)) read_overrides(*overrides, point.overrides);
    map.read(point, {});
    d_.points.push_back(std::move(point));
  }
}

void DefinitionReader::read_overrides(const Entry& entry, std::vector<std::pair<std::string, std::string>>& overrides) {
  if (!entry.value.is_map())
    diagnostics_.error(
        entry.origin, fmt::format("overrides: expected a map {{PATH: VALUE, ...}}, found {}", entry.value.kind_name()));
  for (const Entry& value : entry.value.entries) overrides.emplace_back(value.key, flow_text(value.value));
}

void DefinitionReader::read_column(const Node& node) {
  Column column;
  MapReader map(node, "a column", diagnostics_);
  if (const auto overrides = map.take("overrides")) read_overrides(*overrides, column.overrides);
  map.read(column, {"name", "title"});
  column.origin = map.origin();
  if (!is_point_name(column.name))
    diagnostics_.error(column.origin, fmt::format("columns: '{}' has to begin with a small letter and to consist of "
                                                  "small letters, digits and '_'",
                                                  printable(column.name)));
  if (column.overrides.empty() != column.points.empty())
    diagnostics_.error(column.origin, "a column has both overrides and the points that they change, or neither");
  d_.columns.push_back(std::move(column));
}

std::optional<Expression> DefinitionReader::formula(const std::string& text, const config::Origin& origin) {
  try {
    return Expression(text);
  } catch (const UserError& error) {
    diagnostics_.error(origin, error.what());
    return std::nullopt;
  }
}

void DefinitionReader::read_tolerance(const MapReader& map, const std::string& text, Row& row) {
  if (text.empty()) return;
  try {
    row.tolerance = tolerance_of(text);
    if (row.tolerance->points && !row.unit.starts_with('%'))
      diagnostics_.error(map.origin("tolerance"), "tolerance: points are of a row with the unit '%'");
  } catch (const UserError& error) {
    diagnostics_.error(map.origin("tolerance"), fmt::format("tolerance: {}", error.what()));
  }
}

std::optional<Finding> DefinitionReader::read_finding(MapReader& map, const RowFields& fields,
                                                      const std::optional<Entry>& drops,
                                                      const std::optional<Entry>& largest) {
  const int given =
      int(!fields.value.empty()) + int(!fields.holds.empty()) + int(drops.has_value()) + int(largest.has_value());
  if (given != 1) {
    if (map.is_map())
      diagnostics_.error(map.origin(), "a row has exactly one of the keys value, holds, drops and largest");
    return std::nullopt;
  }
  if (!fields.value.empty()) {
    auto expression = formula(fields.value, map.origin("value"));
    if (!expression) return std::nullopt;
    return ValueFinding{std::move(*expression)};
  }
  if (!fields.holds.empty()) {
    if (fields.otherwise.empty() && !fields.row.stated.is_boolean())
      diagnostics_.error(map.origin(), "a row with 'holds' needs 'otherwise' unless true or false is stated");
    auto expression = formula(fields.holds, map.origin("holds"));
    if (!expression) return std::nullopt;
    return HoldsFinding{std::move(*expression), fields.otherwise};
  }
  if (largest) {
    LargestFinding finding;
    MapReader(largest->value, "largest", diagnostics_).read(finding, {"axis", "points"});
    return finding;
  }
  DropsFinding finding;
  MapReader inner(drops->value, "drops", diagnostics_);
  finding.series = read_series(inner.take("series", true));
  inner.read(finding, {"axis", "metric"});
  return finding;
}

void DefinitionReader::read_row(const Node& node) {
  Row row{.id = {},
          .metric = {},
          .unit = {},
          .stated = {},
          .where = {},
          .tolerance = {},
          .note = {},
          .finding = LargestFinding{},
          .origin = {}};
  MapReader map(node, "a row", diagnostics_);
  if (const auto stated = map.take("stated", true)) row.stated = json_of(stated->value);
  const auto drops = map.take("drops");
  const auto largest = map.take("largest");
  RowFields fields{.row = row, .tolerance = {}, .value = {}, .holds = {}, .otherwise = {}};
  map.read(fields, {"id", "metric", "where"});
  read_tolerance(map, fields.tolerance, row);
  auto finding = read_finding(map, fields, drops, largest);
  if (!finding) return;
  row.finding = std::move(*finding);
  const bool number = computes_number(row.finding);
  if (number && !row.stated.is_null() && !row.stated.is_number())
    diagnostics_.error(map.origin("stated"), "stated: expected a number, because the row computes one");
  if (!number && row.tolerance)
    diagnostics_.error(map.origin("tolerance"), "tolerance: only a row that computes a number has one");
  row.origin = map.origin(!fields.value.empty()   ? "value"
                          : !fields.holds.empty() ? "holds"
                          : drops                 ? "drops"
                                                  : "largest");
  d_.rows.push_back(std::move(row));
}

std::vector<PointSeries> DefinitionReader::read_series(const std::optional<Entry>& entry) {
  std::vector<PointSeries> all;
  if (!entry) return all;
  for_each_map(*entry, diagnostics_, [&](const Node& node) {
    PointSeries series;
    MapReader(node, "a series", diagnostics_).read(series, {"name", "points"});
    all.push_back(std::move(series));
  });
  return all;
}

void DefinitionReader::read_curve(const Node& node) {
  Curve curve;
  MapReader map(node, "a curve", diagnostics_);
  curve.series = read_series(map.take("series", true));
  map.read(curve, {"file", "title", "axis", "metric"});
  curve.origin = map.origin();
  d_.curves.push_back(std::move(curve));
}

}  // namespace

std::vector<std::string> PointDefinition::sets() const {
  std::vector<std::string> all;
  for (const auto& [path, value] : overrides) all.push_back(fmt::format("{}={}", path, value));
  return all;
}

std::string Column::point(const std::string& point) const {
  return std::ranges::find(points, point) == points.end() ? point : fmt::format("{}-{}", point, name);
}

namespace {

/// The points of columns, each a point of the definition with the overrides of the column.
void add_points_of_columns(Definition& definition) {
  const std::vector<PointDefinition> own = definition.points;
  for (const Column& column : definition.columns)
    for (PointDefinition point : own) {
      const std::string name = column.point(point.name);
      if (name == point.name) continue;
      point.name = name;
      point.overrides.insert(point.overrides.end(), column.overrides.begin(), column.overrides.end());
      definition.points.push_back(std::move(point));
    }
}

}  // namespace

Definition read_definition(std::string_view text, const std::string& file, const std::string& name) {
  Diagnostics diagnostics;
  const Node root = config::parse_document(text, {config::Layer::file, file, 0, 0, ""}, diagnostics);
  // If the file cannot be read, every further error would only be about a missing key.
  if (!diagnostics.ok() && root.entries.empty()) diagnostics.throw_if_any();
  Definition definition;
  definition.name = name;
  DefinitionReader(definition, diagnostics).read(root);
  check_definition(definition, diagnostics);
  diagnostics.throw_if_any();
  add_points_of_columns(definition);
  return definition;
}

}  // namespace csdsim::reproduction
