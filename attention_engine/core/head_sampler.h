// Chooses the jobs of an attention command that a sampled run does not simulate, and estimates their time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "attention_engine/core/head_job.h"
#include "base/units.h"

namespace csdsim::engine {

/// The work of the ended jobs of a command.
struct HeadJobsDone {
  std::uint64_t jobs = 0;
  std::uint64_t pages = 0;   ///< that they have asked for
  double pages_squared = 0;  ///< sum over the jobs
  std::uint64_t macs = 0;
  Bytes engine_bytes{};

  friend HeadJobsDone operator-(const HeadJobsDone& a, const HeadJobsDone& b) {
    return {a.jobs - b.jobs, a.pages - b.pages, a.pages_squared - b.pages_squared, a.macs - b.macs,
            a.engine_bytes - b.engine_bytes};
  }
};

/// Jobs that a command passes over: their work, as the measured jobs show it.
struct PassedOver {
  std::uint64_t jobs = 0;
  double pages = 0;
  std::uint64_t macs = 0;
  Bytes engine_bytes{};
  SimTime time{};        ///< that they would have taken
  double deviation = 0;  ///< estimated standard error of `time`, in seconds
  double drift = 0;      ///< seconds more that they would have taken if the second half of the window showed their pace
  double of_window_pages = 0;  ///< `pages` over the pages read in the window
  double of_window_jobs = 0;   ///< `jobs` over the jobs that ended in it
};

/// The sampler's interface to the drive around the engine.
class HeadSamplingPort {
 public:
  /// Nothing but attention works in the drive: no flush or erase is on its way, and no append.
  virtual bool steady() const = 0;
  /// Page operations that the flash has done so far.
  virtual std::uint64_t page_ops() = 0;
  /// The window of the measured jobs begins, and ends.
  virtual void window_begins() = 0;
  virtual void window_ends() = 0;
  /// Nothing of attention goes on until `jobs.time` from now has passed.
  virtual void pass_over(const PassedOver& jobs) = 0;

 protected:
  ~HeadSamplingPort() = default;
};

/// Measures the pace of a command whose jobs are alike, and passes over those in its middle. Once the drive is steady,
/// twice as many jobs as the engine works on at a time end unmeasured; then comes the window, in which at least
/// `measured` jobs end. Then attention stands still, with its queues as full as they are, for the time that the jobs
/// passed over would have taken: their pages at the pace of the window. So many jobs as the engine works on at a time
/// are left to start after that. Pages, not ends of jobs, show the pace, because jobs that have started together end
/// together.
class HeadSampler {
 public:
  /// Parts of the window from which its error is estimated: longer ones than jobs are in flight, which end together.
  static constexpr std::uint32_t kBlocks = 4;

  /// `port` must outlive the sampler. `measured` is at least kBlocks. `period`: jobs so far apart use the same planes
  /// in the same order; only whole periods are passed over, because jobs that meet other planes than their neighbours
  /// leave some idle.
  HeadSampler(HeadSamplingPort& port, std::uint32_t measured, std::uint32_t jobs_in_flight, std::uint32_t period)
      : port_(port), measured_(measured), in_flight_(jobs_in_flight), period_(period) {}

  /// True if passing over jobs of a command of so many is worth it: at most half of them are simulated if the drive is
  /// steady all the time.
  bool worthwhile(std::size_t jobs) const {
    const std::size_t simulated = measured_ + std::size_t{4} * in_flight_;
    return jobs > simulated && 2 * periods(jobs - simulated) >= jobs;
  }

  /// A job of a command of `jobs` jobs, of which `started` have started, has ended at `at`. Returns the jobs that it
  /// passes over from now on, once.
  std::optional<PassedOver> job_ended(TaskId task, std::size_t jobs, std::size_t started, const HeadJobsDone& done,
                                      SimTime at);
  void pass_over(const PassedOver& jobs) { port_.pass_over(jobs); }

 private:
  struct Point {
    SimTime at;
    std::uint64_t pages = 0;
  };
  std::size_t periods(std::size_t jobs) const { return jobs / period_ * period_; }
  PassedOver estimate(std::uint64_t jobs, const HeadJobsDone& measured) const;

  HeadSamplingPort& port_;
  std::uint32_t measured_, in_flight_, period_;
  std::optional<TaskId> task_;
  bool over_ = false;          ///< nothing more of this task is measured
  std::uint32_t settled_ = 0;  ///< jobs that have ended since the drive is steady
  HeadJobsDone before_;        ///< the window
  std::vector<Point> points_;  ///< the begin of the window, and each end of a job in it
};

}  // namespace csdsim::engine
