#include "reproduction/row_text.h"

#include <fmt/format.h>

#include "report/text.h"
#include "reproduction/evaluation.h"

namespace csdsim::reproduction {

using nlohmann::ordered_json;

Side side_of(const ordered_json& row) {
  const std::string& verdict = row["verdict"].get_ref<const std::string&>();
  if (verdict == to_string(Verdict::within) || verdict == to_string(Verdict::holds)) return Side::agrees;
  return verdict == to_string(Verdict::unjudged) ? Side::unjudged : Side::disagrees;
}

std::vector<Shown> shown(const ordered_json& document) {
  if (!document.contains("columns")) return {{"simulated", "", document["rows"]}};
  std::vector<Shown> all;
  for (const ordered_json& column : document["columns"]) {
    std::string overrides;
    for (const auto& [path, value] : column["overrides"].items())
      overrides += fmt::format("{}{} = {}", overrides.empty() ? "" : ", ", path, value.get<std::string>());
    ordered_json rows = document["rows"];
    for (ordered_json& row : rows) {
      const ordered_json result = row["columns"][column["name"].get<std::string>()];
      row.update(result);
    }
    all.push_back(
        {column["title"], overrides.empty() ? "the scenario as it is" : std::move(overrides), std::move(rows)});
  }
  return all;
}

std::string cell(const ordered_json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return report::short_number(value.get<double>());
  return value.dump();
}

std::string error_text(const ordered_json& row) {
  if (!row["stated"].is_number() || !row["simulated"].is_number() || row["error"].is_null()) return "-";
  if (row["tolerance_points"].is_null()) return fmt::format("{:+.1f} %", 100 * row["error"].get<double>());
  return fmt::format("{:+.1f} points", row["simulated"].get<double>() - row["stated"].get<double>());
}

std::string verdict_text(const ordered_json& row) {
  return row["verdict"].get<std::string>() + (row.value("narrow", false) ? ", by less than 1 %" : "") +
         (row.value("unsure", false) ? fmt::format(", not sure: a sample states {} %",
                                                   report::short_number(100 * row["sample_error"].get<double>()))
                                     : "") +
         (row["fitted"].get<bool>() ? ", fitted" : "");
}

std::string agreement_text(const ordered_json& rows) {
  int agree = 0, disagree = 0, unjudged = 0, narrow = 0, unsure = 0, unknown = 0, fitted = 0, fitted_outside = 0;
  for (const ordered_json& row : rows) {
    const Side side = side_of(row);
    unsure += row.value("unsure", false) ? 1 : 0;
    unknown += row.contains("sample_error") && row["sample_error"].is_null() ? 1 : 0;
    if (row["fitted"].get<bool>()) {
      ++fitted;
      fitted_outside += side == Side::disagrees ? 1 : 0;
    } else {
      narrow += row.value("narrow", false) ? 1 : 0;
      ++(side == Side::agrees ? agree : side == Side::disagrees ? disagree : unjudged);
    }
  }
  std::string text = fmt::format("{} of {} results agree with the paper, {} do not", agree, agree + disagree, disagree);
  if (narrow > 0) text += fmt::format("; {} of the orders hold by less than 1 % only", narrow);
  if (unsure > 0)
    text += fmt::format("; {} not sure: a sample states an error that could change it",
                        unsure == 1 ? "1 verdict is" : fmt::format("{} verdicts are", unsure));
  if (unknown > 0) text += fmt::format("; samples of {} are too small to state an error", unknown);
  if (unjudged > 0) text += fmt::format("; {} more have no bound and are not judged", unjudged);
  if (fitted > 0) text += fmt::format("; {} more confirm nothing, because constants were fitted on them", fitted);
  if (fitted_outside > 0) text += fmt::format(" ({} of them outside the bounds all the same)", fitted_outside);
  return text + ".";
}

}  // namespace csdsim::reproduction
