// Flash of one drive as a SystemC module, timed by FlashTimeline: `fidelity: fast`.
#pragma once

#include "nfc/core/flash_timeline.h"
#include "nfc/sysc/flash_target.h"
#include "nfc/sysc/own_time.h"

namespace csdsim::nfc {

/// Sets one alarm per completed batch and none per page. Completion times equal those of AtFlash. The timeline is in
/// the flash's own time.
class FastFlash final : public FlashTarget {
 public:
  /// Throws UserError on a geometry or timing that `validate` refuses.
  FastFlash(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing)
      : FlashTarget(name, geometry, timing.word_line_pages), timeline_(geometry, timing) {}

  const FlashStatistics& statistics() override {
    expect_completion(timeline_.run(own_time(sim_time_now())));
    decide_by(deadline());
    return timeline_.statistics();
  }
  const FlashTimeline& timeline() const { return timeline_; }
  void stand_still_until(SimTime end) override {
    statistics();  // all that is due now
    time_.stand_still(sim_time_now(), end);
    withdraw_response();
    expect_completion(timeline_.next_completion());
    decide_by(deadline());
  }
  void forget() override {
    forget_batches();
    timeline_.forget(own_time(sim_time_now()));
    decide_by(deadline());
  }
  /// Moments are in the flash's own time.
  bool observe_changes(ChangeObserver& observer) override {
    timeline_.observe_changes(observer);
    return true;
  }
  SimTime own_time(SimTime now) const override { return time_.own(now); }
  bool observe(const FlashObservers& observers) override {
    timeline_.observe(observed_.in_own_time(observers));
    return true;
  }

 private:
  SimTime lookahead() const override { return timeline_.decides_late() ? SimTime{1} : timeline_.lookahead(); }
  /// Deadline of the next decision: its own time or, where decisions may be late, just before its earliest completion;
  /// or the time of the next part, if that is earlier.
  SimTime deadline() const {
    SimTime decision = timeline_.next_decision();
    if (decision != SimTime::max() && timeline_.decides_late()) decision += timeline_.lookahead() - SimTime{1};
    return time_.simulated(std::min(decision, timeline_.next_part()));
  }
  /// Parts are reported here, up to the next alarm and the next completion: nothing else happens before.
  SimTime decide(SimTime bound) override {
    const SimTime before = own_time(bound), completion = timeline_.run(before);
    expect_completion(completion);
    if (const SimTime end = std::min(before, completion); timeline_.next_part() < end) {
      const SimTime left = timeline_.take_parts(
          end, [&](FlashTicket ticket, SimTime at) { return report_part(ticket, time_.simulated(at)); });
      if (left < end) respond_at(time_.simulated(left));
    }
    return deadline();
  }
  void release(FlashTicket ticket) override {
    timeline_.release(ticket, own_time(sim_time_now()));
    decide_by(deadline());
  }
  FlashTicket submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged) override {
    const FlashTicket ticket = timeline_.submit(ops, own_time(at), hold, staged);
    decide_by(deadline());
    return ticket;
  }
  bool reports_parts() const override { return true; }
  void submit_each(std::span<const PageOp> ops, SimTime at, bool staged) override {
    timeline_.submit(ops, own_time(at), false, staged, true);
    decide_by(deadline());
  }
  void respond() override {
    timeline_.take_completions(own_time(sim_time_now()), completions());
    expect_completion(timeline_.next_completion());
    notify_clients();
  }
  /// `at` is in the flash's own time.
  void expect_completion(SimTime at) {
    if (at == SimTime::max()) return;
    respond_at(time_.simulated(at));
    expect(timeline_.next_ticket());
  }

  OwnTime time_;
  ObserversInOwnTime observed_{time_};
  FlashTimeline timeline_;
};

}  // namespace csdsim::nfc
