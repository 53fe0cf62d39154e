// SQLite with exceptions: every error is a UserError that names the database.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace csdsim::launch {

/// An identifier of SQL, quoted.
std::string quoted(const std::string& identifier);

/// A prepared statement that is finalized on every path.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql);
  ~Statement() { sqlite3_finalize(handle_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  /// Positions count from 1.
  void bind(int position, std::int64_t value) { sqlite3_bind_int64(handle_, position, value); }
  void bind(int position, const std::string& text);
  void bind(int position, const nlohmann::ordered_json& value);
  /// Binds the values in order, executes, and is ready for the next values.
  template <class... T>
  void insert(const T&... values) {
    [[maybe_unused]] int position = 0;
    (bind(++position, values), ...);
    step();
    reset();
  }
  /// Advances to the next row; false at the end.
  bool step();
  void reset() { sqlite3_reset(handle_); }

  // Columns of the current row count from 0.
  std::string text(int column) const;
  std::int64_t number(int column) const { return sqlite3_column_int64(handle_, column); }
  /// Integers and numbers as such, text as text.
  nlohmann::ordered_json cell(int column) const;

 private:
  sqlite3* db_;
  sqlite3_stmt* handle_ = nullptr;
};

bool has_table(sqlite3* db, const std::string& name);

}  // namespace csdsim::launch
