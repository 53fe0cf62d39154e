#include "launch/database.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"

namespace csdsim::launch {

using nlohmann::ordered_json;

std::string quoted(const std::string& identifier) {
  std::string text = "\"";
  for (char c : identifier) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

Statement::Statement(sqlite3* db, const std::string& sql) : db_(db) {
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &handle_, nullptr) != SQLITE_OK)
    throw UserError(fmt::format("results.sqlite: {} (in: {})", sqlite3_errmsg(db), sql));
}

void Statement::bind(int position, const std::string& text) {
  sqlite3_bind_text(handle_, position, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

void Statement::bind(int position, const ordered_json& value) {
  if (value.is_number_float()) {
    sqlite3_bind_double(handle_, position, value.get<double>());
  } else if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    bind(position, value.dump());  // SQLite has no such integers: as text, all digits stay
  } else if (value.is_number()) {
    bind(position, value.get<std::int64_t>());
  } else if (value.is_null()) {
    sqlite3_bind_null(handle_, position);
  } else {
    bind(position, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

bool Statement::step() {
  const int code = sqlite3_step(handle_);
  if (code != SQLITE_ROW && code != SQLITE_DONE)
    throw UserError(fmt::format("results.sqlite: {}", sqlite3_errmsg(db_)));
  return code == SQLITE_ROW;
}

std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  return bytes == nullptr ? "" : bytes;
}

ordered_json Statement::cell(int column) const {
  switch (sqlite3_column_type(handle_, column)) {
    case SQLITE_INTEGER:
      return number(column);
    case SQLITE_FLOAT:
      return sqlite3_column_double(handle_, column);
    case SQLITE_NULL:
      return nullptr;
    default:
      return text(column);
  }
}

bool has_table(sqlite3* db, const std::string& name) {
  Statement find(db, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?");
  find.bind(1, name);
  return find.step();
}

}  // namespace csdsim::launch
