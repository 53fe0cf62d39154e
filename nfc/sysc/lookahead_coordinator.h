// Lets the flash models of a simulation act when the current time has settled, and its timelines run ahead.
#pragma once

#include <memory>
#include <systemc>
#include <vector>

#include "base/units.h"
#include "nfc/core/flash_timeline.h"

namespace csdsim::nfc {

/// A flash model as the coordinator sees it.
class FlashModel {
 public:
  /// Sends the responses that are due at `now`. Returns whether it sent any.
  virtual bool respond(SimTime now) = 0;
  /// Event-driven models: grants the buses that are free at `now`.
  virtual void decide(SimTime /*now*/) {}
  /// Models that run ahead: their timeline. nullptr for event-driven ones.
  virtual FlashTimeline* timeline() { return nullptr; }

 protected:
  ~FlashModel() = default;
};

/// One per simulation context, shared by all its drives. Once a model has been kicked, or something of a timeline is
/// due:
///
///   1. wait, delta by delta, until nothing else is pending at the current time;
///   2. send the responses that are due, in the order of attachment, and return to 1 if they caused activity;
///   3. make the bus decisions of the current time, and let the timelines run ahead, interleaved in time order, up to
///   the
///      kernel's next timed event or the first completion: nobody can submit anything before that moment;
///   4. sleep until the next completion or decision.
///
/// So everything that is submitted at a time t, in whatever delta, takes part in the decisions of t, and results do not
/// depend on the order in which SystemC runs processes within t, other than through the order of submission.
///
/// Step 1 ends because this is the only process that polls: another one that renews itself in delta cycles until all
/// else is quiet would wait for this one forever. When sc_start(T) is used in slices and work is submitted from outside
/// between two of them, the timelines may have decided up to their next event, beyond the end of the slice: such work
/// is served from there on (FlashTimeline::front()).
class LookaheadCoordinator : public sc_core::sc_module {
 public:
  /// The coordinator of the current context, made by the first who asks during elaboration and gone with the last who
  /// holds it. Throws UserError if the context's time resolution is not 1 ps.
  static std::shared_ptr<LookaheadCoordinator> of_current_context();

  void attach(FlashModel& model) { models_.push_back(&model); }
  void detach(FlashModel& model) { std::erase(models_, &model); }

  /// Something changed at the current time: decisions may be due once it has settled.
  void kick();

 private:
  explicit LookaheadCoordinator(const sc_core::sc_module_name& name);
  SC_HAS_PROCESS(LookaheadCoordinator);

  void on_wake();
  void send_due_responses(SimTime now);
  void run_ahead();
  SimTime earliest_completion() const;
  bool others_pending() const { return sc_core::sc_pending_activity_at_current_time(simcontext()); }

  /// Carries every wake-up. An event has one pending notification and the earliest wins, and it is never pending while
  /// on_wake looks for the kernel's next event: the coordinator's own alarm is no reason to stop.
  sc_core::sc_event wake_;
  bool acting_ = false;
  std::vector<FlashModel*> models_;
  std::vector<FlashTimeline*> timelines_;
  std::weak_ptr<LookaheadCoordinator> self_;
};

}  // namespace csdsim::nfc
