// Rows of reproduction.json in words, for the table and the page.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace csdsim::reproduction {

/// Whether a row agrees with the paper.
enum class Side : std::uint8_t { agrees, disagrees, unjudged };
Side side_of(const nlohmann::ordered_json& row);

/// Results that stand side by side: the rows themselves, or those of a column.
struct Shown {
  std::string title;
  std::string overrides;        ///< what the column changes in the scenario, in words
  nlohmann::ordered_json rows;  ///< with the results of the column
};
/// At least one.
std::vector<Shown> shown(const nlohmann::ordered_json& document);

/// A value in a table: numbers short, texts as they are, all else as JSON.
std::string cell(const nlohmann::ordered_json& value);
/// The error of a number: in percent, or in points if the tolerance is in points. "-" for a trend: its verdict is
/// enough.
std::string error_text(const nlohmann::ordered_json& row);
/// "within", or "within, fitted" where a constant was fitted on the row.
std::string verdict_text(const nlohmann::ordered_json& row);
/// How many rows agree, and how many confirm nothing because constants were fitted on them.
std::string agreement_text(const nlohmann::ordered_json& rows);

}  // namespace csdsim::reproduction
