// Plays operations on a small flash in both fidelities, for tests of the timing rules.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
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

/// A batch that is submitted at a time. With `held_until`, its pages keep their buffers until it is released then.
struct Step {
  std::vector<PageOp> ops;
  SimTime at;
  SimTime held_until = SimTime::max();

  Step(const PageOp& page_op, SimTime submitted) : ops{page_op}, at(submitted) {}
  Step(const std::pair<PageOp, SimTime>& one) : Step(one.first, one.second) {}
  Step(std::vector<PageOp> batch, SimTime submitted, SimTime released = SimTime::max())
      : ops(std::move(batch)), at(submitted), held_until(released) {}
  bool holds() const { return held_until != SimTime::max(); }
};
using Timed = std::vector<Step>;  ///< times of submission ascend

/// When the batches are done.
struct Played {
  std::vector<SimTime> done;
  std::vector<FlashStages> stages;
  FlashStatistics statistics;
};

/// The next submission or release.
struct Agenda {
  const Timed& steps;
  std::size_t submitted = 0;
  std::vector<bool> released = std::vector<bool>(steps.size());

  SimTime next() const {
    SimTime next = submitted < steps.size() ? steps[submitted].at : SimTime::max();
    for (std::size_t i = 0; i < submitted; ++i)
      if (!released[i]) next = std::min(next, steps[i].held_until);
    return next;
  }
  /// Does what is due at next(), at `now`.
  template <class Submit, class Release>
  void act(SimTime now, Submit submit, Release release) {
    for (std::size_t i = 0; i < submitted; ++i) {
      if (released[i] || steps[i].held_until > now) continue;
      released[i] = true;
      release(i);
    }
    for (; submitted < steps.size() && steps[submitted].at <= now; ++submitted) submit(submitted);
  }
};

/// Plays on an event-driven flash.
class AtPlayer : public sc_core::sc_module, private FlashClient {
 public:
  AtPlayer(const sc_core::sc_module_name& name, AtFlash& flash, const Timed& steps, Played& played)
      : sc_module(name), flash_(flash), agenda_{steps}, played_(played), tickets_(steps.size()) {
    socket_.bind(flash.socket);
    SC_METHOD(act);
    sensitive << due_;
  }
  SC_HAS_PROCESS(AtPlayer);

 private:
  void act() {
    const SimTime now = sim_time_now();
    agenda_.act(
        now,
        [&](std::size_t i) {
          const Step& step = agenda_.steps[i];
          tickets_[i] = flash_.submit_directly(step.ops, *this, i, step.holds());
        },
        [&](std::size_t i) { flash_.release_directly(tickets_[i]); });
    if (const SimTime next = agenda_.next(); next != SimTime::max()) due_.notify(to_sc_time(next - now));
  }
  void flash_done(std::uint64_t tag, const FlashStages& stages) override {
    played_.done[tag] = sim_time_now();
    played_.stages[tag] = stages;
  }

  tlm_utils::simple_initiator_socket<AtPlayer> socket_{"socket"};  ///< unused
  AtFlash& flash_;
  Agenda agenda_;
  Played& played_;
  std::vector<FlashTicket> tickets_;
  sc_core::sc_event due_;
};

/// The same in `fidelity: at`.
inline Played play_at(const FlashTiming& timing, const Timed& steps, const FlashGeometry& geometry) {
  csdsim::test::SyscFixture context;
  Played played{std::vector<SimTime>(steps.size()), std::vector<FlashStages>(steps.size()), FlashStatistics(geometry)};
  AtFlash flash("flash", geometry, timing);
  AtPlayer player("player", flash, steps, played);
  sc_core::sc_start();
  played.statistics = flash.statistics();
  return played;
}

/// Plays in both fidelities, which must agree.
inline Played play(const FlashTiming& timing, const Timed& steps,
                   FlashTimeline::Rules rules = FlashTimeline::Rules::general,
                   const FlashGeometry& geometry = small()) {
  FlashTimeline timeline(geometry, timing, rules);
  std::vector<FlashCompletion> completions;
  std::vector<FlashTicket> tickets(steps.size());
  Agenda agenda{steps};
  for (;;) {
    const SimTime next = agenda.next();
    const SimTime completion = timeline.run(next);
    if (completion == SimTime::max() && next == SimTime::max()) break;
    if (completion <= next) {
      timeline.take_completions(completion, completions);
    } else {
      agenda.act(
          next, [&](std::size_t i) { tickets[i] = timeline.submit(steps[i].ops, next, steps[i].holds()); },
          [&](std::size_t i) { timeline.release(tickets[i], next); });
    }
  }
  CHECK(timeline.waiting_ops() == 0);
  REQUIRE(completions.size() == steps.size());
  Played played{std::vector<SimTime>(steps.size()), std::vector<FlashStages>(steps.size()), timeline.statistics()};
  for (const FlashCompletion& c : completions) {
    played.done[c.ticket.value] = c.at;
    played.stages[c.ticket.value] = c.stages;
    const SimTime sum = std::accumulate(c.stages.begin(), c.stages.end(), SimTime{});
    CHECK(sum == c.at - steps[c.ticket.value].at);
  }
  const Played at = play_at(timing, steps, geometry);
  CHECK(at.done == played.done);
  CHECK(at.stages == played.stages);
  CHECK((at.statistics == played.statistics));
  return played;
}

/// By the rules of PlainTimeline and of GeneralTimeline, in both fidelities: all must agree.
inline Played play_all(const FlashTiming& timing, const Timed& steps, const FlashGeometry& geometry = small()) {
  const Played plain = play(timing, steps, FlashTimeline::Rules::automatic, geometry);
  const Played general = play(timing, steps, FlashTimeline::Rules::general, geometry);
  CHECK(plain.done == general.done);
  CHECK(plain.stages == general.stages);
  CHECK((plain.statistics == general.statistics));
  return plain;
}

using Times = std::vector<SimTime>;
}  // namespace csdsim::nfc
