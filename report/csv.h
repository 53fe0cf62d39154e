// Comma-separated values (RFC 4180, with a line feed as the end of a line).
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace csdsim::report {

/// `text` as one field: in quotes where it holds a comma, a quote or the end of a line.
std::string csv_field(std::string_view text);

/// One line with its end. Texts stand as they are, null is an empty field, other values are written as in JSON.
std::string csv_line(std::span<const nlohmann::ordered_json> cells);

/// An array of objects with equal keys: a header line of the keys of the first object, then one line per object.
std::string csv_rows(const nlohmann::ordered_json& rows);

}  // namespace csdsim::report
