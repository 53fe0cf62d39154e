// A loop that runs ahead of the kernel is nobody's business: the same requests complete at the same times, and a module
// of the kernel finds the same state whenever it looks.
#include <catch2/catch.hpp>

#include <vector>

#include "base/rng.h"
#include "tests/drive/drive_host.h"

namespace test_run_ahead {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr std::uint64_t kRequests = 600;

struct Event {
  std::uint64_t request;
  std::int64_t at;
  std::uint16_t status;
  bool operator==(const Event&) const = default;
};

struct Outcome {
  std::vector<Event> completions;
  std::vector<std::uint64_t> seen;  ///< requests completed, whenever the kernel's clock ticks
  std::int64_t end = 0;             ///< the kernel's time when nothing more happens
  std::uint64_t deltas = 0;
  bool operator==(const Outcome& o) const { return completions == o.completions && seen == o.seen && end == o.end; }
};

/// Somebody else's process, which wakes on its own.
class Clock : public sc_core::sc_module {
 public:
  Clock(const sc_core::sc_module_name& name, SimTime period, const std::vector<Event>& completions,
        std::vector<std::uint64_t>& seen)
      : sc_module(name), period_(period), completions_(completions), seen_(seen) {
    SC_METHOD(tick);
  }
  SC_HAS_PROCESS(Clock);

 private:
  void tick() {
    if (!completions_.empty() && completions_.back().at > to_sim_time(sc_core::sc_time_stamp()).ps)
      FAIL("a request of the future has completed");
    seen_.push_back(completions_.size());
    if (completions_.size() < kRequests) next_trigger(to_sc_time(period_));
  }
  SimTime period_;
  const std::vector<Event>& completions_;
  std::vector<std::uint64_t>& seen_;
};

struct Kinds {
  bool clock = false;
  bool kv = false;  ///< some commands go to the KV cache
  csd_model::Fidelity fidelity = csd_model::Fidelity::fast;
  SimTime overhead;
  SimTime lookup;
};

/// Closed loop of random commands; what follows a completion is issued from its callback or, at times, later.
Outcome run(std::uint64_t seed, bool ahead, const Kinds& kinds) {
  const SyscFixture context;
  csd_model::DriveConfig drive = tiny_drive();
  drive.data = ftl::DataMode::timing;
  drive.fidelity = kinds.fidelity;
  drive.lookup_time = kinds.lookup;
  drive.write_buffer = seed % 2 == 0 ? Bytes{} : Bytes::kib(64);
  platform::Platform platform({.drive = drive,
                               .host_memory = Bytes::gib(1),
                               .gpu_memory = Bytes::gib(1),
                               .io_overhead = kinds.overhead,
                               .queues = 3,
                               .queue_depth = 64,
                               .run_ahead = ahead});
  nvme::NvmeDriver& driver = platform.driver(0);
  Outcome out;
  Rng rng(seed, "run_ahead");
  std::uint64_t issued = 0;
  std::function<void()> issue;
  std::uint64_t owed = 0;
  Alarm later(AlarmRank::host, [&] {
    for (; owed != 0; --owed) issue();
  });
  issue = [&] {
    if (issued == kRequests) return;
    const std::uint64_t request = issued++;
    const nvme::QueueId queue{static_cast<std::uint16_t>(1 + rng.below(3))};
    const auto blocks = static_cast<std::uint32_t>(1 + rng.below(12));
    const nvme::Segment buffer{nvme::PhysicalAddress{platform::Platform::kGpuBase + 4096 * rng.below(8)},
                               driver.block_size() * blocks};
    const std::uint64_t kind = rng.below(20);
    nvme::SubmissionEntry entry = nvme::encode_block_io(kind < 8 ? nvme::nvm_opcode::write : nvme::nvm_opcode::read,
                                                        kNamespace, nvme::Lba{rng.below(60)}, blocks);
    std::span<const nvme::Segment> segments(&buffer, 1);
    if (kind >= 18) {
      segments = {};
      entry = nvme::encode_flush(kNamespace);
      if (kinds.kv && issued > kRequests / 2)
        entry = DriveHost::create_entry(static_cast<std::uint32_t>(request), 1, 2, 16);
    }
    driver.submit(queue, entry, segments, [&, request](const nvme::CompletionEntry& cqe, SimTime at) {
      out.completions.push_back({request, at.ps, cqe.status});
      CHECK(at == sim_time_now());
      if (rng.below(10) == 0) {
        ++owed;
        later.set(at + SimTime::microseconds(static_cast<std::int64_t>(rng.below(100))));
      } else {
        issue();
      }
    });
  };
  driver.on_ready([&] {
    for (int i = 0; i < 24; ++i) issue();
  });
  std::unique_ptr<Clock> clock;
  if (kinds.clock) clock = std::make_unique<Clock>("clock", SimTime{7'777'777}, out.completions, out.seen);
  sc_core::sc_start();
  out.end = to_sim_time(sc_core::sc_time_stamp()).ps;
  out.deltas = sc_core::sc_delta_count();
  REQUIRE(out.completions.size() == kRequests);
  return out;
}

}  // namespace

TEST_CASE("requests complete at the same times in step with the kernel and ahead of it") {
  const std::uint64_t seed = GENERATE(range(1, 4));
  const int variant = GENERATE(range(0, 5));
  INFO("seed " << seed << ", variant " << variant);
  Kinds kinds;
  kinds.clock = variant == 1;
  kinds.kv = variant == 2;
  if (variant == 3) kinds.overhead = SimTime::nanoseconds(700);
  if (variant == 4) kinds.lookup = SimTime::nanoseconds(900);
  const Outcome in_step = run(seed, false, kinds);
  const Outcome ahead = run(seed, true, kinds);
  CHECK(in_step == ahead);
  // It does run ahead: the kernel is woken for others only.
  if (!kinds.clock && !kinds.kv) CHECK(ahead.deltas * 10 < in_step.deltas);
}

TEST_CASE("event-driven flash keeps the loop in step and completes at the same times") {
  const std::uint64_t seed = GENERATE(11, 12);
  INFO("seed " << seed);
  const Outcome fast = run(seed, true, {});
  Kinds kinds;
  kinds.fidelity = csd_model::Fidelity::at;
  const Outcome at = run(seed, true, kinds);
  CHECK(fast.completions == at.completions);
}

}  // namespace test_run_ahead
