// Comma-separated values (RFC 4180, with a line feed as the end of a line).
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace csdsim::report {

/// Formats `text` as one field; quotes it when it contains a comma, a quote or a line end.
std::string csv_field(std::string_view text);

/// Formats one line, line end included. Text is written without JSON escapes, null as an empty field, other values as
/// in JSON.
std::string csv_line(std::span<const nlohmann::ordered_json> cells);

/// Formats an array of objects with equal keys: a header line with the keys, then one line per object.
std::string csv_rows(const nlohmann::ordered_json& rows);

}  // namespace csdsim::report
