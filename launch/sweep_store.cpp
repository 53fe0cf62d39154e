#include "launch/sweep_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <span>
#include <utility>

#include "base/crc32.h"
#include "base/error.h"
#include "launch/database.h"
#include "report/csv.h"
#include "report/files.h"
#include "report/result_document.h"

namespace csdsim::launch {
namespace {

using nlohmann::ordered_json;

/// Version of the tables, as the `user_version` of the database.
constexpr std::int64_t kSchema = 4;
constexpr const char* kTables =
    "CREATE TABLE points (point INTEGER PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, error TEXT,"
    " exit_status INTEGER);"
    "CREATE TABLE axes (point INTEGER NOT NULL, axis INTEGER NOT NULL, path TEXT NOT NULL, value,"
    " PRIMARY KEY (point, axis)) WITHOUT ROWID;"
    "CREATE TABLE runs (key TEXT PRIMARY KEY, result TEXT NOT NULL, crc32 INTEGER NOT NULL);";

/// The metrics and wall figures of a result as one flat object, in the order of the file.
ordered_json flat_metrics(const ordered_json& result) {
  if (result.is_null()) return ordered_json::object();
  ordered_json flat = result.value("metrics", ordered_json::object());
  const ordered_json wall = result.value("wall", ordered_json::object());
  for (const auto& [key, value] : wall.items()) flat[key] = value;
  return flat;
}

constexpr int kWaitForReaders = 600'000;  // ms
/// Version of the tables; 0 for a database without tables. UserError for the tables of somebody else.
std::int64_t schema_of(sqlite3* db, const std::filesystem::path& path) {
  Statement version(db, "PRAGMA user_version");
  version.step();
  Statement tables(db, "SELECT count(*) FROM sqlite_master WHERE type = 'table'");
  tables.step();
  if (version.number(0) == 0 && tables.number(0) == 0) return 0;
  if (version.number(0) != kSchema || !has_table(db, "points"))
    throw UserError(
        fmt::format("{}: is no database of csdsim sweep, or of another version of it (its tables have version {}, "
                    "this program's {}); delete it, or give another folder",
                    path.string(), version.number(0), kSchema));
  return kSchema;
}

std::int64_t checksum(const std::string& result) { return crc32(std::as_bytes(std::span(result))); }

/// True if a result is as it was stored: its text and its checksum are the columns from `column` on.
bool is_intact(const Statement& row, int column) { return checksum(row.text(column)) == row.number(column + 1); }

/// Removes the line breaks and indentation of a JSON document. Strings have no line breaks.
void remove_indentation(std::string& document) {
  bool indents = false;
  std::erase_if(document, [&](char c) {
    if (c == '\n') indents = true;
    if (c != '\n' && c != ' ') indents = false;
    return indents;
  });
}

}  // namespace

ordered_json parts_of(const std::string& document, const ResultParts& parts, const std::string& where) {
  if (parts.empty()) return report::parse_json(document, where);
  std::string top;  // key of the document that is being read
  return report::parse_json(document, where, [&](int depth, const std::string& key) {
    if (depth > 2) return true;
    if (depth == 2) return parts.contains(top) || parts.contains(fmt::format("{}.{}", top, key));
    top = key;
    return std::ranges::any_of(parts,
                               [&](const std::string& part) { return part == top || part.starts_with(top + "."); });
  });
}

void SweepStore::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

SweepStore::SweepStore(const std::filesystem::path& directory) : directory_(directory) {
  report::make_directory(directory);
  if (!std::filesystem::is_directory(directory))
    throw UserError(fmt::format("{}: is not a directory", directory.string()));
  lock_.emplace(directory);
  const std::filesystem::path path = directory / "results.sqlite";
  sqlite3* db = nullptr;
  const int code = sqlite3_open(path.c_str(), &db);
  db_.reset(db);
  if (code != SQLITE_OK) throw UserError(fmt::format("{}: cannot be opened: {}", path.string(), sqlite3_errmsg(db)));
  sqlite3_busy_timeout(db, kWaitForReaders);
  if (schema_of(db, path) == 0) execute(fmt::format("BEGIN; {} PRAGMA user_version = {}; COMMIT", kTables, kSchema));
}

SweepStore::~SweepStore() {
  if (uncommitted_) sqlite3_exec(db_.get(), "COMMIT", nullptr, nullptr, nullptr);
}

void SweepStore::execute(const std::string& sql) {
  char* message = nullptr;
  if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, &message) != SQLITE_OK) {
    const std::string why = message == nullptr ? "unknown error" : message;
    sqlite3_free(message);
    throw UserError(fmt::format("{}: {}", (directory_ / "results.sqlite").string(), why));
  }
}

std::size_t SweepStore::runs() const {
  Statement count(db_.get(), "SELECT count(*) FROM runs");
  count.step();
  return static_cast<std::size_t>(count.number(0));
}

void SweepStore::begin(const std::vector<StoredPoint>& points, bool keep_runs) {
  execute(
      fmt::format("BEGIN; DROP TABLE IF EXISTS results; DROP TABLE IF EXISTS metrics; DELETE FROM points; "
                  "DELETE FROM axes; {}",
                  keep_runs ? "" : "DELETE FROM runs"));
  {
    Statement point(db_.get(), "INSERT INTO points VALUES (?, ?, ?, NULL, NULL)");
    Statement axis(db_.get(), "INSERT INTO axes VALUES (?, ?, ?, ?)");
    for (std::size_t i = 0; i < points.size(); ++i) {
      point.insert(static_cast<std::int64_t>(i), points[i].name, points[i].key);
      for (std::size_t a = 0; a < points[i].axes.size(); ++a)
        axis.insert(static_cast<std::int64_t>(i), static_cast<std::int64_t>(a), points[i].axes[a].first,
                    points[i].axes[a].second);
    }
  }
  execute("COMMIT");
}

SweepStore::Stored SweepStore::find(const std::string& key) const {
  Statement select(db_.get(), "SELECT result, crc32 FROM runs WHERE key = ?");
  select.bind(1, key);
  if (!select.step()) return Stored::no;
  return is_intact(select, 0) ? Stored::yes : Stored::damaged;
}

ordered_json SweepStore::result(const std::string& key, const ResultParts& parts) const {
  Statement select(db_.get(), "SELECT result FROM runs WHERE key = ?");
  select.bind(1, key);
  if (!select.step()) throw InternalError(fmt::format("{}: no result is stored", key));
  return parts_of(select.text(0), parts, (directory_ / "results.sqlite").string());
}

void SweepStore::put(const std::string& key, std::string result, double seconds) {
  remove_indentation(result);
  constexpr double kShort = 0.1;
  constexpr auto kLongestWait = std::chrono::seconds(1);
  if (!std::exchange(uncommitted_, true)) execute("BEGIN");
  Statement(db_.get(), "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)").insert(key, result, checksum(result));
  if (seconds > kShort || std::chrono::steady_clock::now() - committed_ > kLongestWait) commit();
}

void SweepStore::commit() {
  if (std::exchange(uncommitted_, false)) execute("COMMIT");
  committed_ = std::chrono::steady_clock::now();
}

void SweepStore::write_results(const std::vector<SweepRow>& rows) {
  commit();
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
  std::string lines, csv = report::csv_line(std::vector<ordered_json>(columns.begin(), columns.end()));

  execute(
      fmt::format("BEGIN; DROP TABLE IF EXISTS results; CREATE TABLE results ({}); DROP TABLE IF EXISTS metrics; "
                  "CREATE TABLE metrics (point INTEGER NOT NULL, metric TEXT NOT NULL, value, "
                  "PRIMARY KEY (point, metric)) WITHOUT ROWID",
                  definition));
  {
    Statement insert(db_.get(), fmt::format("INSERT INTO results VALUES ({})", placeholders));
    Statement metric(db_.get(), "INSERT INTO metrics VALUES (?, ?, ?)");
    Statement error(db_.get(), "UPDATE points SET error = ?, exit_status = ? WHERE point = ?");
    for (const SweepRow& row : rows) {
      const auto index = static_cast<std::int64_t>(row.index);
      const ordered_json metrics = flat_metrics(row.result);
      std::vector<ordered_json> cells{row.index, row.name};
      for (const auto& [axis, value] : row.axes) cells.emplace_back(value);
      for (std::size_t c = first_metric; c < end_of_metrics; ++c)
        cells.push_back(metrics.contains(columns[c]) ? metrics[columns[c]] : ordered_json(nullptr));
      if (failures) cells.push_back(row.error.empty() ? ordered_json(nullptr) : ordered_json(row.error));
      ordered_json line = ordered_json::object();
      for (std::size_t c = 0; c < cells.size(); ++c) {
        insert.bind(static_cast<int>(c) + 1, cells[c]);
        if (!cells[c].is_null()) line[columns[c]] = cells[c];
      }
      insert.insert();
      for (const auto& [name, value] : metrics.items()) metric.insert(index, name, ordered_json(value));
      if (!row.error.empty()) error.insert(row.error, std::int64_t{row.exit_status}, index);
      csv += report::csv_line(cells);
      lines += line.dump() + '\n';
    }
  }
  execute("COMMIT");
  report::write_file(directory_ / "results.csv", csv);
  report::write_file(directory_ / "results.jsonl", lines);
}

StoredSweep stored_sweep(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "results.sqlite";
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
  const std::unique_ptr<sqlite3, decltype(&sqlite3_close)> db(opened, &sqlite3_close);
  if (code != SQLITE_OK) throw UserError(fmt::format("{}: {}", path.string(), sqlite3_errmsg(opened)));
  if (schema_of(opened, path) == 0 || !has_table(opened, "results"))
    throw UserError(fmt::format("{}: the sweep has not ended; run it again with --resume", directory.string()));
  StoredSweep sweep;
  std::vector<std::pair<std::string, int>> failures;
  for (Statement select(opened, "SELECT name, key, error, exit_status FROM points ORDER BY point"); select.step();) {
    sweep.points.push_back({select.text(0), {}, select.text(1)});
    failures.emplace_back(select.text(2), static_cast<int>(select.number(3)));
  }
  const auto index_of = [&](const Statement& row) {
    if (row.number(0) < 0 || static_cast<std::size_t>(row.number(0)) >= sweep.points.size())
      throw UserError(fmt::format("{}: is damaged: it holds {} points, and a row of point {}", path.string(),
                                  sweep.points.size(), row.number(0)));
    return static_cast<std::size_t>(row.number(0));
  };
  for (Statement select(opened, "SELECT point, path, value FROM axes ORDER BY point, axis"); select.step();)
    sweep.points[index_of(select)].axes.emplace_back(select.text(1), select.cell(2));
  for (const StoredPoint& point : sweep.points)
    if (!std::ranges::equal(point.axes, sweep.points.front().axes, {}, &StoredAxis::first, &StoredAxis::first))
      throw UserError(fmt::format("{}: is damaged: points {} and {} have different axes", path.string(),
                                  sweep.points.front().name, point.name));
  Statement select(opened,
                   "SELECT point, runs.result, runs.crc32 FROM results JOIN points USING (point) "
                   "LEFT JOIN runs USING (key) ORDER BY point");
  while (select.step()) {
    const std::size_t index = index_of(select);
    const StoredPoint& point = sweep.points[index];
    SweepRow& row = sweep.rows.emplace_back(SweepRow{.index = index,
                                                     .name = point.name,
                                                     .axes = point.axes,
                                                     .result = nullptr,
                                                     .error = failures[index].first,
                                                     .exit_status = failures[index].second});
    if (!row.error.empty() || select.text(1).empty()) continue;
    const std::string where = fmt::format("{}: point {}", path.string(), point.name);
    if (!is_intact(select, 1))
      throw UserError(fmt::format("{}: the stored result is damaged; run the sweep again with --resume", where));
    row.result = report::parse_json(select.text(1), where);
    report::check_result(row.result, where);
  }
  return sweep;
}

StoredSweep merged_sweep(const std::vector<std::filesystem::path>& directories) {
  StoredSweep merged;
  std::map<std::size_t, SweepRow> rows;
  for (const std::filesystem::path& directory : directories) {
    StoredSweep part = stored_sweep(directory);
    const auto same = [](const StoredPoint& a, const StoredPoint& b) { return a.name == b.name && a.key == b.key; };
    if (merged.points.empty()) merged.points = part.points;
    if (!std::ranges::equal(merged.points, part.points, same))
      throw UserError(fmt::format("{} and {}: are parts of different sweeps, or of sweeps by different programs",
                                  directories.front().string(), directory.string()));
    for (SweepRow& row : part.rows) {
      const auto [at, is_new] = rows.try_emplace(row.index, row);
      if (!is_new && !at->second.error.empty()) at->second = std::move(row);
    }
  }
  for (std::size_t i = 0; i < merged.points.size(); ++i) {
    const auto row = rows.find(i);
    if (row == rows.end())
      throw UserError(fmt::format("{} of {} points are in none of these folders, the first is {}",
                                  merged.points.size() - rows.size(), merged.points.size(), merged.points[i].name));
    merged.rows.push_back(std::move(row->second));
  }
  return merged;
}

}  // namespace csdsim::launch
