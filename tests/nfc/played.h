// Plays operations on a small flash in both fidelities, for tests of the timing rules.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "nfc/core/flash_timeline.h"
#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/sim_time.h"
#include "tests/support/sysc_fixture.h"

template <>
struct Catch::StringMaker<csdsim::SimTime> {
  static std::string convert(csdsim::SimTime t) { return std::to_string(t.ps) + " ps"; }
};

namespace csdsim::nfc {

constexpr SimTime operator""_ps(unsigned long long v) { return {static_cast<std::int64_t>(v)}; }

// A read of 64 B takes 10 (command) + 100 (array) + 70 (transfer), a program 10 + 64 + 1000, an erase 10 + 5000.
inline FlashTiming coarse() {
  FlashTiming t;
  t.read_latency = 100_ps;
  t.program_latency = 1000_ps;
  t.erase_latency = 5000_ps;
  t.command_time = 10_ps;
  t.data_out_setup = 6_ps;
  t.channel_bandwidth = {1'000'000'000'000};
  return t;
}

/// One channel of four dies of two planes; a byte a picosecond.
inline FlashGeometry small() {
  FlashGeometry g;
  g.channels = 1;
  g.dies_per_channel = 4;
  g.planes_per_die = 2;
  g.blocks_per_plane = 2;
  g.pages_per_block = 6;
  g.page_size = Bytes{64};
  return g;
}

inline PageOp op(PageOpKind kind, std::uint32_t plane, OpClass op_class = OpClass::host, std::uint32_t page = 0) {
  return {small().address(PlaneId{plane}, 0, page), kind, op_class, 0, 64};
}
inline PageOp read(std::uint32_t plane, OpClass c = OpClass::host) { return op(PageOpKind::read, plane, c); }
inline PageOp program(std::uint32_t plane, OpClass c = OpClass::host) { return op(PageOpKind::program, plane, c); }
inline PageOp erase(std::uint32_t plane, OpClass c = OpClass::host) { return op(PageOpKind::erase, plane, c); }
inline PageOp read_again(std::uint32_t plane, std::uint8_t retries) {
  PageOp r = read(plane);
  r.retries = retries;
  return r;
}

/// Plays operations, a batch each, submitted at given times. Returns the times at which they are done.
struct Played {
  std::vector<SimTime> done;
  std::vector<FlashStages> stages;
  FlashStatistics statistics;
};

using Timed = std::vector<std::pair<PageOp, SimTime>>;

/// Submits operations to an event-driven flash at their times, which ascend.
class AtPlayer : public sc_core::sc_module, private FlashClient {
 public:
  AtPlayer(const sc_core::sc_module_name& name, AtFlash& flash, const Timed& ops, Played& played)
      : sc_module(name), flash_(flash), ops_(ops), played_(played) {
    socket_.bind(flash.socket);
    SC_METHOD(submit_due);
    sensitive << due_;
  }
  SC_HAS_PROCESS(AtPlayer);

 private:
  void submit_due() {
    const SimTime now = sim_time_now();
    for (; next_ < ops_.size() && ops_[next_].second <= now; ++next_)
      flash_.submit_directly({&ops_[next_].first, 1}, *this, next_);
    if (next_ < ops_.size()) due_.notify(to_sc_time(ops_[next_].second - now));
  }
  void flash_done(std::uint64_t tag, const FlashStages& stages) override {
    played_.done[tag] = sim_time_now();
    played_.stages[tag] = stages;
  }

  tlm_utils::simple_initiator_socket<AtPlayer> socket_{"socket"};  ///< unused
  AtFlash& flash_;
  const Timed& ops_;
  Played& played_;
  sc_core::sc_event due_;
  std::size_t next_ = 0;
};

/// The same in `fidelity: at`.
inline Played play_at(const FlashTiming& timing, const Timed& ops) {
  csdsim::test::SyscFixture context;
  Played played{std::vector<SimTime>(ops.size()), std::vector<FlashStages>(ops.size()), FlashStatistics(small())};
  AtFlash flash("flash", small(), timing);
  AtPlayer player("player", flash, ops, played);
  sc_core::sc_start();
  played.statistics = flash.statistics();
  return played;
}

/// Plays in both fidelities, which must agree.
inline Played play(const FlashTiming& timing, const Timed& ops,
                   FlashTimeline::Rules rules = FlashTimeline::Rules::general) {
  FlashTimeline timeline(small(), timing, rules);
  std::vector<FlashCompletion> completions;
  std::size_t submitted = 0;
  for (;;) {
    const SimTime next = submitted < ops.size() ? ops[submitted].second : SimTime::max();
    const SimTime completion = timeline.run(next);
    if (completion == SimTime::max() && next == SimTime::max()) break;
    if (completion <= next) {
      timeline.take_completions(completion, completions);
    } else {
      timeline.submit({&ops[submitted].first, 1}, next);
      ++submitted;
    }
  }
  CHECK(timeline.waiting_ops() == 0);
  REQUIRE(completions.size() == ops.size());
  Played played{std::vector<SimTime>(ops.size()), std::vector<FlashStages>(ops.size()), timeline.statistics()};
  for (const FlashCompletion& c : completions) {
    played.done[c.ticket.value] = c.at;
    played.stages[c.ticket.value] = c.stages;
    const SimTime sum = std::accumulate(c.stages.begin(), c.stages.end(), SimTime{});
    CHECK(sum == c.at - ops[c.ticket.value].second);
  }
  const Played at = play_at(timing, ops);
  CHECK(at.done == played.done);
  CHECK(at.stages == played.stages);
  CHECK((at.statistics == played.statistics));
  return played;
}

using Times = std::vector<SimTime>;
}  // namespace csdsim::nfc
