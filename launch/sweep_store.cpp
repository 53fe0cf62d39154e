#include "launch/sweep_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <thread>

#include "base/error.h"
#include "report/csv.h"

namespace csdsim::launch {
namespace {

using nlohmann::ordered_json;

std::string quoted(const std::string& identifier) {
  std::string text = "\"";
  for (char c : identifier) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

/// A prepared statement that is finalized on every path.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) : db_(db) {
    if (sqlite3_prepare_v2(db, sql.c_str(), -1, &handle_, nullptr) != SQLITE_OK)
      throw UserError(fmt::format("results.sqlite: {} (in: {})", sqlite3_errmsg(db), sql));
  }
  ~Statement() { sqlite3_finalize(handle_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int position, std::int64_t value) { sqlite3_bind_int64(handle_, position, value); }
  void bind(int position, const std::string& text) {
    sqlite3_bind_text(handle_, position, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void bind(int position, const ordered_json& value) {
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
  /// Advances to the next row; false at the end.
  bool step() {
    const int code = sqlite3_step(handle_);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
      throw UserError(fmt::format("results.sqlite: {}", sqlite3_errmsg(db_)));
    return code == SQLITE_ROW;
  }
  void reset() { sqlite3_reset(handle_); }
  sqlite3_stmt* handle() const { return handle_; }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
    return bytes == nullptr ? "" : bytes;
  }

 private:
  sqlite3* db_;
  sqlite3_stmt* handle_ = nullptr;
};

/// The metrics and wall figures of a result as one flat object, in the order of the file.
ordered_json flat_metrics(const ordered_json& result) {
  if (result.is_null()) return ordered_json::object();
  ordered_json flat = result.value("metrics", ordered_json::object());
  const ordered_json wall = result.value("wall", ordered_json::object());
  for (const auto& [key, value] : wall.items()) flat[key] = value;
  return flat;
}

constexpr int kWaitForReaders = 600'000;  // ms
constexpr int kTriesToLock = 20;          // 100 ms apart: the points of a sweep that was killed end a moment later

/// Locks a directory; returns its descriptor.
int lock(const std::filesystem::path& directory) {
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor == -1) throw UserError(fmt::format("{}: cannot be opened", directory.string()));
  for (int tried = 1; flock(descriptor, LOCK_EX | LOCK_NB) != 0; ++tried) {
    if (tried < kTriesToLock) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    close(descriptor);
    throw UserError(fmt::format("{}: another sweep writes its results here; wait for it, or give another --out",
                                directory.string()));
  }
  return descriptor;
}

}  // namespace

void SweepStore::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

SweepStore::SweepStore(const std::filesystem::path& directory) : directory_(directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw UserError(fmt::format("{}: {}", directory.string(), error.message()));
  if (!std::filesystem::is_directory(directory))
    throw UserError(fmt::format("{}: is not a directory", directory.string()));
  lock_ = lock(directory);
  const std::filesystem::path path = directory / "results.sqlite";
  sqlite3* db = nullptr;
  const int code = sqlite3_open(path.c_str(), &db);
  db_.reset(db);
  if (code != SQLITE_OK) throw UserError(fmt::format("{}: cannot be opened: {}", path.string(), sqlite3_errmsg(db)));
  sqlite3_busy_timeout(db, kWaitForReaders);
  execute("CREATE TABLE IF NOT EXISTS points (point INTEGER PRIMARY KEY, key TEXT NOT NULL, result TEXT NOT NULL)");
}

SweepStore::~SweepStore() {
  if (lock_ != -1) close(lock_);
}

void SweepStore::execute(const std::string& sql) {
  char* message = nullptr;
  if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, &message) != SQLITE_OK) {
    const std::string why = message == nullptr ? "unknown error" : message;
    sqlite3_free(message);
    throw UserError(fmt::format("{}: {}", (directory_ / "results.sqlite").string(), why));
  }
}

void SweepStore::clear() { execute("DELETE FROM points; DROP TABLE IF EXISTS results"); }

std::optional<ordered_json> SweepStore::find(std::size_t index, const std::string& key) const {
  Statement select(db_.get(), "SELECT result FROM points WHERE point = ? AND key = ?");
  select.bind(1, static_cast<std::int64_t>(index));
  select.bind(2, key);
  if (!select.step()) return std::nullopt;
  return ordered_json::parse(select.text(0));
}

void SweepStore::put(std::size_t index, const std::string& key, const ordered_json& result) {
  Statement insert(db_.get(), "INSERT OR REPLACE INTO points VALUES (?, ?, ?)");
  insert.bind(1, static_cast<std::int64_t>(index));
  insert.bind(2, key);
  insert.bind(3, result.dump());
  insert.step();
}

void SweepStore::write_results(const std::vector<SweepRow>& rows) {
  std::vector<std::string> columns{"point", "name"};
  if (!rows.empty())
    for (const auto& [axis, value] : rows.front().axes) columns.push_back(axis);
  const std::size_t first_metric = columns.size();
  for (const SweepRow& row : rows) {
    const ordered_json metrics = flat_metrics(row.result);
    for (const auto& [key, value] : metrics.items())
      if (std::find(columns.begin(), columns.end(), key) == columns.end()) columns.push_back(key);
  }
  const bool failures = std::any_of(rows.begin(), rows.end(), [](const SweepRow& row) { return !row.error.empty(); });
  const std::size_t end_of_metrics = columns.size();
  if (failures) columns.push_back("error");

  std::string definition;
  std::string placeholders;
  for (const std::string& column : columns) {
    definition += (definition.empty() ? "" : ", ") + quoted(column);
    placeholders += placeholders.empty() ? "?" : ", ?";
  }
  std::ofstream csv(directory_ / "results.csv", std::ios::trunc);
  csv << report::csv_line(std::vector<ordered_json>(columns.begin(), columns.end()));

  execute(fmt::format("BEGIN; DROP TABLE IF EXISTS results; CREATE TABLE results ({})", definition));
  Statement insert(db_.get(), fmt::format("INSERT INTO results VALUES ({})", placeholders));
  for (const SweepRow& row : rows) {
    const ordered_json metrics = flat_metrics(row.result);
    std::vector<ordered_json> cells{row.index, row.name};
    for (const auto& [axis, value] : row.axes) cells.emplace_back(value);
    for (std::size_t c = first_metric; c < end_of_metrics; ++c)
      cells.push_back(metrics.contains(columns[c]) ? metrics[columns[c]] : ordered_json(nullptr));
    if (failures) cells.push_back(row.error.empty() ? ordered_json(nullptr) : ordered_json(row.error));
    for (std::size_t c = 0; c < cells.size(); ++c) insert.bind(static_cast<int>(c) + 1, cells[c]);
    csv << report::csv_line(cells);
    insert.step();
    insert.reset();
  }
  execute("COMMIT");
  csv.flush();
  if (!csv) throw UserError(fmt::format("{}: cannot be written", (directory_ / "results.csv").string()));
}

namespace {

/// A column of the current row; integers and numbers as such, text as text.
ordered_json cell(sqlite3_stmt* row, int column) {
  switch (sqlite3_column_type(row, column)) {
    case SQLITE_INTEGER:
      return sqlite3_column_int64(row, column);
    case SQLITE_FLOAT:
      return sqlite3_column_double(row, column);
    case SQLITE_NULL:
      return nullptr;
    default:
      return std::string(reinterpret_cast<const char*>(sqlite3_column_text(row, column)));
  }
}

bool has_table(sqlite3* db, const std::string& name) {
  Statement find(db, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?");
  find.bind(1, name);
  return find.step();
}

}  // namespace

std::vector<SweepRow> stored_rows(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "results.sqlite";
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
  const std::unique_ptr<sqlite3, decltype(&sqlite3_close)> db(opened, &sqlite3_close);
  if (code != SQLITE_OK) throw UserError(fmt::format("{}: {}", path.string(), sqlite3_errmsg(opened)));
  if (!has_table(opened, "points")) throw UserError(fmt::format("{}: is no database of csdsim sweep", path.string()));
  if (!has_table(opened, "results"))
    throw UserError(fmt::format("{}: the sweep has not ended; run it again with --resume", directory.string()));
  Statement select(opened,
                   "SELECT points.result, results.* FROM results LEFT JOIN points USING (point) ORDER BY point");
  std::vector<SweepRow> rows;
  while (select.step()) {
    SweepRow& row = rows.emplace_back();
    const std::string result = select.text(0);
    if (!result.empty()) row.result = ordered_json::parse(result);
    for (int c = 1; c < sqlite3_column_count(select.handle()); ++c) {
      const std::string name = sqlite3_column_name(select.handle(), c);
      const ordered_json value = cell(select.handle(), c);
      if (name == "point")
        row.index = value.get<std::size_t>();
      else if (name == "name")
        row.name = value;
      else if (name == "error")
        row.error = value.is_null() ? "" : value.get<std::string>();
      else
        row.axes.emplace_back(name, value);
    }
  }
  // Axes come before all metrics.
  std::size_t axes = rows.empty() ? 0 : rows.front().axes.size();
  for (const SweepRow& row : rows) {
    const ordered_json metrics = flat_metrics(row.result);
    const auto first = std::ranges::find_if(row.axes, [&](const auto& axis) { return metrics.contains(axis.first); });
    axes = std::min(axes, static_cast<std::size_t>(first - row.axes.begin()));
  }
  for (SweepRow& row : rows) row.axes.resize(axes);
  return rows;
}

}  // namespace csdsim::launch
