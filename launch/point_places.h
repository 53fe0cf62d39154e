// Places where the points of a sweep run: processes of this machine, or ranks of an MPI program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/ranks.h"

namespace csdsim::launch {

/// How far a point is: `done` of `total` things that `what` names.
struct PointProgress {
  std::size_t index = 0;
  std::string what;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};

/// Takes the progress of the point that runs. It may be called often: it passes on one call a second.
using TellProgress = std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;
/// Runs a point, writes result.json into `out` and returns the exit status. A UserError counts as 2, any other
/// exception as 1.
using RunPoint = std::function<int(std::size_t index, const std::filesystem::path& out, const TellProgress& tell)>;
/// Hears of points that run.
using HearProgress = std::function<void(const PointProgress&)>;

/// The file with a point's stderr.
std::filesystem::path messages_of(const std::filesystem::path& out);

/// A point that has ended. Its files are in its directory.
struct EndedPoint {
  std::size_t index = 0;
  std::filesystem::path directory;
  int wait_status = 0;  ///< as of waitpid()
};

class PointPlaces {
 public:
  virtual ~PointPlaces() = default;
  /// Points at a time.
  virtual std::size_t count() const = 0;
  /// Precondition: fewer than count() points run. UserError if the point cannot be started.
  virtual void start(std::size_t index, const std::filesystem::path& out) = 0;
  /// Waits until a point ends. Precondition: one runs.
  virtual EndedPoint wait() = 0;
};

/// Points in copies of this process: a point that crashes does not affect the others, and all points run what was
/// loaded when the sweep started. To copy a process takes milliseconds, so that short points follow one another in the
/// same copy, until it has taken a second of processor time or a point has failed. Copies end with this process,
/// however it ends.
class PointProcesses final : public PointPlaces {
 public:
  PointProcesses(RunPoint run, std::size_t jobs, HearProgress hear)
      : run_(std::move(run)), jobs_(jobs), hear_(std::move(hear)) {}
  /// Ends the copies that run no point, and waits for them.
  ~PointProcesses() override;
  PointProcesses(const PointProcesses&) = delete;
  PointProcesses& operator=(const PointProcesses&) = delete;
  std::size_t count() const override { return jobs_; }
  void start(std::size_t index, const std::filesystem::path& out) override;
  EndedPoint wait() override;

 private:
  struct Copy {
    pid_t pid = 0;
    int socket = -1;
    std::optional<EndedPoint> point = {};  ///< that it runs
  };
  std::size_t new_copy();
  /// Sends a point to a copy; false if the copy has ended.
  static bool give(Copy& copy, std::size_t index, const std::filesystem::path& out);
  /// Waits until a copy has ended; returns how, as waitpid() does.
  int end(std::size_t copy);
  /// What a copy does. Returns when it is to end.
  void serve(int socket) const;
  int run_point(std::size_t index, const std::filesystem::path& out, const TellProgress& tell) const;
  /// Waits until a copy with a point says something, or has ended.
  std::size_t next_that_speaks() const;

  RunPoint run_;
  std::size_t jobs_;
  HearProgress hear_;
  std::vector<Copy> copies_;
};

/// Each point in one of the other ranks, which call serve_points(). This is the first rank.
class PointRanks final : public PointPlaces {
 public:
  /// Waits for all ranks. UserError if one has failed, or has read other files: `digest` is of all points and the
  /// program.
  PointRanks(Ranks& ranks, std::uint64_t digest, HearProgress hear);
  ~PointRanks() override;
  std::size_t count() const override { return static_cast<std::size_t>(ranks_.size()) - 1; }
  void start(std::size_t index, const std::filesystem::path& out) override;
  EndedPoint wait() override;

 private:
  Ranks& ranks_;
  HearProgress hear_;
  std::set<int> idle_;
  std::map<int, EndedPoint> running_;  ///< by rank
};

/// What every rank but the first does: runs points until there are no more, and sends their files.
void serve_points(Ranks& ranks, std::uint64_t digest, const RunPoint& run);
/// Tells the first rank why this one cannot serve.
void refuse_to_serve(Ranks& ranks, const std::string& why);

}  // namespace csdsim::launch
