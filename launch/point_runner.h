// Runs the points of a sweep, each in a process of its own, so that it can do no harm to the others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "launch/sweep_store.h"

namespace csdsim::launch {

/// A point to run.
struct Point {
  std::string name;                                                  ///< unique, fit for a directory
  std::vector<std::pair<std::string, nlohmann::ordered_json>> axes;  ///< path and value
  std::uint64_t fingerprint = 0;  ///< of all but the program that its result follows from
};

/// A point has ended, or its stored result was kept.
struct PointEvent {
  std::size_t finished = 0;  ///< points so far, this one included
  std::size_t total = 0;
  std::string name;
  std::string what;  ///< "kept", "1.2 s", "failed", "died of signal 9"
  std::string said;  ///< on stderr, by a point that failed
};

struct PointRunnerOptions {
  /// Takes results.sqlite, results.csv and a folder points/NAME per point.
  std::filesystem::path directory;
  /// Arguments with which the program runs point `index` and writes result.json into `out`.
  std::function<std::vector<std::string>(std::size_t index, const std::filesystem::path& out)> arguments;
  std::filesystem::path program = "/proc/self/exe";
  std::size_t jobs = 1;  ///< points at a time
  bool resume = false;   ///< keeps stored results with the same fingerprint, of the same program
  std::function<void(const PointEvent&)> progress = [](const PointEvent&) {};
};

class PointRunner {
 public:
  /// UserError if the directory's results.sqlite is not writable or not ours. Without `resume` all that it holds is
  /// forgotten.
  PointRunner(std::vector<Point> points, PointRunnerOptions options);

  /// Runs all points, stores each result when its point has ended, and writes the tables at the end. Returns 0, or the
  /// least exit status of the points that failed; a point that died of a signal counts as 1. UserError if a point
  /// cannot be started.
  int run();

  /// By index.
  std::vector<SweepRow> rows() const;

 private:
  struct Running {
    std::size_t index;
    std::filesystem::path directory;
  };

  void start(std::size_t index);
  /// Waits until a process has ended.
  void reap();
  void fail(const Running& point, int status);
  void note(std::size_t index, std::string what, std::string said = {}) const;
  /// What a stored result must have been computed from to be kept.
  std::string key(std::size_t index) const;

  std::vector<Point> points_;
  PointRunnerOptions options_;
  SweepStore store_;
  std::uint64_t program_hash_;  ///< other code gives other results
  std::map<pid_t, Running> running_;
  std::vector<nlohmann::ordered_json> results_;
  std::vector<std::string> errors_;  ///< of points that failed
  std::size_t finished_ = 0;
  int status_ = 0;
};

}  // namespace csdsim::launch
