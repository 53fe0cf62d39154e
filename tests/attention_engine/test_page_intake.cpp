// Kernels that take pages in as they come, and finite page buffers between them and the channels.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "attention_engine/core/selection.h"
#include "base/error.h"
#include "fake_flash.h"
#include "page_runs.h"

namespace csdsim::engine::test {
namespace {

constexpr std::uint32_t kTokensPerPage = 16;
constexpr std::uint32_t kPages = 96;

/// One score job of kPages pages on one channel, every page ready `read` after its issue, with a kernel that takes
/// `kernel_cycles` cycles of 1 ns a page.
Run pipeline(std::uint32_t buffers, SimTime read, std::uint32_t kernel_cycles) {
  Run run;
  run.geometry = geometry(1, kPages);
  run.timing.command_time = {};
  run.timing.read_latency = read;
  run.timing.page_buffers = buffers;
  run.engine.clock = Frequency{1'000'000'000};
  run.engine.kernels = 1;
  run.engine.macs_per_cycle = kTokensPerPage * kDim / kernel_cycles;
  run.engine.intake = Intake::page;
  run.jobs.push_back({.method = Method::score, .score = {.first = 0, .end = kPages * kTokensPerPage}});
  run.tokens = {kPages * kTokensPerPage};
  return run;
}

}  // namespace

TEST_CASE("a channel, finite buffers and a kernel are a pipeline: exact, and its rate in closed form") {
  const nfc::FlashTiming t;
  const SimTime transfer = t.data_out_setup + transfer_time(Bytes{4096}, t.channel_bandwidth);
  for (const bool at : {false, true})
    for (const SimTime read : {SimTime{}, SimTime::microseconds(50)})
      for (const std::uint32_t cycles : {1024u, 2048u, 4096u / 8})
        for (const std::uint32_t buffers : {1u, 2u, 3u, 8u, 20u, kPages, 0u}) {
          INFO("at " << at << " read " << read.ps << " cycles " << cycles << " buffers " << buffers);
          const Run run = pipeline(buffers, read, cycles);
          const SimTime kernel = SimTime::nanoseconds(cycles);
          // Page i is issued when page i - b is consumed, as soon as the bus is free for its command; the channel and
          // the kernel take one page after the other.
          std::vector<SimTime> consumed(kPages), transferred(kPages);
          SimTime out{}, end{};
          for (std::uint32_t i = 0; i < kPages; ++i) {
            SimTime issued = buffers > 0 && i >= buffers ? consumed[i - buffers] : SimTime{};
            for (std::uint32_t j = 0; j < i; ++j)
              if (transferred[j] - transfer < issued && issued < transferred[j]) issued = transferred[j];
            out = std::max(issued + read, out) + transfer;
            transferred[i] = out;
            end = std::max(out, end) + kernel;
            consumed[i] = end;
          }
          const Outcome outcome = play(run, at);
          REQUIRE(outcome.done.size() == 1);
          CHECK(outcome.done[0].second == end.ps);
          CHECK(outcome.overflows == 0);
          CHECK(outcome.stats.peak_page_buffers == buffers);
          CHECK(outcome.stats.kernel_busy == kernel * kPages);
          // Throughput: the slower of channel and kernel, or the buffers over the round trip of a page, in which its
          // command may wait for a transfer of another.
          const auto whole = [&](SimTime round_trip) {
            double period = static_cast<double>(std::max(transfer, kernel).ps);
            if (buffers > 0) period = std::max(period, static_cast<double>(round_trip.ps) / buffers);
            return period * kPages;
          };
          const SimTime round_trip = read + transfer + kernel;
          CHECK(static_cast<double>(end.ps) >= whole(round_trip) * (1 - 1e-9));
          CHECK(static_cast<double>(end.ps) <= whole(round_trip + transfer) + static_cast<double>(round_trip.ps));
        }
}

TEST_CASE("with Intake::page a kernel works while pages arrive; what it does in all is the same") {
  Run run;
  run.geometry = geometry(2, 8);
  run.jobs = {{.method = Method::dense}, {.method = Method::sparf, .sparf = {.r = 16, .k = 192, .l = 48}}};
  run.tokens = {1001, 1541};
  const Outcome by_phase = play(run, false);
  run.engine.intake = Intake::page;
  const Outcome by_page = play(run, false);
  REQUIRE(by_page.done.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) CHECK(by_page.done[i].second < by_phase.done[i].second);
  CHECK(by_page.stats.macs == by_phase.stats.macs);
  CHECK(by_page.stats.pages() == by_phase.stats.pages());
  CHECK(by_page.stats.channel_bytes == by_phase.stats.channel_bytes);
  // A page's time is rounded to whole cycles and each of these to 1 ps.
  const SimTime difference = by_page.stats.kernel_busy - by_phase.stats.kernel_busy;
  CHECK(std::abs(difference.ps) <= static_cast<std::int64_t>(by_page.stats.pages()));
}

TEST_CASE("pages are consumed in the order of tokens: one that comes early waits for those before it") {
  // Two pages of one job on different planes, of which the first is read 100 us later because its plane is busy.
  struct TwoPages : MemoryKvSource {
    void plan_token_groups(HeadKey, KvRows, std::span<const std::uint32_t>, std::span<const std::uint32_t>,
                           ReadPlan& out) override {
      for (std::uint64_t plane : {0u, 1u})
        out.ops.push_back(
            {.ppa = {plane}, .kind = PageOpKind::read, .op_class = OpClass::attend, .channel_bytes = 4096});
    }
  } source;
  source.add(kHead, {.tokens = 2 * kTokensPerPage, .head_dim = kDim, .embedding_group = 8}, kSeed);
  struct Port : EnginePort {
    std::vector<PageRead> reads, consumed;
    SimTime done;
    void read_pages(PageRead read, std::span<const PageOp>, std::uint64_t, SimTime) override { reads.push_back(read); }
    void pages_consumed(PageRead read, SimTime) override { consumed.push_back(read); }
    void task_done(TaskId, SimTime at) override { done = at; }
  } port;
  ClusteredSelection selection(0.25, kSeed);
  TimingWork work(selection);
  EngineConfig config;
  config.intake = Intake::page;
  HeadScheduler scheduler(config, source, work, port);
  const HeadJob job{.key = kHead, .method = Method::score, .score = {.first = 0, .end = 2 * kTokensPerPage}};
  scheduler.submit({&job, 1}, {});
  REQUIRE(port.reads == std::vector<PageRead>{{JobId{0}, 0}, {JobId{0}, 1}});
  scheduler.pages_arrived({JobId{0}, 1}, SimTime::microseconds(10));
  CHECK(scheduler.next_event() == SimTime::max());
  CHECK_THROWS_AS(scheduler.pages_arrived({JobId{0}, 1}, SimTime::microseconds(10)), InternalError);
  scheduler.pages_arrived({JobId{0}, 0}, SimTime::microseconds(110));
  const SimTime piece = cycles_time(kTokensPerPage, config.clock);
  for (std::uint32_t n = 1; n <= 2; ++n) {
    const SimTime end = SimTime::microseconds(110) + piece * static_cast<std::int64_t>(n);
    CHECK(scheduler.next_event() == end);
    scheduler.advance(end - SimTime{1});
    CHECK(port.consumed.size() == n - 1);
    scheduler.advance(end);
    CHECK(port.consumed.size() == n);
  }
  CHECK(port.consumed == port.reads);
  CHECK(port.done == SimTime::microseconds(110) + 2 * piece);
}

TEST_CASE("the map lookups of a plan travel with its own pages, however these are issued") {
  /// A plan of head h costs 3 + h lookups, whatever its pages.
  struct FewLookups : StripedSource {
    using StripedSource::StripedSource;
    void plan_token_groups(HeadKey key, KvRows which, std::span<const std::uint32_t> groups,
                           std::span<const std::uint32_t> rows, ReadPlan& out) override {
      StripedSource::plan_token_groups(key, which, groups, rows, out);
      out.lookups = 3 + key.head.value;
    }
  } source(geometry(2, 2));
  std::vector<HeadJob> jobs;
  for (std::uint32_t h = 0; h < 3; ++h) {
    jobs.push_back({.key = {SequenceId{0}, LayerId{0}, KvHead{h}},
                    .method = Method::score,
                    .score = {.first = 0, .end = 8 * kTokensPerPage}});
    source.add(jobs[h].key, {.tokens = 8 * kTokensPerPage, .head_dim = kDim, .embedding_group = 8}, kSeed);
  }
  for (const std::uint32_t buffers : {0u, 1u, 3u})
    for (const Intake intake : {Intake::phase, Intake::page}) {
      if (buffers > 0 && intake == Intake::phase) continue;
      EngineConfig config;
      config.intake = intake;
      config.page_buffers = buffers;
      config.geometry = geometry(2, 2);
      ClusteredSelection selection(0.25, kSeed);
      TimingWork work(selection);
      FakeFlash flash;
      HeadScheduler scheduler(config, source, work, flash);
      scheduler.submit(jobs, {});
      flash.run(scheduler);
      REQUIRE(flash.done.size() == 1);
      std::map<std::uint32_t, std::uint64_t> lookups, pages;  // by job: all three run side by side
      for (const FakeFlash::Read& read : flash.reads) {
        lookups[read.read.job.value] += read.lookups;
        pages[read.read.job.value] += read.ops.size();
        if (read.read.piece == 0) CHECK(read.lookups >= 1);
        if (intake == Intake::page) CHECK(read.lookups <= 1);
      }
      REQUIRE(lookups.size() == 3);
      for (std::uint32_t h = 0; h < 3; ++h) {
        CHECK(pages[h] == 8);
        CHECK(lookups[h] == 3 + h);
      }
    }
}

TEST_CASE("never more pages than buffers, no job left behind, and fast equals at") {
  constexpr unsigned kFirst = 1, kLast = 60;
  WARN("seeds " << kFirst << " .. " << kLast);
  bool reached = false;
  for (unsigned seed = kFirst; seed <= kLast; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    Run run = random_run(rng, 12, 700, [] { return Intake::page; });
    const Outcome fast = play(run, false), at = play(run, true);
    CHECK(fast.done == at.done);
    // The buffers bound how many pages a turn of flash reads.
    run.engine.overlap_flash = false;
    const Outcome turns = play(run, false);
    for (const Outcome* o : {&fast, &at, &turns}) {
      REQUIRE(o->done.size() == run.jobs.size());
      CHECK(o->overflows == 0);
      const std::uint32_t most = *std::max_element(o->peak.begin(), o->peak.end());
      CHECK(most <= run.timing.buffer_limit());
      CHECK(o->stats.peak_page_buffers == most);
      reached = reached || most == run.timing.buffer_limit();
    }
  }
  CHECK(reached);
}

TEST_CASE("page buffers need kernels that take pages in one by one") {
  EngineConfig config;
  CHECK_FALSE(config.takes_pages());
  config.page_buffers = 4;
  CHECK_NOTHROW(config.validate());
  CHECK(config.takes_pages());
  config.intake = Intake::phase;
  CHECK_THROWS_AS(config.validate(), UserError);
  CHECK_FALSE(config.takes_pages());
  config.intake = Intake::page;
  CHECK_NOTHROW(config.validate());
  CHECK(config.takes_pages());
}

}  // namespace csdsim::engine::test
