#include "reproduction/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <variant>

#include "base/error.h"
#include "report/chart_page.h"
#include "report/csv.h"
#include "report/table.h"
#include "reproduction/row_text.h"

namespace csdsim::reproduction {

using nlohmann::ordered_json;

namespace {

ordered_json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : nullptr;
}

/// How the simulated value comes from the points.
std::string how(const Finding& finding) {
  if (const auto* const value = std::get_if<ValueFinding>(&finding)) return value->value.text();
  if (const auto* const holds = std::get_if<HoldsFinding>(&finding)) return holds->condition.text();
  if (const auto* const drops = std::get_if<DropsFinding>(&finding))
    return fmt::format("{} at which {} drops by more than {:g} %", drops->axis, drops->metric, 100 * drops->by.value());
  return fmt::format("largest {} of a point that does not fail", std::get<LargestFinding>(finding).axis);
}

ordered_json tolerance_json(const Row& row, bool points) {
  return row.tolerance && row.tolerance->points == points ? ordered_json(row.tolerance->most.value()) : nullptr;
}

ordered_json overrides_json(const std::vector<std::pair<std::string, std::string>>& overrides) {
  ordered_json json = ordered_json::object();
  for (const auto& [path, value] : overrides) json[path] = value;
  return json;
}

ordered_json figures_json(const RowResult& result) {
  ordered_json figures = ordered_json::object();
  for (const auto& [name, value] : result.figures) figures[name] = value;
  return figures;
}

ordered_json json_of(const Row& row, const RowResult& result) {
  return {{"id", row.id},
          {"metric", row.metric},
          {"unit", row.unit},
          {"stated", row.stated},
          {"simulated", result.simulated},
          {"error", number_or_null(result.error)},
          {"tolerance", tolerance_json(row, false)},
          {"tolerance_points", tolerance_json(row, true)},
          {"verdict", to_string(result.verdict)},
          {"narrow", result.narrow},
          {"sample_error", number_or_null(result.sample_error)},
          {"unsure", result.unsure},
          {"fitted", row.fitted},
          {"figures", figures_json(result)},
          {"kind", name_of(row.kind)},
          {"where", row.where},
          {"expression", how(row.finding)},
          {"note", result.remark.empty() ? row.note : result.remark}};
}

/// The columns of a row: what its points gave in each of them.
ordered_json columns_of(const Definition& d, const Evaluation& evaluation, std::size_t row) {
  ordered_json columns = ordered_json::object();
  for (std::size_t c = 0; c < d.columns.size(); ++c) {
    const RowResult& result = evaluation.columns[c][row];
    columns[d.columns[c].name] = {{"simulated", result.simulated},
                                  {"error", number_or_null(result.error)},
                                  {"verdict", to_string(result.verdict)},
                                  {"narrow", result.narrow},
                                  {"sample_error", number_or_null(result.sample_error)},
                                  {"unsure", result.unsure},
                                  {"figures", figures_json(result)},
                                  {"note", result.remark.empty() ? d.rows[row].note : result.remark}};
  }
  return columns;
}

ordered_json json_of(const PointDefinition& point, const PointOutcome& outcome) {
  ordered_json json{{"overrides", overrides_json(point.overrides)},
                    {"simulated", !point.planned && !outcome.result.is_null()}};
  if (outcome.result.is_null())
    json["error"] = outcome.error;
  else
    json["metrics"] = outcome.result.value("metrics", ordered_json::object());
  return json;
}

const std::string& x_title(const Curve& curve) { return curve.x_title.empty() ? curve.axis : curve.x_title; }
const std::string& y_title(const Curve& curve) { return curve.y_title.empty() ? curve.metric : curve.y_title; }

ordered_json json_of(const Curve& curve, const std::vector<CurveLine>& lines) {
  ordered_json series = ordered_json::array();
  for (const CurveLine& line : lines) {
    ordered_json points = ordered_json::array();
    for (const CurveLine::Point& point : line.points)
      points.push_back({{"point", point.name}, {"x", point.x}, {"y", point.y}});
    series.push_back({{"name", line.name}, {"points", std::move(points)}});
  }
  return {{"file", curve.file + ".html"},
          {"title", curve.title},
          {"axis", curve.axis},
          {"metric", curve.metric},
          {"x_title", x_title(curve)},
          {"y_title", y_title(curve)},
          {"y_log", curve.y_scale == Scale::log},
          {"series", std::move(series)}};
}

std::string tolerance_text(const ordered_json& row) {
  if (!row["tolerance_points"].is_null()) return fmt::format("{:g} points", row["tolerance_points"].get<double>());
  return row["tolerance"].is_null() ? "-" : fmt::format("{:g} %", 100 * row["tolerance"].get<double>());
}

std::string constants_text(const ordered_json& constants) {
  if (constants.empty()) return "No constant was fitted.\n";
  report::Table table({"constant", "value", "unit", "group", "meaning", "fitted on"});
  for (const ordered_json& c : constants)
    table.add_row({c["path"], cell(c["value"]), c["unit"], c["group"], c["meaning"], c["fitted_on"]});
  return table.to_text();
}

std::string rows_text(const std::vector<Shown>& columns) {
  std::vector<std::string> header{"id", "metric", "unit", "stated", "tolerance"};
  for (const Shown& column : columns) header.insert(header.end(), {column.title, "error", "verdict"});
  report::Table table(header);
  for (std::size_t i = 0; i < columns.front().rows.size(); ++i) {
    const ordered_json& row = columns.front().rows[i];
    std::vector<std::string> cells{row["id"], row["metric"], row["unit"], cell(row["stated"]), tolerance_text(row)};
    for (const Shown& column : columns) {
      const ordered_json& result = column.rows[i];
      cells.insert(cells.end(), {cell(result["simulated"]), error_text(result), verdict_text(result)});
    }
    table.add_row(cells);
  }
  return table.to_text();
}

/// What the columns change, one line for each.
std::string columns_text(const std::vector<Shown>& columns) {
  if (columns.size() == 1) return "";
  std::string text;
  for (const Shown& column : columns) text += fmt::format("{}: {}\n", column.title, column.overrides);
  return text + "\n";
}

std::string differences_text(const Shown& column, bool one_of_several) {
  std::string rows;
  for (const ordered_json& row : column.rows)
    if (side_of(row) == Side::disagrees)
      rows += fmt::format("- {}: stated {}, simulated {}{}\n", row["id"].get<std::string>(), cell(row["stated"]),
                          cell(row["simulated"]),
                          row["note"].get<std::string>().empty() ? "" : ". " + row["note"].get<std::string>());
  if (rows.empty()) return "";
  return fmt::format("\nRows that do not agree with the paper{}:\n{}", one_of_several ? ", " + column.title : "", rows);
}

}  // namespace

ordered_json document_of(const Definition& d, const Evaluation& evaluation, const Outcomes& outcomes,
                         const ordered_json& build, const ordered_json& scenario) {
  ordered_json document{{"schema", kReproductionSchema},
                        {"paper", d.name},
                        {"title", d.title},
                        {"source", d.source},
                        {"build", build},
                        {"constants", ordered_json::array()},
                        {"rows", ordered_json::array()},
                        {"inconsistencies", ordered_json::array()},
                        {"absent", ordered_json::array()}};
  for (std::size_t i = 0; i < d.constants.size(); ++i) {
    const Constant& c = d.constants[i];
    document["constants"].push_back({{"path", c.path},
                                     {"value", evaluation.constants[i]},
                                     {"unit", c.unit},
                                     {"meaning", c.meaning},
                                     {"fitted_on", c.fitted_on},
                                     {"group", name_of(c.group)}});
  }
  for (std::size_t i = 0; i < d.rows.size(); ++i) {
    document["rows"].push_back(json_of(d.rows[i], evaluation.rows[i]));
    if (!d.columns.empty()) document["rows"].back()["columns"] = columns_of(d, evaluation, i);
  }
  for (const Column& column : d.columns)
    document["columns"].push_back({{"name", column.name},
                                   {"title", column.title},
                                   {"overrides", overrides_json(column.overrides)},
                                   {"points", column.points}});
  for (const Inconsistency& each : d.inconsistencies)
    document["inconsistencies"].push_back({{"text", each.text}, {"rows", each.rows}});
  for (const AbsentRow& each : d.absent) document["absent"].push_back({{"id", each.id}, {"why", each.why}});
  for (const PointDefinition& point : d.points)
    document["points"][point.name] = json_of(point, outcomes.at(point.name));
  document["curves"] = ordered_json::array();
  for (std::size_t i = 0; i < d.curves.size(); ++i)
    document["curves"].push_back(json_of(d.curves[i], evaluation.curves[i]));
  document["scenario"] = scenario;
  return document;
}

std::string csv_of(const ordered_json& document) {
  ordered_json rows = document["rows"];
  for (ordered_json& row : rows) {
    if (!row.contains("columns")) continue;
    const ordered_json columns = row["columns"];
    row.erase("columns");
    for (const auto& [name, result] : columns.items())
      for (const char* const key : {"simulated", "error", "verdict"})
        row[fmt::format("{}_{}", name, key)] = result[key];
  }
  return report::csv_rows(rows);
}

std::string text_of(const ordered_json& document) {
  std::string text =
      fmt::format("{} ({})\n\n", document["title"].get<std::string>(), document["source"].get<std::string>());
  const std::vector<Shown> columns = shown(document);
  const bool several = columns.size() > 1;
  text += constants_text(document["constants"]) + "\n" + columns_text(columns) + rows_text(columns) + "\n";
  for (const Shown& column : columns)
    text += fmt::format("{}{}\n", several ? column.title + ": " : "", agreement_text(column.rows));
  if (!document["inconsistencies"].empty()) text += "\nContradictions in the paper:\n";
  for (const ordered_json& each : document["inconsistencies"])
    text += fmt::format("- {}\n", each["text"].get<std::string>());
  if (!document["absent"].empty()) text += "\nResults of the paper without a row:\n";
  for (const ordered_json& each : document["absent"])
    text += fmt::format("- {}: {}\n", each["id"].get<std::string>(), each["why"].get<std::string>());
  for (const Shown& column : columns) text += differences_text(column, several);
  return text;
}

void check_document(const ordered_json& document, const std::string& where) {
  const auto has = [](const ordered_json& object, bool (*right)(const ordered_json&),
                      std::initializer_list<const char*> keys) {
    return object.is_object() && std::ranges::all_of(keys, [&](const char* key) {
             const auto found = object.find(key);
             return found != object.end() && right(*found);
           });
  };
  const auto text = [](const ordered_json& value) { return value.is_string(); };
  const auto list = [](const ordered_json& value) { return value.is_array(); };
  const auto object = [](const ordered_json& value) { return value.is_object(); };
  const auto number_or_null = [](const ordered_json& value) { return value.is_number() || value.is_null(); };
  const auto any = [](const ordered_json&) { return true; };
  const auto flag = [](const ordered_json& value) { return value.is_boolean(); };
  const auto row = [&](const ordered_json& r) {
    return has(r, text, {"id", "metric", "unit", "verdict", "where", "expression", "note"}) &&
           has(r, number_or_null, {"error", "tolerance", "tolerance_points"}) && has(r, any, {"stated", "simulated"}) &&
           has(r, flag, {"fitted"}) && has(r, object, {"figures"}) &&
           std::ranges::all_of(r["figures"], &ordered_json::is_number);
  };
  // A document without columns has none of these keys.
  const ordered_json columns = document.is_object() ? document.value("columns", ordered_json::array()) : nullptr;
  const auto column = [&](const ordered_json& c) {
    return has(c, text, {"name", "title"}) && has(c, object, {"overrides"}) &&
           std::ranges::all_of(c["overrides"], &ordered_json::is_string);
  };
  const auto in_columns = [&](const ordered_json& r) {
    return std::ranges::all_of(columns, [&](const ordered_json& c) {
      const std::string& name = c["name"].get_ref<const std::string&>();
      if (!r.contains("columns") || !r["columns"].is_object() || !r["columns"].contains(name)) return false;
      ordered_json result = r;
      result.update(r["columns"][name]);
      return row(result);
    });
  };
  const auto constant = [&](const ordered_json& c) {
    return has(c, text, {"path", "unit", "meaning", "fitted_on", "group"}) && has(c, any, {"value"});
  };
  const auto inconsistency = [&](const ordered_json& i) { return has(i, text, {"text"}) && has(i, list, {"rows"}); };
  const auto absent = [&](const ordered_json& a) { return has(a, text, {"id", "why"}); };
  const auto point = [&](const ordered_json& p) { return has(p, flag, {"simulated"}); };
  if (!has(document, any, {"schema"}) || document["schema"] != kReproductionSchema ||
      !has(document, text, {"title", "source", "paper"}) || !has(document, object, {"points", "build"}) ||
      !has(document["build"], text, {"version"}) ||
      !has(document, list, {"constants", "rows", "inconsistencies", "absent", "curves"}) ||
      !std::ranges::all_of(document["rows"], row) || !columns.is_array() || !std::ranges::all_of(columns, column) ||
      !std::ranges::all_of(document["rows"], in_columns) || !std::ranges::all_of(document["constants"], constant) ||
      !std::ranges::all_of(document["inconsistencies"], inconsistency) ||
      !std::ranges::all_of(document["absent"], absent) || !std::ranges::all_of(document["points"], point))
    throw UserError(fmt::format(
        "{}: is no result of csdsim reproduce, or of another version of it; run csdsim reproduce again", where));
}

std::vector<std::pair<std::string, std::string>> pictures_of(const Definition& definition,
                                                             const Evaluation& evaluation) {
  std::vector<std::pair<std::string, std::string>> pictures;
  for (std::size_t i = 0; i < definition.curves.size(); ++i) {
    const Curve& curve = definition.curves[i];
    report::Chart chart{.title = curve.title,
                        .x_title = x_title(curve),
                        .y_title = y_title(curve),
                        .x_log = true,
                        .y_log = curve.y_scale == Scale::log};
    for (const CurveLine& line : evaluation.curves[i]) {
      report::ChartLine drawn{.name = line.name};
      for (const CurveLine::Point& point : line.points) drawn.points.push_back({point.x, point.y});
      chart.lines.push_back(std::move(drawn));
    }
    pictures.emplace_back(curve.file + ".html", report::chart_page(definition.title, {chart}));
  }
  return pictures;
}

}  // namespace csdsim::reproduction
