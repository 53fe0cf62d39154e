#include "report/csv.h"

#include <charconv>
#include <vector>

namespace csdsim::report {

using nlohmann::ordered_json;

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  quoted += '"';
  return quoted;
}

namespace {

/// A text that a spreadsheet would take for a formula, with an apostrophe before it, which makes it text there.
std::string no_formula(const std::string& text) {
  if (text.size() < 2 || std::string_view("=+-@\t\r").find(text.front()) == std::string_view::npos) return text;
  double number = 0;
  const char* const end = text.data() + text.size();
  const bool is_number = std::from_chars(text.data(), end, number) == std::from_chars_result{end, {}};
  return is_number ? text : "'" + text;
}

}  // namespace

std::string csv_line(std::span<const ordered_json> cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    if (!cells[i].is_null())
      line += csv_field(cells[i].is_string() ? no_formula(cells[i].get<std::string>()) : cells[i].dump());
  }
  line += '\n';
  return line;
}

std::string csv_rows(const ordered_json& rows) {
  if (rows.empty()) return {};
  std::vector<ordered_json> cells;
  for (const auto& [key, value] : rows[0].items()) cells.emplace_back(key);
  std::string text = csv_line(cells);
  for (const ordered_json& row : rows) {
    cells.clear();
    for (const ordered_json& value : row) cells.push_back(value);
    text += csv_line(cells);
  }
  return text;
}

}  // namespace csdsim::report
