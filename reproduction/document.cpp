#include "reproduction/document.h"

#include <fmt/format.h>

#include <cmath>
#include <variant>

#include "base/error.h"
#include "report/chart_page.h"
#include "report/csv.h"
#include "report/page_files.h"
#include "report/page_parts.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::reproduction {

using nlohmann::ordered_json;

namespace {

ordered_json number_or_null(const std::optional<double>& value) { return value ? ordered_json(*value) : nullptr; }

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

/// The columns of a row: what its points gave in each of them.
ordered_json columns_of(const Definition& d, const Evaluation& evaluation, std::size_t row) {
  ordered_json columns = ordered_json::object();
  for (std::size_t c = 0; c < d.columns.size(); ++c) {
    const RowResult& result = evaluation.columns[c][row];
    columns[d.columns[c].name] = {{"simulated", result.simulated},
                                  {"error", number_or_null(result.error)},
                                  {"verdict", to_string(result.verdict)},
                                  {"note", result.remark.empty() ? d.rows[row].note : result.remark}};
  }
  return columns;
}

ordered_json overrides_json(const std::vector<std::pair<std::string, std::string>>& overrides) {
  ordered_json json = ordered_json::object();
  for (const auto& [path, value] : overrides) json[path] = value;
  return json;
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
          {"kind", name_of(row.kind)},
          {"where", row.where},
          {"expression", how(row.finding)},
          {"note", result.remark.empty() ? row.note : result.remark}};
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

/// A value in a table: numbers short, texts as they are, all else as JSON.
std::string cell(const ordered_json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return report::short_number(value.get<double>());
  return value.dump();
}

std::string percent(const ordered_json& share, bool signed_number) {
  if (share.is_null()) return "-";
  const double value = 100 * share.get<double>();
  return signed_number ? fmt::format("{:+.1f} %", value) : fmt::format("{:g} %", value);
}

/// Results side by side in a table: of the rows themselves, or of a column.
struct Shown {
  std::string title;
  std::string column;  ///< empty: the rows themselves

  const ordered_json& result(const ordered_json& row) const { return column.empty() ? row : row["columns"][column]; }
};

std::vector<Shown> shown(const ordered_json& document) {
  if (!document.contains("columns")) return {{"simulated", ""}};
  std::vector<Shown> all;
  for (const ordered_json& column : document["columns"]) all.push_back({column["title"], column["name"]});
  return all;
}

bool agrees(const ordered_json& result) {
  const std::string verdict = result["verdict"];
  return verdict != to_string(Verdict::outside) && verdict != to_string(Verdict::differs) &&
         verdict != to_string(Verdict::failed);
}

std::string constants_text(const ordered_json& constants) {
  if (constants.empty()) return "No constant was fitted.\n";
  report::Table table({"constant", "value", "unit", "group", "meaning", "fitted on"});
  for (const ordered_json& c : constants)
    table.add_row({c["path"], cell(c["value"]), c["unit"], c["group"], c["meaning"], c["fitted_on"]});
  return table.to_text();
}

/// The error of a result, in points where the tolerance of its row is. That of a trend is 0 or 1 and says the same as
/// the verdict.
std::string error_cell(const ordered_json& row, const ordered_json& result) {
  if (!row["stated"].is_number()) return "-";
  if (row["tolerance_points"].is_null()) return percent(result["error"], true);
  if (result["simulated"].is_null()) return "-";
  return fmt::format("{:+.1f} points", result["simulated"].get<double>() - row["stated"].get<double>());
}

std::string tolerance_cell(const ordered_json& row) {
  const ordered_json& points = row["tolerance_points"];
  return points.is_null() ? percent(row["tolerance"], false) : fmt::format("{:g} points", points.get<double>());
}

std::string rows_text(const ordered_json& document) {
  const std::vector<Shown> columns = shown(document);
  std::vector<std::string> header{"id", "metric", "unit", "stated", "tolerance"};
  for (const Shown& column : columns) header.insert(header.end(), {column.title, "error", "verdict"});
  report::Table table(header);
  for (const ordered_json& row : document["rows"]) {
    std::vector<std::string> cells{row["id"], row["metric"], row["unit"], cell(row["stated"]), tolerance_cell(row)};
    for (const Shown& column : columns) {
      const ordered_json& result = column.result(row);
      cells.insert(cells.end(), {cell(result["simulated"]), error_cell(row, result), result["verdict"]});
    }
    table.add_row(cells);
  }
  return table.to_text();
}

/// What the columns change, one line for each.
std::string columns_text(const ordered_json& document) {
  std::string text;
  if (!document.contains("columns")) return text;
  for (const ordered_json& column : document["columns"]) {
    std::string values;
    for (const auto& [path, value] : column["overrides"].items())
      values += fmt::format("{}{} = {}", values.empty() ? "" : ", ", path, value.get<std::string>());
    text +=
        fmt::format("{}: {}\n", column["title"].get<std::string>(), values.empty() ? "the scenario as it is" : values);
  }
  return text + "\n";
}

/// The rows that do not agree, by column.
std::string differences_text(const ordered_json& document) {
  std::string text;
  for (const Shown& column : shown(document)) {
    std::string rows;
    for (const ordered_json& row : document["rows"]) {
      const ordered_json& result = column.result(row);
      const std::string note = result["note"];
      if (!agrees(result))
        rows += fmt::format("- {}: stated {}, simulated {}{}\n", row["id"].get<std::string>(), cell(row["stated"]),
                            cell(result["simulated"]), note.empty() ? "" : ". " + note);
    }
    const std::string with = column.column.empty() ? "" : fmt::format(", {}", column.title);
    text += rows.empty() ? fmt::format("\nAll judged rows agree with the paper{}.\n", with)
                         : fmt::format("\nRows that do not agree with the paper{}:\n{}", with, rows);
  }
  return text;
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
  text += constants_text(document["constants"]) + "\n" + columns_text(document) + rows_text(document);
  if (!document["inconsistencies"].empty()) text += "\nContradictions in the paper:\n";
  for (const ordered_json& each : document["inconsistencies"])
    text += fmt::format("- {}\n", each["text"].get<std::string>());
  if (!document["absent"].empty()) text += "\nResults of the paper without a row:\n";
  for (const ordered_json& each : document["absent"])
    text += fmt::format("- {}: {}\n", each["id"].get<std::string>(), each["why"].get<std::string>());
  return text + differences_text(document);
}

void check_document(const ordered_json& document, const std::string& where) {
  const auto is_list = [&](const char* key) { return document.contains(key) && document[key].is_array(); };
  if (!document.is_object() || document.value("schema", ordered_json()) != kReproductionSchema ||
      !document.value("title", ordered_json()).is_string() || !document.value("points", ordered_json()).is_object() ||
      !is_list("constants") || !is_list("rows") || !is_list("inconsistencies") || !is_list("absent") ||
      !is_list("curves"))
    throw UserError(fmt::format("{}: is no result of csdsim reproduce, or of another version of it", where));
}

std::string page_of(const ordered_json& document) {
  const std::string script = fmt::format("{}\n{}\n{}", report::page_file("helpers.js"),
                                         report::page_file("chart_page.js"), report::page_file("reproduction.js"));
  return report::filled_page("reproduction.html", document["title"].get<std::string>(), document, script);
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
