// Intake::arrival: a page has its buffer from the start of its transfer, and kernels take pages in as they arrive.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "base/error.h"
#include "fake_flash.h"
#include "page_runs.h"

namespace csdsim::engine::test::test_arrival_intake {
namespace {

constexpr std::uint32_t kTokensPerPage = 16;
constexpr std::uint32_t kPages = 96;

}  // namespace

TEST_CASE("from the start of its transfer on: a channel needs two buffers if kernels keep up, exact for any number") {
  nfc::FlashTiming t;
  const SimTime transfer = t.data_out_setup + transfer_time(Bytes{4096}, t.channel_bandwidth);
  for (const bool at : {false, true})
    for (const std::uint32_t cycles : {512u, 2048u, 4096u})
      for (const std::uint32_t buffers : {1u, 2u, 3u, 13u, 0u}) {
        INFO("at " << at << " cycles " << cycles << " buffers " << buffers);
        Run run;
        run.geometry = geometry(1, kPages);
        run.timing.command_time = {};
        run.timing.read_latency = SimTime::microseconds(50);
        run.timing.page_buffers = buffers;
        run.engine.clock = Frequency{1'000'000'000};
        run.engine.kernels = 1;
        run.engine.macs_per_cycle = kTokensPerPage * kDim / cycles;
        if (cycles > kTokensPerPage * kDim) run.engine.macs_per_cycle = 1, run.engine.clock = Frequency{500'000'000};
        run.engine.intake = Intake::arrival;
        run.jobs.push_back({.method = Method::score, .score = {.first = 0, .end = kPages * kTokensPerPage}});
        run.tokens = {kPages * kTokensPerPage};
        const SimTime kernel = SimTime::nanoseconds(cycles);
        // All pages are sensed at once. One is transferred when the channel and a buffer are free.
        std::vector<SimTime> consumed(kPages);
        SimTime out = run.timing.read_latency, end{};
        for (std::uint32_t i = 0; i < kPages; ++i) {
          if (buffers > 0 && i >= buffers) out = std::max(out, consumed[i - buffers]);
          out += transfer;
          consumed[i] = end = std::max(out, end) + kernel;
        }
        const Outcome outcome = play(run, at);
        REQUIRE(outcome.done.size() == 1);
        CHECK(outcome.done[0].second == end.ps);
        CHECK(outcome.overflows == 0);
        CHECK(outcome.stats.kernel_busy == kernel * kPages);
        if (buffers >= 2 && kernel <= transfer)
          CHECK(end == run.timing.read_latency + transfer * std::int64_t{kPages} + kernel);
      }
}

TEST_CASE("values are asked for when a kernel has taken in their keys, and a dense job holds the logits of few pages") {
  constexpr std::uint32_t kGroups = 3 * kOnlineGroups, kTokens = kGroups * kTokensPerPage;
  for (const Method method : {Method::dense, Method::sparf}) {
    MemoryKvSource source;
    source.add(kHead, {.tokens = kTokens, .head_dim = kDim, .embedding_group = 8}, kSeed);
    HeadJob job{.key = kHead, .method = method};
    if (method == Method::sparf) job.sparf = {.r = 8, .k = kTokens / 2, .l = 16};
    ClusteredSelection selection(0.25, kSeed);
    TimingWork work(selection);
    EngineConfig config;
    config.intake = Intake::arrival;
    FakeFlash flash(SimTime::microseconds(50), SimTime::nanoseconds(700), true);
    HeadScheduler scheduler(config, source, work, flash);
    scheduler.submit({&job, 1}, {});
    flash.run(scheduler);
    REQUIRE(flash.done.size() == 1);
    // The last phase reads keys, then as many values; ppa tells which. Earlier phases have other pages.
    std::map<std::uint64_t, SimTime> asked, taken;
    std::map<std::uint32_t, std::uint64_t> page_of;
    std::size_t at_once = 0, most = 0;
    const std::uint64_t first_k = source.planned_embedding;
    for (std::size_t i = first_k; i < flash.reads.size(); ++i) page_of[flash.reads[i].read.piece] = i;
    const std::size_t keys = source.planned_k;
    REQUIRE(source.planned_v == keys);
    REQUIRE(flash.reads.size() == first_k + 2 * keys);
    std::map<std::uint32_t, SimTime> consumed;
    for (std::size_t i = first_k; i < flash.consumed.size(); ++i)
      consumed[flash.consumed[i].first.piece] = flash.consumed[i].second;
    REQUIRE(consumed.size() == 2 * keys);
    for (std::uint32_t i = 0; i < keys; ++i)
      CHECK(flash.reads[page_of.at(static_cast<std::uint32_t>(keys) + i)].at == consumed.at(i));
    // Keys asked for whose values are not taken in yet, over time.
    std::multimap<SimTime, int> changes;
    for (std::uint32_t i = 0; i < keys; ++i) {
      changes.emplace(flash.reads[page_of.at(i)].at, +1);
      changes.emplace(consumed.at(static_cast<std::uint32_t>(keys) + i), -1);
    }
    std::map<SimTime, int> sum;
    for (const auto& [at, change] : changes) sum[at] += change;
    for (const auto& [at, change] : sum) {
      at_once += static_cast<std::size_t>(change);
      most = std::max(most, at_once);
    }
    CHECK(most == (method == Method::dense ? kOnlineGroups : keys));
  }
}

TEST_CASE("dense attention needs no buffer as long as the context") {
  constexpr std::uint32_t kTokens = 131'072, kGqaTokens = 70'000;
  for (const auto& [tokens, group] : {std::pair{kTokens, 1u}, {kGqaTokens, 8u}})
    for (const Intake intake : {Intake::phase, Intake::page, Intake::arrival}) {
      MemoryKvSource source;
      source.add(kHead, {.tokens = tokens, .head_dim = kDim, .embedding_group = 8}, kSeed);
      const HeadJob job{.key = kHead, .method = Method::dense, .group = group};
      const KvHeadView view = source.view(kHead);
      KvHeadView shorter = view;
      shorter.tokens = kOnlineGroups * view.tokens_per_page;
      CHECK(job_footprint(job, view) == job_footprint(job, shorter));
      EngineConfig config;
      config.intake = intake;
      config.buffer = Bytes::kib(108);
      ClusteredSelection selection(0.25, kSeed);
      TimingWork work(selection);
      FakeFlash flash;
      HeadScheduler scheduler(config, source, work, flash);
      scheduler.submit({&job, 1}, {});
      flash.run(scheduler);
      CHECK(flash.done.size() == 1);
      CHECK(scheduler.stats().peak_buffer <= config.buffer);
      CHECK(scheduler.stats().token_pages_b == 2 * (tokens / kTokensPerPage));
    }
}

TEST_CASE("by arrival: no job is left behind, nothing overflows, all pages are read, and fast equals at") {
  constexpr unsigned kFirst = 1, kLast = 40;
  WARN("seeds " << kFirst << " .. " << kLast);
  bool reached = false;
  for (unsigned seed = kFirst; seed <= kLast; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const Run run = random_run(rng, 10, 1500, [&] { return rng() % 2 == 0 ? Intake::arrival : Intake::automatic; });
    const Outcome fast = play(run, false), at = play(run, true);
    CHECK(fast.done == at.done);
    Run unlimited = run;
    unlimited.timing.page_buffers = 0;
    unlimited.engine.intake = Intake::phase;
    const Outcome by_phase = play(unlimited, false);
    for (const Outcome* o : {&fast, &at}) {
      REQUIRE(o->done.size() == run.jobs.size());
      CHECK(o->overflows == 0);
      CHECK(o->stats.pages() == by_phase.stats.pages());
      CHECK(o->stats.channel_bytes == by_phase.stats.channel_bytes);
      CHECK(o->stats.macs == by_phase.stats.macs);
      CHECK(o->stats.peak_page_buffers <= run.timing.buffer_limit());
      reached = reached || o->stats.peak_page_buffers == run.timing.buffer_limit();
    }
  }
  CHECK(reached);
}

TEST_CASE("with limited buffers, pages are taken by arrival unless flash and engine take turns") {
  EngineConfig config;
  CHECK_FALSE(config.by_arrival());
  config.page_buffers = 4;
  CHECK(config.by_arrival());
  CHECK_NOTHROW(config.validate());
  config.overlap_flash = false;
  CHECK_FALSE(config.by_arrival());
  CHECK(config.takes_pages());
  CHECK_NOTHROW(config.validate());
  config.intake = Intake::arrival;
  CHECK_THROWS_WITH(config.validate(), Catch::Contains("engine.intake is arrival"));
  config.page_buffers = 0;
  CHECK_NOTHROW(config.validate());
}

}  // namespace csdsim::engine::test::test_arrival_intake
