#include <catch2/catch.hpp>
#include <numeric>
#include <optional>

#include "attention_engine/core/head_scheduler.h"
#include "attention_engine/core/selection.h"
#include "base/error.h"
#include "fake_flash.h"
#include "memory_kv_source.h"

namespace test_head_scheduler {

using namespace csdsim;
using namespace csdsim::engine;
using namespace csdsim::engine::test;

namespace {

constexpr unsigned kSeed = 99;
constexpr std::uint32_t kDim = 128;
const SimTime kLatency = SimTime::microseconds(50);

HeadKey head(std::uint32_t h) { return {SequenceId{1}, LayerId{0}, KvHead{h}}; }

/// A scheduler in timing mode over `heads` caches of `tokens` tokens.
struct Bench {
  Bench(const EngineConfig& config, std::uint32_t heads, CacheShape shape) : flash(kLatency) {
    shape.head_dim = kDim;
    for (std::uint32_t h = 0; h < heads; ++h) source.add(head(h), shape, kSeed + h);
    scheduler.emplace(config, source, work, flash);
    jobs.resize(heads);
    for (std::uint32_t h = 0; h < heads; ++h) jobs[h].key = head(h);
  }
  void all(Method method, SparfParams params = {}) {
    for (HeadJob& job : jobs) {
      job.method = method;
      job.sparf = params;
    }
  }

  MemoryKvSource source;
  ClusteredSelection selection{0.25, kSeed};
  TimingWork work{selection};
  FakeFlash flash;
  std::optional<HeadScheduler> scheduler;
  std::vector<HeadJob> jobs;
};

SimTime kernel_time(const EngineConfig& c, std::uint64_t macs, std::uint64_t softmax) {
  const std::uint64_t cycles =
      (macs + c.macs_per_cycle - 1) / c.macs_per_cycle + (softmax + c.softmax_per_cycle - 1) / c.softmax_per_cycle;
  return cycles_time(cycles, c.clock);
}

constexpr SparfParams kSparf{.r = 16, .k = 192, .l = 48};

}  // namespace

TEST_CASE("one dense job takes the flash latency and its kernel cycles, to the picosecond") {
  EngineConfig config;
  Bench b(config, 1, {.tokens = 1001});
  b.jobs[0].group = 3;
  b.scheduler->submit(b.jobs, SimTime::nanoseconds(7));
  REQUIRE(b.flash.reads.size() == 1);
  CHECK(b.flash.reads[0].ops.size() == 2 * (1001 / 16));
  CHECK(b.flash.reads[0].at == SimTime::nanoseconds(7));

  const SimTime arrival = SimTime::nanoseconds(7) + kLatency;
  const SimTime end = arrival + kernel_time(config, 2ull * 1001 * kDim * 3, 1001 * 3);
  b.scheduler->pages_arrived({JobId{0}, 0}, arrival);
  CHECK(b.scheduler->next_event() == end);
  b.scheduler->advance(end - SimTime{1});
  CHECK(b.flash.done.empty());
  b.scheduler->advance(end);
  CHECK(b.flash.done == std::vector<std::pair<TaskId, SimTime>>{{TaskId{0}, end}});
  CHECK(b.scheduler->buffer_in_use() == Bytes{0});
  CHECK(b.scheduler->stats().engine_bytes == Bytes{2ull * 1001 * kDim * 2});
}

TEST_CASE("a kernel takes as long as it multiplies or as it dequantises, whichever is longer") {
  const auto ends_after = [](std::uint32_t dequantised, std::uint32_t group, const RowQuantisation& format) {
    EngineConfig config;
    config.dequantised_per_cycle = dequantised;
    Bench b(config, 1, {.tokens = 1000, .format = format});
    b.jobs[0].group = group;
    b.scheduler->submit(b.jobs, SimTime{});
    const SimTime end = b.flash.run(*b.scheduler);
    CHECK(b.scheduler->stats().engine_bytes ==
          Bytes{2ull * 1000 * (format.quantised() ? kDim / 2 + kDim / 64 * 2 : 2 * kDim)});
    return end - kLatency;
  };
  const std::uint64_t elements = 2ull * 1000 * kDim;
  const EngineConfig config;
  const RowQuantisation four{.bits = 4, .group = 64}, half;
  CHECK(ends_after(8, 1, four) == cycles_time(elements / 8, config.clock));
  CHECK(ends_after(8, 32, four) == kernel_time(config, elements * 32, 1000 * 32));  // rows are taken in once per group
  CHECK(ends_after(8, 1, half) == kernel_time(config, elements, 1000));
  CHECK(ends_after(4096, 1, four) == ends_after(4096, 1, half));
}

TEST_CASE("one SparF job: every stage begins when the one before it ends, to the picosecond") {
  EngineConfig config;
  const std::uint32_t tokens = 1536 + 5;
  Bench b(config, 1, {.tokens = tokens, .embedding_group = 8});
  b.all(Method::sparf, kSparf);
  auto& s = *b.scheduler;
  s.submit(b.jobs, {});

  SimTime t = cycles_time(kDim, config.clock);
  CHECK(s.next_event() == t);
  s.advance(t - SimTime{1});
  CHECK(b.flash.reads.empty());
  s.advance(t);
  REQUIRE(b.flash.reads.size() == 1);
  CHECK(b.flash.reads[0].at == t);
  t += kLatency;
  s.pages_arrived({JobId{0}, 0}, t);
  t += kernel_time(config, 16ull * tokens, tokens);
  CHECK(s.next_event() == t);
  s.advance(t);
  t += cycles_time(tokens, config.clock);
  CHECK(s.next_event() == t);
  s.advance(t - SimTime{1});
  CHECK(b.flash.reads.size() == 1);
  s.advance(t);
  REQUIRE(b.flash.reads.size() == 2);
  CHECK(b.flash.reads[1].at == t);
  CHECK(b.flash.reads[1].ops.size() == 2 * 24);  // a quarter of 96 groups, K and V
  t += kLatency;
  s.pages_arrived({JobId{0}, 0}, t);
  t += kernel_time(config, 2ull * 192 * kDim, 192);
  CHECK(s.next_event() == t);
  s.advance(t);
  CHECK(b.flash.done == std::vector<std::pair<TaskId, SimTime>>{{TaskId{0}, t}});

  const EngineStats& stats = s.stats();
  CHECK(stats.sparf_jobs == 1);
  CHECK(stats.engine_bytes == Bytes{2ull * (16 * tokens + 2 * 192 * kDim)});
  CHECK(stats.macs == 16ull * tokens + 2ull * 192 * kDim);
  CHECK(stats.argtopk_elements == kDim + tokens);
  CHECK(stats.argtopk_busy == cycles_time(kDim, config.clock) + cycles_time(tokens, config.clock));
  CHECK(stats.channel_bytes == Bytes{4096 * stats.pages()});
  __int128 total = 0;
  for (const DurationSum& d : stats.phase_time) total += d.ps;
  CHECK(total == t.ps);
  CHECK(stats.phase_time[static_cast<std::size_t>(JobPhase::phase_a)].ps == kLatency.ps);
  CHECK(stats.phase_time[static_cast<std::size_t>(JobPhase::phase_b)].ps == kLatency.ps);
}

TEST_CASE("page counts are those of steps A and B in docs/algorithms.md, with the tail from token pages or from DRAM") {
  // T = 512: two windows; 31 groups and 9 tokens behind them.
  const CacheShape shape{.tokens = 1024 + 31 * 16 + 9, .embedding_group = 4};
  for (TailScoring tail : {TailScoring::token_pages, TailScoring::dram}) {
    CacheShape s = shape;
    s.tail = tail;
    Bench b({}, 1, s);
    b.all(Method::sparf, kSparf);
    PageGroups e, u;
    b.selection.components(head(0), b.source.view(head(0)), kSparf, e);
    b.selection.tokens(head(0), b.source.view(head(0)), kSparf, u);
    b.scheduler->submit(b.jobs, {});
    b.flash.run(*b.scheduler);
    const EngineStats& stats = b.scheduler->stats();
    CHECK(stats.embedding_pages == e.groups.size() * 2);
    CHECK(stats.token_pages_a == (tail == TailScoring::token_pages ? 31 : 0));
    CHECK(stats.token_pages_b == 2 * u.groups.size());
    CHECK(b.source.planned_v == u.groups.size());
  }
}

TEST_CASE("SparF with S <= k is dense and reads no embedding page") {
  Bench b({}, 1, {.tokens = 640, .embedding_group = 8});
  b.all(Method::sparf, {.r = 16, .k = 640, .l = 10});
  b.scheduler->submit(b.jobs, {});
  const SimTime end = b.flash.run(*b.scheduler);
  CHECK(end == kLatency + kernel_time({}, 2ull * 640 * kDim, 640));
  CHECK(b.source.planned_embedding == 0);
  CHECK(b.scheduler->stats().dense_jobs == 1);
  CHECK(b.scheduler->stats().pages() == 80);
}

TEST_CASE("a phase without a flash page goes on at once") {
  Bench b({}, 1, {.tokens = 700, .in_flash = false});
  b.all(Method::sparf, kSparf);
  b.scheduler->submit(b.jobs, {});
  const SimTime end = b.flash.run(*b.scheduler);
  CHECK(b.flash.reads.empty());
  const EngineConfig c;
  CHECK(end == cycles_time(kDim, c.clock) + kernel_time(c, 16 * 700, 700) + cycles_time(700, c.clock) +
                   kernel_time(c, 2 * 192 * kDim, 192));
}

TEST_CASE("kernels are servers: two jobs run side by side, the third waits for the first to end") {
  EngineConfig config;
  Bench b(config, 3, {.tokens = 512});
  b.scheduler->submit(b.jobs, {});
  const SimTime kernel = kernel_time(config, 2 * 512 * kDim, 512);
  CHECK(b.flash.run(*b.scheduler) == kLatency + kernel + kernel);
  CHECK(b.scheduler->stats().kernel_busy == kernel * 3);

  config.kernels = 3;
  Bench wide(config, 3, {.tokens = 512});
  wide.scheduler->submit(wide.jobs, {});
  CHECK(wide.flash.run(*wide.scheduler) == kLatency + kernel);
}

TEST_CASE("the argtopk unit is one server: jobs that start together queue for it") {
  EngineConfig config;
  Bench b(config, 4, {.tokens = 1024});
  b.all(Method::sparf, kSparf);
  b.scheduler->submit(b.jobs, {});
  const SimTime unit = cycles_time(kDim, config.clock);
  for (int i = 1; i <= 4; ++i) {
    CHECK(b.scheduler->next_event() == unit * i);
    b.scheduler->advance(unit * i);
    REQUIRE(b.flash.reads.size() == static_cast<std::size_t>(i));
    CHECK(b.flash.reads.back().read.job == JobId{static_cast<std::uint32_t>(i - 1)});
  }
}

TEST_CASE("jobs in flight overlap: 16 hide the flash latency that one alone pays 16 times") {
  EngineConfig config;
  config.jobs_in_flight = 1;
  config.kernels = 16;
  Bench serial(config, 16, {.tokens = 256});
  serial.scheduler->submit(serial.jobs, {});
  const SimTime kernel = kernel_time(config, 2 * 256 * kDim, 256);
  CHECK(serial.flash.run(*serial.scheduler) == (kLatency + kernel) * 16);

  config.jobs_in_flight = 16;
  Bench overlapped(config, 16, {.tokens = 256});
  overlapped.scheduler->submit(overlapped.jobs, {});
  CHECK(overlapped.flash.run(*overlapped.scheduler) == kLatency + kernel);
}

TEST_CASE("jobs start oldest first: the younger task waits although its jobs are small") {
  EngineConfig config;
  config.jobs_in_flight = 2;
  Bench b(config, 5, {.tokens = 512});
  const std::span<const HeadJob> jobs = b.jobs;
  b.scheduler->submit(jobs.first(3), {});
  b.scheduler->submit(jobs.subspan(3), {});
  b.flash.run(*b.scheduler);
  REQUIRE(b.flash.reads.size() == 5);
  // ppa of a read tells its head: heads were added in order.
  for (std::size_t i = 0; i < 5; ++i) CHECK(b.flash.reads[i].ops[0].ppa.value / (4096 * 4096) == i + 1);
  REQUIRE(b.flash.done.size() == 2);
  CHECK(b.flash.done[0].first == TaskId{0});
  CHECK(b.flash.done[1].first == TaskId{1});
}

TEST_CASE("the buffer bounds the jobs in flight") {
  const CacheShape shape{.tokens = 1024};
  Bench probe({}, 1, shape);
  const Bytes dense = job_footprint(probe.jobs[0], probe.source.view(head(0)));
  CHECK(dense == Bytes{4 * 1024 + 8 * kDim});
  HeadJob sparse = probe.jobs[0];
  sparse.method = Method::sparf;
  sparse.sparf = kSparf;
  CHECK(job_footprint(sparse, probe.source.view(head(0))) == Bytes{4 * 1024 + 4 * 192 + 8 * kDim});

  EngineConfig config;
  config.buffer = dense * 3;
  Bench b(config, 8, shape);
  b.scheduler->submit(b.jobs, {});
  CHECK(b.scheduler->jobs_running() == 3);
  CHECK(b.scheduler->buffer_in_use() == dense * 3);
  b.flash.run(*b.scheduler);
  CHECK(b.scheduler->stats().peak_buffer == dense * 3);
  CHECK(b.flash.done.size() == 1);

  config.buffer = dense * 3 - Bytes{1};
  Bench less(config, 8, shape);
  less.scheduler->submit(less.jobs, {});
  CHECK(less.scheduler->jobs_running() == 2);

  config.buffer = dense - Bytes{1};
  Bench none(config, 1, shape);
  CHECK_THROWS_WITH(none.scheduler->submit(none.jobs, {}), Catch::Contains("engine.buffer is 5119 B"));
  CHECK(none.scheduler->jobs_running() == 0);
}

TEST_CASE("what users get wrong is refused with the parameter's name") {
  Bench b({}, 2, {.tokens = 1024});
  const auto refused = [&](auto change, const char* what) {
    auto jobs = b.jobs;
    change(jobs[1]);
    CHECK_THROWS_WITH(b.scheduler->submit(jobs, {}), Catch::Contains(what));
    CHECK(b.scheduler->jobs_running() == 0);
  };
  refused([](HeadJob& j) { j.group = 0; }, "group");
  refused([](HeadJob& j) { j.method = Method::sparf, j.sparf.r = 0; }, "r = 0");
  refused([](HeadJob& j) { j.method = Method::sparf, j.sparf.k = 0; }, "k = 0");
  CHECK_THROWS_AS(b.scheduler->submit({}, {}), UserError);
  CHECK_THROWS_AS(b.scheduler->pages_arrived({JobId{0}, 0}, {}), InternalError);
  EngineConfig config;
  config.macs_per_cycle = 0;
  CHECK_THROWS_WITH(HeadScheduler(config, b.source, b.work, b.flash), Catch::Contains("engine.macs_per_cycle"));
}

TEST_CASE("carried jobs give the same bits whatever the flash timing and the jobs in flight") {
  constexpr std::uint32_t kHeads = 12, kGroup = 2;
  const auto run = [&](std::uint32_t jobs_in_flight, SimTime per_page, Method method) {
    MemoryKvSource source;
    EngineConfig config;
    config.jobs_in_flight = jobs_in_flight;
    CarriedWork work(source, jobs_in_flight);
    FakeFlash flash(kLatency, per_page);
    HeadScheduler scheduler(config, source, work, flash);
    std::vector<Half> q(kHeads * kGroup * kDim), out(q.size());
    floats_to_halves(random_query(q.size(), kSeed), q);
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
    CHECK(scheduler.stats().jobs() == kHeads);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const auto tokens = source.view(head(h)).tokens;
      if (method == Method::sparf && tokens > 200) continue;
      // Dense, or k >= S: exactly dense attention in one piece.
      std::vector<float> wide(kGroup * kDim), expected(wide.size());
      halves_to_floats({jobs[h].q, wide.size()}, wide);
      DenseAttention().attend(source, head(h), wide, kGroup, expected);
      for (std::size_t i = 0; i < wide.size(); ++i) REQUIRE(jobs[h].out[i] == float_to_half(expected[i]));
    }
    return out;
  };
  for (Method method : {Method::dense, Method::sparf}) {
    INFO("seed " << kSeed);
    const auto serial = run(1, {}, method);
    CHECK(run(16, {}, method) == serial);
    CHECK(run(5, SimTime::microseconds(3), method) == serial);
  }
}

TEST_CASE("score jobs read keys only and leave one score a token") {
  MemoryKvSource source;
  source.add(head(0), {.tokens = 100, .head_dim = kDim}, kSeed);
  CarriedWork work(source, 16);
  FakeFlash flash(kLatency);
  HeadScheduler scheduler({}, source, work, flash);
  std::vector<Half> q(kDim, Half{0x3C00});
  std::vector<float> scores(100), expected(100);
  const std::vector<HeadJob> jobs{{.key = head(0),
                                   .method = Method::score,
                                   .score = {.first = 0, .end = 100},
                                   .q = q.data(),
                                   .scores = scores.data()}};
  scheduler.submit(jobs, {});
  CHECK(flash.run(scheduler) == kLatency + kernel_time({}, 100 * kDim, 0));
  CHECK(source.planned_k == 6);
  CHECK(source.planned_v == 0);
  score_head(source, head(0), ScorePrecision::fp16, std::vector<float>(kDim, 1.0f), 1, 0, 100, expected);
  CHECK(scores == expected);
}

TEST_CASE("a SparF job has room for the probabilities of every head of its group") {
  Bench b({}, 1, {.tokens = 1024});
  HeadJob sparse = b.jobs[0];
  sparse.method = Method::sparf;
  sparse.sparf = kSparf;
  sparse.group = 3;
  CHECK(job_footprint(sparse, b.source.view(head(0))) == Bytes{3 * (4 * 1024 + 4 * 192 + 8 * kDim)});
}

TEST_CASE("the peak of the buffer stays after the jobs that reached it") {
  Bench b({}, 4, {.tokens = 1024});
  const Bytes dense = job_footprint(b.jobs[0], b.source.view(head(0)));
  b.scheduler->submit(std::span(b.jobs).first(3), {});
  b.flash.run(*b.scheduler);
  b.scheduler->submit(std::span(b.jobs).last(1), SimTime::milliseconds(1));
  b.flash.run(*b.scheduler);
  CHECK(b.flash.done.size() == 2);
  CHECK(b.scheduler->stats().peak_buffer == dense * 3);
}

TEST_CASE("SparF with r above the head dimension takes the time of r = d") {
  const auto run = [](std::uint32_t r) {
    Bench b({}, 1, {.tokens = 1024});
    b.all(Method::sparf, {.r = r, .k = 192, .l = 48});
    b.scheduler->submit(b.jobs, {});
    b.flash.run(*b.scheduler);
    REQUIRE(b.flash.done.size() == 1);
    return std::pair(b.flash.done[0].second, b.scheduler->stats().macs);
  };
  CHECK(run(kDim) == run(2 * kDim));
  CHECK(run(kDim / 2) < run(kDim));
}

}  // namespace test_head_scheduler
