// Definition of a paper for `csdsim reproduce`: the points of its evaluation, the rows of its results and the pictures.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/config/node.h"
#include "base/param_codec.h"
#include "base/ratio.h"
#include "reproduction/expression.h"

namespace csdsim::reproduction {

enum class ConstantGroup : std::uint8_t {
  fitted,    ///< the system that the paper presents
  baseline,  ///< one of the systems that it is compared with
  input      ///< from the paper or another source, so that rows which depend on it confirm nothing about it
};

/// A parameter of the scenario whose value was fitted, or is an input that rows depend on.
struct Constant {
  std::string path;       ///< in the scenario
  std::string point;      ///< the point whose scenario holds the value; empty: the scenario itself
  std::string unit;       ///< "" for a pure number
  std::string meaning;    ///< one sentence
  std::string fitted_on;  ///< rows or statements of the paper
  ConstantGroup group = ConstantGroup::fitted;
  config::Origin origin;
};

/// One configuration of the evaluation.
struct PointDefinition {
  std::string name;
  std::vector<std::pair<std::string, std::string>> overrides;  ///< path and value as flow YAML, for --set
  bool planned = false;  ///< not simulated: only what follows from the configuration is known
  /// A part of the message with which the point may fail; empty: it must not fail.
  std::string expected_error;
  config::Origin origin;

  /// "a.b=v", for --set.
  std::vector<std::string> sets() const;
};

/// A column of results: the same rows, with other values in the scenarios of some points, such as another machine.
struct Column {
  std::string name;
  std::string title;  ///< above the results
  /// As those of a point, applied after them. Empty: the column of the points as they are.
  std::vector<std::pair<std::string, std::string>> overrides;
  std::vector<std::string> points;  ///< that the overrides change; the others are the same in all columns
  config::Origin origin;

  /// The point that stands for `point` in this column.
  std::string point(const std::string& point) const;
};

/// The result is a number.
struct ValueFinding {
  Expression value;
};
/// The result is what the paper states where the condition is not 0, otherwise `otherwise`.
struct HoldsFinding {
  Expression condition;
  std::string otherwise;
};
/// Points along an axis.
struct PointSeries {
  std::string name;
  std::vector<std::string> points;
  std::string relative_to;  ///< pictures: the point whose metric divides the others'; empty: none
  std::string metric;       ///< pictures: as in MetricName; empty: that of the picture
};
/// The result is, per series, the values of the axis at which the metric is lower than one point before, by more than
/// a share of it.
struct DropsFinding {
  std::string axis;    ///< path in the scenario
  std::string metric;  ///< as in MetricName
  Ratio by = Ratio::of(1, 20);
  std::vector<PointSeries> series;
};
/// The result is the largest value of the axis among the points that did not fail.
struct LargestFinding {
  std::string axis;
  std::vector<std::string> points;
};
using Finding = std::variant<ValueFinding, HoldsFinding, DropsFinding, LargestFinding>;
/// True if the result is a number, which may have a tolerance.
bool computes_number(const Finding& finding);
/// The points that the result needs.
std::vector<std::string> points_of(const Finding& finding);
std::vector<std::string> points_of(const std::vector<PointSeries>& series);

enum class RowKind : std::uint8_t { absolute, ratio, share, trend };

/// How far simulated and stated may differ where they agree.
struct Tolerance {
  Ratio most;           ///< largest |simulated / stated - 1|; in points: largest |simulated - stated|
  bool points = false;  ///< percentage points, of a row in percent
};

/// One result of the paper.
struct Row {
  std::string id;
  std::string metric;  ///< what it is, in words
  std::string unit;
  nlohmann::ordered_json stated;  ///< a number; for trends also a text, a boolean or lists by series
  std::string where;              ///< in the paper
  RowKind kind = RowKind::absolute;
  std::optional<Tolerance> tolerance;  ///< unset: not judged. Trends are always judged
  bool fitted = false;                 ///< a constant was fitted on it, so that it confirms nothing
  std::string note;
  Finding finding;
  config::Origin origin;  ///< place of the formula
};

/// Axis of a picture.
enum class Scale : std::uint8_t { linear, log };

/// A picture: lines over a parameter.
struct Curve {
  std::string file;  ///< FILE.html
  std::string title;
  std::string axis;    ///< path in the scenario
  std::string metric;  ///< as in MetricName
  std::string x_title;
  std::string y_title;
  Scale y_scale = Scale::linear;
  std::vector<PointSeries> series;
  config::Origin origin;
};

/// Something in which the paper contradicts itself.
struct Inconsistency {
  std::string text;
  std::vector<std::string> rows;  ///< ids of rows that it concerns
  config::Origin origin;
};

/// A result of the paper that has no row.
struct AbsentRow {
  std::string id;
  std::string why;
};

struct Definition {
  std::string name;
  std::string title;
  std::string source;
  std::string scenario;  ///< file beside the definition
  std::vector<Constant> constants;
  std::vector<Inconsistency> inconsistencies;
  std::vector<Column> columns;  ///< in the order of the tables, one of them without overrides; empty: one column
  std::vector<PointDefinition> points;  ///< also those of columns
  std::vector<Row> rows;
  std::vector<AbsentRow> absent;
  std::vector<Curve> curves;
};

/// Reads the text of a definition; `file` is for messages, `name` the name of the paper. Throws config::ConfigError
/// with all mistakes: unknown keys, values and points, points that nothing uses, formulas that cannot be read, ids and
/// names that exist twice. A point of a column with overrides becomes a point of its own.
Definition read_definition(std::string_view text, const std::string& file, const std::string& name);

}  // namespace csdsim::reproduction

namespace csdsim {

template <>
struct EnumValues<reproduction::ConstantGroup> {
  static constexpr EnumValue<reproduction::ConstantGroup> values[] = {
      {reproduction::ConstantGroup::fitted, "fitted", "Of the system that the paper presents."},
      {reproduction::ConstantGroup::baseline, "baseline", "Of the systems that it is compared with."},
      {reproduction::ConstantGroup::input, "input",
       "From the paper or another source: an input, which no row confirms."}};
};
template <>
struct EnumValues<reproduction::RowKind> {
  static constexpr EnumValue<reproduction::RowKind> values[] = {
      {reproduction::RowKind::absolute, "absolute", "A quantity."},
      {reproduction::RowKind::ratio, "ratio", "A quotient of two quantities, or a change."},
      {reproduction::RowKind::share, "share", "A part of a whole."},
      {reproduction::RowKind::trend, "trend", "A statement that holds or does not."}};
};
template <>
struct EnumValues<reproduction::Scale> {
  static constexpr EnumValue<reproduction::Scale> values[] = {
      {reproduction::Scale::linear, "linear", "From 0."},
      {reproduction::Scale::log, "log", "Logarithmic, for lines that differ by more than 10."}};
};

}  // namespace csdsim
