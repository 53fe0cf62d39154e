// Stores the results of a sweep on disk. Each point is written when it finishes, so that an interrupted sweep can
// resume.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

struct sqlite3;

namespace csdsim::launch {

/// One point: its axis values as written in the scenario, and its result.json or the reason why it failed.
struct SweepRow {
  std::size_t index = 0;
  std::string name;
  std::vector<std::pair<std::string, nlohmann::ordered_json>> axes;
  nlohmann::ordered_json result;
  std::string error;  ///< why the point failed; empty when it succeeded
};

/// DIR/results.sqlite. Table `points` holds the data needed to resume; table `results` (axes and flat metrics as
/// columns) is for queries by users.
class SweepStore {
 public:
  /// Opens or creates DIR/results.sqlite, and locks DIR until the end against other sweeps. Waits while other programs
  /// read the database. Throws UserError when another sweep has the lock, or when the file is not writable or not an
  /// SQLite database.
  explicit SweepStore(const std::filesystem::path& directory);
  ~SweepStore();
  SweepStore(const SweepStore&) = delete;
  SweepStore& operator=(const SweepStore&) = delete;

  /// Deletes all points.
  void clear();

  /// Returns the stored result of the point if it was computed with the same `key` (a hash of effective configuration
  /// and build).
  std::optional<nlohmann::ordered_json> find(std::size_t index, const std::string& key) const;

  /// Stores a finished point durably.
  void put(std::size_t index, const std::string& key, const nlohmann::ordered_json& result);

  /// Writes table `results` and DIR/results.csv in the order of `rows`. The columns are point, name, axes, the union of
  /// all metrics and, if a point has failed, `error`.
  void write_results(const std::vector<SweepRow>& rows);

 private:
  void execute(const std::string& sql);

  std::filesystem::path directory_;
  int lock_ = -1;  ///< file descriptor of the directory
  struct Close {
    void operator()(sqlite3* db) const;
  };
  std::unique_ptr<sqlite3, Close> db_;
};

/// The rows of a sweep that has ended, as DIR/results.sqlite holds them. Throws UserError without one.
std::vector<SweepRow> stored_rows(const std::filesystem::path& directory);

}  // namespace csdsim::launch
