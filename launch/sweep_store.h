// Stores the results of a sweep on disk. Each point is written when it finishes, so that an interrupted sweep can
// resume. docs/sweeps.md describes the tables.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/directory_lock.h"

struct sqlite3;

namespace csdsim::launch {

/// Path and value of an axis as written in the scenario.
using StoredAxis = std::pair<std::string, nlohmann::ordered_json>;

/// A point of a sweep before it runs.
struct StoredPoint {
  std::string name;
  std::vector<StoredAxis> axes;
  std::string key;  ///< hash of everything that its result depends on; points with the same key share a result
};

/// One point and its result.json, or the reason why it failed. A point that has not run has neither.
struct SweepRow {
  std::size_t index = 0;
  std::string name;
  std::vector<std::pair<std::string, nlohmann::ordered_json>> axes;
  nlohmann::ordered_json result;
  std::string error;         ///< why the point failed; empty when it succeeded
  int exit_status = 0;       ///< exit status of a point that failed: 2 for a mistake of the user, otherwise 1
  std::string same_as = {};  ///< the point whose result this is, because the same is simulated; empty: its own
};

/// The parts of a result document that are read, such as "metrics" or "breakdown.decode"; none: all. The effective
/// configuration and the statistics are most of a document, and few need them.
using ResultParts = std::set<std::string>;

/// The parts of a JSON document. Throws UserError "WHERE: ..." for text that is none.
nlohmann::ordered_json parts_of(const std::string& document, const ResultParts& parts, const std::string& where);

/// DIR/results.sqlite. Tables `points`, `axes` and `runs` hold what a resumed sweep needs; `metrics` (a row per point
/// and metric) and `results` (a row per point, axes and metrics as columns) are for queries by users.
class SweepStore {
 public:
  /// Opens or creates DIR/results.sqlite, and locks DIR until the end against other programs. Waits while other
  /// programs read the database. Throws UserError when another program has the lock, when the file is not writable or
  /// not an SQLite database, or when another version of csdsim or another program has written it.
  explicit SweepStore(const std::filesystem::path& directory);
  ~SweepStore();
  SweepStore(const SweepStore&) = delete;
  SweepStore& operator=(const SweepStore&) = delete;

  /// Results of runs that are stored.
  std::size_t runs() const;

  /// Replaces all points. Results of runs stay if `keep_runs`.
  void begin(const std::vector<StoredPoint>& points, bool keep_runs);

  /// True if a result of a run is stored, and is as it was written: its checksum says so.
  enum class Stored : std::uint8_t { no, yes, damaged };
  Stored find(const std::string& key) const;
  /// The stored result of a run, of which there is one.
  nlohmann::ordered_json result(const std::string& key, const ResultParts& parts) const;

  /// Stores a result of a run of `seconds`: durably, but short runs may wait a second for others, because to make them
  /// durable takes longer than they do. `result` is the text of a JSON document.
  void put(const std::string& key, std::string result, double seconds);

  /// Writes tables `results` and `metrics`, DIR/results.csv and DIR/results.jsonl in the order of `rows`. The columns
  /// are point, name, axes, the union of all metrics and, if a point has failed, `error`.
  void write_results(const std::vector<SweepRow>& rows);

 private:
  void execute(const std::string& sql);
  /// Ends the transaction of put().
  void commit();

  std::filesystem::path directory_;
  std::optional<DirectoryLock> lock_;
  struct Close {
    void operator()(sqlite3* db) const;
  };
  std::unique_ptr<sqlite3, Close> db_;
  bool uncommitted_ = false;
  std::chrono::steady_clock::time_point committed_;
};

/// A sweep as DIR/results.sqlite holds it: all points, and the rows of those that it was asked to run.
struct StoredSweep {
  std::vector<StoredPoint> points;
  std::vector<SweepRow> rows;
};

/// Throws UserError without a sweep of this version that has ended, and if what is stored is damaged.
StoredSweep stored_sweep(const std::filesystem::path& directory);

/// The sweep that several folders hold in parts. Throws UserError if they are parts of different sweeps, or if a point
/// is in none of them.
StoredSweep merged_sweep(const std::vector<std::filesystem::path>& directories);

}  // namespace csdsim::launch
