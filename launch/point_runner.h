// Runs the points of a sweep, each in a process of its own, and stores their results.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "launch/point_places.h"
#include "launch/sweep_store.h"

namespace csdsim::launch {

/// A point to run.
struct Point {
  std::string name;                                                  ///< unique; also the name of its directory
  std::vector<std::pair<std::string, nlohmann::ordered_json>> axes;  ///< path and value
  std::uint64_t fingerprint = 0;  ///< hash of everything the result depends on, except the program
  std::string refusal = {};       ///< why the point cannot run; empty if it can
};

/// A point has ended, or its stored result was kept.
struct PointEvent {
  std::size_t finished = 0;  ///< finished points, this one included
  std::size_t total = 0;
  std::string name;
  std::string what;         ///< "kept", "1.2 s", "same as NAME", "failed", "does not fit", "died of signal 9"
  std::string said;         ///< stderr of a point that failed, or why it cannot run
  double points_per_s = 0;  ///< that have run so far; 0 while none has
  double left_s = 0;        ///< time that the others will take at this rate
};

/// Part `index` (from 0) of `count` parts: every count-th point.
struct Shard {
  std::size_t index = 0;
  std::size_t count = 1;
  bool has(std::size_t point) const { return point % count == index; }
};

struct PointRunnerOptions {
  /// For results.sqlite, results.csv and one folder points/NAME per point.
  std::filesystem::path directory;
  /// Runs point `index` in its process. What it writes to stderr is kept. No other thread may exist when
  /// PointRunner::run() is called.
  RunPoint run;
  std::size_t jobs = 1;    ///< points that run at the same time
  Ranks* ranks = nullptr;  ///< if given, the other ranks run the points (serve_points()), one each
  /// The parts of each result that rows() return.
  ResultParts parts = {};
  bool resume = false;     ///< keep stored results with the same fingerprint and from the same program
  bool overwrite = false;  ///< delete the results that are stored
  Shard shard = {};        ///< runs these points only
  /// Chooses the points to run, some at a time, from the rows so far; none ends the sweep. Not with a shard.
  std::function<std::vector<std::size_t>(const std::vector<SweepRow>&)> choose = {};
  std::size_t most_chosen = 0;  ///< how many points `choose` chooses at the most
  std::function<void(const PointEvent&)> progress = [](const PointEvent&) {};
  /// Hears once a second how far a running point is: its name and its progress.
  std::function<void(const std::string&, const PointProgress&)> point_progress = {};
};

class PointRunner {
 public:
  /// UserError if another program writes to the directory, if it holds results and neither `resume` nor `overwrite`
  /// is set, or if results.sqlite is not writable or not an SQLite database.
  PointRunner(std::vector<Point> points, PointRunnerOptions options);

  /// Runs the points that can run, those with the same fingerprint once, stores each result when its point ends, and
  /// writes the tables at the end. Returns 0, or the smallest exit status of the failed points: 2 for one that cannot
  /// run, 1 for one that was killed by a signal. The points end with this process, however it ends. After an
  /// interrupt() no further point starts, those that run are ended, and the tables have the others. UserError if a
  /// point cannot be started.
  int run();

  /// One row per point of the shard, or that was chosen, by index; after an interrupt() of those that had ended. Call
  /// it after run().
  const std::vector<SweepRow>& rows() const { return rows_; }

 private:
  /// Runs points and appends their rows.
  void run_points(const std::vector<std::size_t>& indices);
  void start(std::size_t index);
  /// Waits until a point ends, and stores its result or its error.
  void reap();
  void fail(const EndedPoint& point);
  /// A point has failed: its exit status, what is said of it in one word or two, and why it failed.
  void fail(std::size_t index, int exit_status, const std::string& what, const std::string& said);
  /// A point has its result or its error, and so have the points that wait for it.
  void finish(std::size_t index, const std::string& what, const std::string& said = {});
  /// A point has the result or the error of another one, which has ended.
  void follow(std::size_t index, std::size_t other);
  void note(std::size_t index, std::string what, std::string said = {}) const;
  std::size_t points_to_run() const;
  /// Hash of configuration and program. A stored result with another key is not kept.
  std::string key(std::size_t index) const;

  std::vector<Point> points_;
  PointRunnerOptions options_;
  std::uint64_t program_hash_;
  std::unique_ptr<PointPlaces> places_;
  SweepStore store_;
  std::map<std::string, std::size_t> first_;                 ///< by key: the first point with it
  std::map<std::size_t, std::vector<std::size_t>> same_as_;  ///< points that wait for the result of another one
  std::map<std::size_t, nlohmann::ordered_json> read_;       ///< the parts of the results that are asked for, by index
  std::size_t running_ = 0;
  std::vector<SweepRow> rows_;
  struct Failure {
    std::string why;  ///< empty unless the point failed
    int exit_status = 0;
  };
  std::vector<Failure> failures_;  ///< by index
  std::vector<bool> ended_;        ///< by index
  std::size_t finished_ = 0;
  std::size_t ran_ = 0;  ///< points of `finished_` that were run: not kept ones, nor ones that share a result
  std::chrono::steady_clock::time_point start_;
};

/// The exit status of a sweep: 0, or the smallest one of the points that failed.
int exit_status_of(const std::vector<SweepRow>& rows);

/// Hash of all points and of the program: what the ranks of a sweep have to agree on.
std::uint64_t digest_of(const std::vector<Point>& points);

}  // namespace csdsim::launch
