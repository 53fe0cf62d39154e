// Results of a sweep on disk: one row per point, written as points finish so that an interrupted sweep can resume.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

struct sqlite3;

namespace csdsim::launch {

/// One point: its axis values as written in the scenario, and its result.json or why it has none.
struct SweepRow {
  std::size_t index = 0;
  std::string name;
  std::vector<std::pair<std::string, nlohmann::ordered_json>> axes;
  nlohmann::ordered_json result;
  std::string error;  ///< of a point that failed
};

/// DIR/results.sqlite. Table `points` holds what is needed to resume; table `results` (axes and flat metrics as
/// columns) is what people query.
class SweepStore {
 public:
  /// Opens or creates DIR/results.sqlite. Throws UserError when it is not writable or not ours.
  explicit SweepStore(const std::filesystem::path& directory);
  ~SweepStore();
  SweepStore(const SweepStore&) = delete;
  SweepStore& operator=(const SweepStore&) = delete;

  /// Forgets all points.
  void clear();

  /// The stored result of the point with this index if it was computed from the same `key` (effective config and
  /// build).
  std::optional<nlohmann::ordered_json> find(std::size_t index, const std::string& key) const;

  /// Stores a finished point durably.
  void put(std::size_t index, const std::string& key, const nlohmann::ordered_json& result);

  /// Writes table `results` and DIR/results.csv, rows by index: point, name, axes, then the union of all metrics;
  /// last, where a point has failed, `error`.
  void write_results(const std::vector<SweepRow>& rows);

 private:
  void execute(const std::string& sql);

  std::filesystem::path directory_;
  struct Close {
    void operator()(sqlite3* db) const;
  };
  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace csdsim::launch
