// Flash and engine in turns (EngineConfig::overlap_flash off): closed forms, and what holds in every run.
#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <random>

#include "attention_engine/core/head_scheduler.h"
#include "attention_engine/core/selection.h"
#include "fake_flash.h"
#include "memory_kv_source.h"

namespace test_engine_turns {

using namespace csdsim;
using namespace csdsim::engine;
using namespace csdsim::engine::test;

namespace {

constexpr unsigned kSeed = 99;
constexpr std::uint32_t kDim = 128;
constexpr std::uint32_t kTokensPerPage = 16;
constexpr SparfParams kSparf{.r = 16, .k = 192, .l = 48};
const SimTime kLatency = SimTime::microseconds(50);
const SimTime kPerPage = SimTime::microseconds(3);

HeadKey head(std::uint32_t h) { return {SequenceId{1}, LayerId{0}, KvHead{h}}; }

struct Case {
  EngineConfig config;
  std::vector<HeadJob> jobs;          ///< job h is about head(h)
  std::vector<std::uint32_t> tokens;  ///< tokens of each head
  std::vector<SimTime> at;            ///< each job is a task, submitted at this time; empty: one task at time 0
  SimTime latency = kLatency;
  SimTime per_page = kPerPage;
};

struct Outcome {
  SimTime end;
  std::size_t done = 0;
  bool side_by_side = false;  ///< at some time a read was outstanding while a unit worked
  EngineStats stats;
};

/// In timing mode, on a flash with one channel.
Outcome play(Case c, bool overlap) {
  MemoryKvSource source;
  for (std::uint32_t h = 0; h < c.jobs.size(); ++h) {
    c.jobs[h].key = head(h);
    source.add(head(h), {.tokens = c.tokens[h], .head_dim = kDim, .embedding_group = 8}, kSeed + h);
  }
  c.config.overlap_flash = overlap;
  ClusteredSelection selection(0.25, kSeed);
  TimingWork work(selection);
  FakeFlash flash(c.latency, c.per_page, true);
  HeadScheduler scheduler(c.config, source, work, flash);
  Outcome o;
  flash.watch = [&] {
    if (flash.outstanding() > 0 && scheduler.next_event() != SimTime::max()) o.side_by_side = true;
  };
  if (c.at.empty()) {
    scheduler.submit(c.jobs, {});
    o.end = flash.run(scheduler);
  }
  for (std::size_t i = 0; i < c.at.size(); ++i) {
    flash.run_until(scheduler, c.at[i]);
    scheduler.submit({&c.jobs[i], 1}, c.at[i]);
    flash.watch();
  }
  if (!c.at.empty()) o.end = flash.run(scheduler);
  o.done = flash.done.size();
  o.stats = scheduler.stats();
  CHECK(scheduler.buffer_in_use() == Bytes{0});
  CHECK(scheduler.jobs_running() == 0);
  return o;
}

SimTime kernel_time(const EngineConfig& c, std::uint64_t macs, std::uint64_t softmax) {
  const std::uint64_t cycles =
      (macs + c.macs_per_cycle - 1) / c.macs_per_cycle + (softmax + c.softmax_per_cycle - 1) / c.softmax_per_cycle;
  return cycles_time(cycles, c.clock);
}

Case equal_jobs(std::uint32_t n, Method method, std::uint32_t tokens, const EngineConfig& config) {
  Case c;
  c.config = config;
  c.jobs.assign(n, {.method = method,
                    .sparf = method == Method::sparf ? kSparf : SparfParams{},
                    .score = {.first = 0, .end = tokens}});
  c.tokens.assign(n, tokens);
  return c;
}

}  // namespace

TEST_CASE("in turns, n equal dense or score jobs take the time of all reads plus the time of all kernel work") {
  constexpr std::uint32_t kTokens = 640;
  for (const Method method : {Method::dense, Method::score})
    for (const std::uint32_t n : {1u, 2u, 7u, 16u})
      for (const std::uint32_t kernels : {1u, 2u, 3u}) {
        INFO("method " << static_cast<int>(method) << " n " << n << " kernels " << kernels);
        EngineConfig config;
        config.kernels = kernels;
        const bool dense = method == Method::dense;
        const std::int64_t pages = (dense ? 2 : 1) * kTokens / kTokensPerPage;
        const SimTime kernel =
            dense ? kernel_time(config, 2ull * kTokens * kDim, kTokens) : kernel_time(config, 1ull * kTokens * kDim, 0);
        const SimTime flash = kLatency + kPerPage * pages * n;
        const SimTime engine = kernel * static_cast<std::int64_t>((n + kernels - 1) / kernels);
        const Case c = equal_jobs(n, method, kTokens, config);
        const Outcome turns = play(c, false), side_by_side = play(c, true);
        CHECK(turns.end == flash + engine);
        CHECK(turns.stats.kernel_busy == kernel * static_cast<std::int64_t>(n));
        if (n > kernels) {
          CHECK(side_by_side.end < turns.end);
        } else {
          CHECK(side_by_side.end <= turns.end);
        }
        CHECK_FALSE(turns.side_by_side);
        CHECK(side_by_side.side_by_side == (n > 1));
      }
}

TEST_CASE("in turns, n equal SparF jobs read all pages of a phase together, then compute all of it") {
  constexpr std::uint32_t kTokens = 1536;
  for (const std::uint32_t n : {1u, 3u, 16u}) {
    INFO("n " << n);
    EngineConfig config;
    config.kernels = 1;
    const Outcome o = play(equal_jobs(n, Method::sparf, kTokens, config), false);
    const auto jobs = static_cast<std::int64_t>(n);
    // Kernel and argtopk unit are a pipeline of two stages: the last job leaves after the first job's first stage,
    // n - 1 times the slower stage, and the second stage.
    const SimTime logit0 = kernel_time(config, 16ull * kTokens, kTokens), choose = cycles_time(kTokens, config.clock);
    const SimTime engine_a = logit0 + std::max(logit0, choose) * (jobs - 1) + choose;
    const SimTime engine_b = kernel_time(config, 2ull * 192 * kDim, 192) * jobs;
    const auto flash = [&](std::uint64_t pages) { return kLatency + kPerPage * static_cast<std::int64_t>(pages); };
    CHECK(o.end == cycles_time(kDim, config.clock) * jobs + flash(o.stats.embedding_pages + o.stats.token_pages_a) +
                       engine_a + flash(o.stats.token_pages_b) + engine_b);
    CHECK_FALSE(o.side_by_side);
  }
}

TEST_CASE("in turns, few jobs in flight make as many turns as it takes") {
  constexpr std::uint32_t kTokens = 320;
  EngineConfig config;
  config.kernels = 1;
  config.jobs_in_flight = 4;
  const SimTime kernel = kernel_time(config, 2ull * kTokens * kDim, kTokens);
  const std::int64_t pages = 2 * kTokens / kTokensPerPage;
  // 4, 4 and 2 jobs: those that start when others end wait for the end of the engine's turn.
  const Outcome o = play(equal_jobs(10, Method::dense, kTokens, config), false);
  CHECK(o.end == kLatency * 3 + kPerPage * pages * 10 + kernel * 10);
}

TEST_CASE("a command that comes in flash's turn joins it; one that comes in the engine's turn waits for its end") {
  constexpr std::uint32_t kTokens = 320;
  EngineConfig config;
  config.kernels = 1;
  const SimTime kernel = kernel_time(config, 2ull * kTokens * kDim, kTokens);
  const SimTime read = kPerPage * (2 * kTokens / kTokensPerPage);
  Case c = equal_jobs(3, Method::dense, kTokens, config);
  const SimTime engine = kLatency + read * 2;  // the second command came while the first one's pages were read
  c.at = {{}, SimTime::nanoseconds(1), engine + SimTime::nanoseconds(1)};
  CHECK(play(c, false).end == engine + kernel * 2 + kLatency + read + kernel);
  CHECK(play(c, true).end < play(c, false).end);
}

TEST_CASE("in turns, random jobs all end, no unit works while pages are read, and overlap is never slower") {
  constexpr unsigned kFirst = 1, kLast = 400;
  WARN("seeds " << kFirst << " .. " << kLast);
  std::size_t faster = 0;
  for (unsigned seed = kFirst; seed <= kLast; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const auto between = [&rng](std::uint32_t low, std::uint32_t high) {
      return low + static_cast<std::uint32_t>(rng() % (high - low + 1));
    };
    Case c;
    c.config.clock = Frequency{between(1, 300) * 1'000'000ull};
    c.config.kernels = between(1, 3);
    c.config.jobs_in_flight = between(1, 8);
    c.config.intake = static_cast<Intake>(between(0, 2));
    c.latency = SimTime::microseconds(between(0, 60));
    c.per_page = SimTime::nanoseconds(between(1, 9000));
    const bool together = between(0, 1) == 1;
    SimTime now;
    for (std::uint32_t h = between(1, 12); h > 0; --h) {
      HeadJob job{.method = static_cast<Method>(between(0, 2)), .group = between(1, 3)};
      if (job.method == Method::sparf) job.sparf = {.r = between(1, 32), .k = between(16, 256), .l = 16};
      c.tokens.push_back(between(1, 700));
      job.score.end = c.tokens.back();
      c.jobs.push_back(job);
      now += SimTime::nanoseconds(between(0, 200'000));
      if (!together) c.at.push_back(now);
    }
    const Outcome turns = play(c, false), side_by_side = play(c, true);
    CHECK(turns.done == (together ? 1 : c.jobs.size()));
    CHECK(turns.stats.jobs() == c.jobs.size());
    CHECK_FALSE(turns.side_by_side);
    CHECK(turns.stats.macs == side_by_side.stats.macs);
    CHECK(turns.stats.pages() == side_by_side.stats.pages());
    CHECK(side_by_side.end <= turns.end);
    if (side_by_side.end < turns.end) ++faster;
  }
  CHECK(faster > kLast / 2);
}

TEST_CASE("turns do not change what carried jobs compute") {
  constexpr std::uint32_t kHeads = 9, kGroup = 2;
  const auto run = [&](bool overlap, Method method) {
    MemoryKvSource source;
    EngineConfig config;
    config.jobs_in_flight = 4;
    config.overlap_flash = overlap;
    CarriedWork work(source, config.jobs_in_flight);
    FakeFlash flash(kLatency, kPerPage, true);
    HeadScheduler scheduler(config, source, work, flash);
    std::mt19937 rng(kSeed);
    std::normal_distribution<float> normal;
    std::vector<Half> q(kHeads * kGroup * kDim), out(q.size());
    for (Half& x : q) x = float_to_half(normal(rng));
    std::vector<HeadJob> jobs(kHeads);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      source.add(head(h), {.tokens = 100 + 90 * h, .head_dim = kDim, .embedding_group = 8}, kSeed + h);
      jobs[h] = {.key = head(h),
                 .method = method,
                 .group = kGroup,
                 .sparf = {.r = 16, .k = 200, .l = 50},
                 .q = q.data() + h * kGroup * kDim,
                 .out = out.data() + h * kGroup * kDim};
    }
    scheduler.submit(jobs, {});
    flash.run(scheduler);
    REQUIRE(flash.done.size() == 1);
    return out;
  };
  INFO("seed " << kSeed);
  for (const Method method : {Method::dense, Method::sparf}) CHECK(run(false, method) == run(true, method));
}

}  // namespace test_engine_turns
