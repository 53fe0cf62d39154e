// Jobs of a command that are passed over, and the time that they are said to take.
#include "attention_engine/core/head_sampler.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <optional>
#include <vector>

namespace test_head_sampler {

using namespace csdsim;
using namespace csdsim::engine;

namespace {

constexpr std::uint32_t kMeasured = 16, kInFlight = 2, kPeriod = 10;

class Port final : public HeadSamplingPort {
 public:
  bool steady() const override { return steady_; }
  std::uint64_t page_ops() override { return pages; }
  void window_begins() override { began = ended; }
  void window_ends() override { window = ended; }
  void pass_over(const PassedOver&) override {}

  bool steady_ = true;
  std::uint64_t pages = 0;
  std::uint64_t ended = 0, began = 0, window = 0;  ///< jobs
};

/// Ends jobs of a command of 100: job i takes `time(i)` and reads `pages(i)` pages. Returns what is passed over, after
/// how many jobs.
struct Outcome {
  std::uint64_t after = 0;
  std::optional<PassedOver> passed;
};
Outcome play(
    Port& port, const std::function<std::int64_t(std::uint64_t)>& time,
    const std::function<std::uint64_t(std::uint64_t)>& pages,
    const std::function<bool(std::uint64_t)>& steady = [](std::uint64_t) { return true; }) {
  HeadSampler sampler(port, kMeasured, kInFlight, kPeriod);
  HeadJobsDone done;
  SimTime now;
  for (std::uint64_t i = 0; i < 100; ++i) {
    now += SimTime{time(i)};
    port.pages += pages(i);
    port.steady_ = steady(i);
    port.ended = ++done.jobs;
    done.pages += pages(i);
    done.pages_squared += double(pages(i) * pages(i));
    done.macs += 1000;
    done.engine_bytes += Bytes{50};
    const auto passed = sampler.job_ended(TaskId{7}, 100, done.jobs + kInFlight, done, now);
    if (passed) return {done.jobs, passed};
  }
  return {};
}

}  // namespace

TEST_CASE("jobs that take equally long are passed over at their pace, without an error") {
  Port port;
  const Outcome out = play(
      port, [](auto) { return 30; }, [](auto) { return 5; });
  REQUIRE(out.passed);
  // Two times the jobs in flight end first, the last of them begins the window.
  CHECK(port.began == 2 * kInFlight);
  // After 16 measured jobs 76 are left to pass over: whole periods are 70, and the window goes on while that costs
  // nothing. As many jobs are left to start as are in flight.
  const std::uint64_t passed = 70, measured = 22;
  CHECK(port.window == 2 * kInFlight + measured);
  CHECK(out.after == port.window);
  CHECK(out.after + kInFlight + passed + kInFlight == 100);
  CHECK(out.passed->jobs == passed);
  CHECK(out.passed->time == SimTime{30} * std::int64_t(passed));
  CHECK(out.passed->pages == Approx(5.0 * double(passed)));
  CHECK(out.passed->macs == 1000 * passed);
  CHECK(out.passed->engine_bytes == Bytes{50 * passed});
  CHECK(out.passed->of_window_jobs == Approx(double(passed) / double(measured)));
  CHECK(out.passed->of_window_pages == Approx(double(passed) / double(measured)));
  // The end of the command is known to a job.
  CHECK(out.passed->deviation == Approx(30e-12 / std::sqrt(12.0)));
  CHECK(out.passed->drift == Approx(0).margin(1e-18));
}

TEST_CASE("the window begins anew once the drive is steady") {
  Port port;
  // What the jobs before take does not count: a flush ends with job 30.
  const auto slow = [](std::uint64_t i) { return i <= 30 ? 500 : 30; };
  const Outcome out = play(
      port, slow, [](auto) { return 5; }, [](std::uint64_t i) { return i < 10 || i > 30; });
  REQUIRE(out.passed);
  CHECK(out.passed->jobs == 40);
  CHECK(out.after + 2 * kInFlight + 40 == 100);
  CHECK(out.passed->time == SimTime{30} * std::int64_t(out.passed->jobs));
}

TEST_CASE("nothing is passed over where too few jobs are left, or none reads a page") {
  Port port;
  CHECK(!play(
             port, [](auto) { return 30; }, [](auto) { return 5; }, [](std::uint64_t i) { return i > 70; })
             .passed);
  CHECK(!play(
             port, [](auto) { return 30; }, [](auto) { return 0; })
             .passed);
  const HeadSampler sampler(port, kMeasured, kInFlight, kPeriod);
  CHECK(sampler.worthwhile(54));  // 24 are simulated at least, 30 passed over
  CHECK(!sampler.worthwhile(53));
}

TEST_CASE("uneven blocks, uneven jobs and a pace that drifts show in the error") {
  constexpr std::uint64_t kFirst = 2 * kInFlight, kJobs = 22;
  Port port;
  const auto even = [](auto) { return std::uint64_t{5}; };
  const double of_both = std::sqrt(1 + double(kJobs) / 70);
  const auto relative = [](const Outcome& out) { return out.passed->deviation / out.passed->time.seconds(); };
  const auto with_ends = [](double of_window) { return std::hypot(of_window, 1 / (70 * std::sqrt(12.0))); };

  // Blocks of 5, 6, 5 and 6 jobs; those of the second and the fourth take 60 instead of 40.
  const auto in_block = [](std::uint64_t i) {
    return (i - kFirst) < 5 ? 0 : (i - kFirst) < 11 ? 1 : (i - kFirst) < 16 ? 2 : 3;
  };
  const Outcome blocks = play(
      port, [&](std::uint64_t i) { return in_block(i) % 2 == 0 ? 40 : 60; }, even);
  REQUIRE(blocks.passed);
  const double total = 10 * 40 + 12 * 60, pace = total / kJobs;
  const double squares = 2 * std::pow(5 * (40 - pace), 2) + 2 * std::pow(6 * (60 - pace), 2);
  CHECK(relative(blocks) == Approx(with_ends(of_both * std::sqrt(squares * 4 / 3) / total)));

  // The second half of the window is a fifth slower than the first.
  const Outcome drift = play(
      port, [](std::uint64_t i) { return i < kFirst + kJobs / 2 ? 50 : 60; }, even);
  REQUIRE(drift.passed);
  CHECK(drift.passed->drift == Approx(drift.passed->time.seconds() * (60.0 / 55 - 1)));

  // Jobs of 4 and 6 pages at an even pace per page: the mean of 22 has a standard error of 1 / sqrt(21) of 5.
  const Outcome pages = play(
      port, [](std::uint64_t i) { return i % 2 ? 40 : 60; }, [](std::uint64_t i) { return i % 2 ? 4 : 6; });
  REQUIRE(pages.passed);
  CHECK(relative(pages) == Approx(with_ends(of_both / 5 / std::sqrt(21.0))));
}

}  // namespace test_head_sampler
