#include "attention_engine/core/head_sampler.h"

#include <algorithm>
#include <cmath>

namespace csdsim::engine {

std::optional<PassedOver> HeadSampler::job_ended(TaskId task, std::size_t jobs, std::size_t started,
                                                 const HeadJobsDone& done, SimTime at) {
  if (task_ != task) {
    task_ = task;
    over_ = false;
    settled_ = 0;
  }
  if (over_) return std::nullopt;
  if (!port_.steady()) {
    settled_ = 0;
    return std::nullopt;
  }
  const std::uint32_t warmup = 2 * in_flight_;
  if (++settled_ < warmup) return std::nullopt;
  if (settled_ == warmup) {
    points_.clear();
    before_ = done;
    port_.window_begins();
  }
  points_.push_back({at, port_.page_ops()});
  if (settled_ < warmup + measured_) return std::nullopt;
  const std::size_t left = started + in_flight_ < jobs ? jobs - started - in_flight_ : 0, passed = periods(left);
  if (passed > 0 && passed < left) return std::nullopt;  // to measure one more costs nothing
  over_ = true;
  if (passed == 0 || points_.back().pages == points_.front().pages) return std::nullopt;
  port_.window_ends();
  return estimate(passed, done - before_);
}

PassedOver HeadSampler::estimate(std::uint64_t jobs, const HeadJobsDone& measured) const {
  const double ended = double(measured.jobs), per_job = double(jobs) / ended;
  const auto scaled = [&](std::uint64_t count) {
    return static_cast<std::uint64_t>(std::llround(per_job * double(count)));
  };
  PassedOver passed{.jobs = jobs,
                    .pages = per_job * double(measured.pages),
                    .macs = scaled(measured.macs),
                    .engine_bytes = {scaled(measured.engine_bytes.value)}};
  const auto between = [&](std::size_t from, std::size_t to) {
    return Point{points_[to].at - points_[from].at, points_[to].pages - points_[from].pages};
  };
  const std::size_t last = points_.size() - 1;
  const Point window = between(0, last);
  const double seconds = window.at.seconds(), pace = seconds / double(window.pages);
  passed.of_window_pages = passed.pages / double(window.pages);
  passed.of_window_jobs = per_job;
  passed.time = SimTime{std::llround(passed.of_window_pages * double(window.at.ps))};

  // Residuals of the blocks from the common pace: their sum is 0.
  double squares = 0;
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const Point block = between(b * last / kBlocks, (b + 1) * last / kBlocks);
    squares += std::pow(block.at.seconds() - pace * double(block.pages), 2);
  }
  const double of_pace = std::sqrt(squares * kBlocks / (kBlocks - 1)) / seconds;
  const double mean = double(measured.pages) / ended;
  const double variance = std::max(0.0, measured.pages_squared / ended - mean * mean);
  const double of_pages = std::sqrt(variance / (ended - 1)) / mean;
  // The end of the jobs in flight is uncertain by the time of one job, equally likely anywhere in it.
  const double of_ends = 1 / (std::sqrt(12.0) * double(jobs));
  // The jobs passed over are a sample themselves.
  const double of_both = std::sqrt(1 + ended / double(jobs));
  passed.deviation = passed.time.seconds() * std::hypot(of_both * std::hypot(of_pace, of_pages), of_ends);
  const Point half = between(last / 2, last);
  if (half.pages > 0) passed.drift = passed.pages * (half.at.seconds() / double(half.pages) - pace);
  return passed;
}

}  // namespace csdsim::engine
