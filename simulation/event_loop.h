// The event loop that all our models of one simulation context share. It runs their actions in time order, and bypasses
// the SystemC kernel where no other process can observe the difference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <systemc>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/callback.h"
#include "base/units.h"
#include "simulation/sim_time.h"

namespace csdsim {

class EventLoop;

/// The order in which alarms of the same time act. Bus decisions of the flash follow after all of them.
enum class AlarmRank : std::uint8_t {
  kernel,    ///< processes of the kernel continue
  plan,      ///< the host's plan of operations goes on
  engine,    ///< units of attention engines end their work
  transfer,  ///< ends of DMA transfers
  firmware,  ///< the drive's processors
  host,      ///< the host reacts to interrupts
  doorbell,  ///< the host rings a doorbell, once for all entries that it has put into the queue
  flash,     ///< ends of page operations
};

/// An action that runs at a time which its owner sets: what sc_event and SC_METHOD are for the kernel. Alarms of equal
/// rank and time act in the order of their construction.
class Alarm {
 public:
  Alarm(AlarmRank rank, Callback<void()> action);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// Schedules the action for `at`, or for now if `at` has passed. Only one action is pending at a time: of two times
  /// the earlier one counts.
  inline void set(SimTime at);
  /// Like set(), but only as the last statement of an action: runs the action at once if no other alarm and no decision
  /// is due up to `at`.
  inline void continue_at(SimTime at);
  void cancel();
  EventLoop& loop() { return *loop_; }

 private:
  friend class EventLoop;
  std::shared_ptr<EventLoop> loop_;
  AlarmRank rank_;
  std::size_t index_ = 0;  ///< in the loop
  Callback<void()> action_;
};

/// A model that makes decisions ahead of the current time, whose effects become visible only when its alarms act.
/// Example: a flash timeline, which grants buses.
class Decider {
 public:
  Decider(const Decider&) = delete;
  Decider& operator=(const Decider&) = delete;

 protected:
  Decider();
  ~Decider();

  /// Makes decisions that are due before `bound`: at least one, not necessarily all. Sets alarms for their effects.
  /// Returns the deadline of the next decision as far as it is known now, SimTime::max() if there is none.
  virtual SimTime decide(SimTime bound) = 0;
  /// A decision made after a deadline has no effect before that deadline + lookahead(). Not negative.
  virtual SimTime lookahead() const = 0;

  /// Announces work: the loop asks for the next decision before it lets anything happen at a time > `deadline`. The
  /// deadline is the time of the decision or, where decisions do not depend on later submissions, the last moment
  /// before they can have an effect.
  inline void decide_by(SimTime deadline);
  EventLoop& loop() const { return *loop_; }

 private:
  friend class EventLoop;
  std::shared_ptr<EventLoop> loop_;
  SimTime deadline_ = SimTime::max();
};

/// Woken by the kernel, it
///
///   1. waits, delta by delta, until nothing else is pending at the current time;
///   2. lets the alarms of this time act, by rank, and returns to 1 if they caused activity in the kernel;
///   3. makes decisions, interleaved in time order, up to the next alarm or the kernel's next timed event: nobody can
///      cause anything before that moment;
///   4. where it may run ahead: goes on to the next alarm before that event, with its own time for the kernel's;
///   5. sleeps until the next alarm or decision.
///
/// So everything that happens at a time t, in whatever delta, takes part in the decisions of t, and results do not
/// depend on the order in which SystemC runs processes within t, other than through the order of submission.
///
/// The loop runs ahead of the kernel while at least one module has asked for it and no module holds it (LoopHold). A
/// module holds the loop as long as its alarms make calls during which the kernel's time must be the current time:
/// calls into modules of a user, and notifications of kernel events. All other code reads the time with sim_time_now()
/// and waits with alarms.
///
/// Step 1 ends because this is the only process that polls: if another process also renewed itself in delta cycles
/// until all else is quiet, the two would wait for each other forever. When sc_start(T) is used in slices and work is
/// submitted from outside between two of them, the loop may already have made decisions (and, where it runs ahead, run
/// alarms) up to the next event, beyond the end of the slice: such work is served from there on.
class EventLoop : public sc_core::sc_module {
 public:
  /// The loop of the current context: created by the first call during elaboration, destroyed with its last owner.
  /// Throws UserError if the context's time resolution is not 1 ps.
  static std::shared_ptr<EventLoop> of_current_context();

  /// Runs `step`, the body of a SystemC process, and keeps the exception that it throws; the kernel would replace it by
  /// a report.
  template <class Step>
  void guarded(Step step) {
    try {
      step();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
      throw;
    }
  }
  /// Throws the exception that was kept, if there is one.
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  void ask_to_run_ahead() {
    if (asked_) return;
    asked_ = true;
    --holds_;
  }
  /// Registers which module of ours is behind the interface of a socket; behind() looks it up (null: a module of the
  /// user). A caller that is bound directly to that socket may then call the module itself.
  void declare(const sc_core::sc_interface& socket, sc_core::sc_interface& module) { behind_[&socket] = &module; }
  sc_core::sc_interface* behind(const sc_core::sc_interface& socket) const {
    const auto found = behind_.find(&socket);
    return found == behind_.end() ? nullptr : found->second;
  }
  /// True if the kernel's time is the current time. Code that needs this and finds it false holds the loop and sets an
  /// alarm for now: when the alarm acts, it is true.
  bool in_step() const { return !running_ || now_ == kernel_now_; }

  /// For an action that continues at `at`: makes `at` the current time if no other alarm and no decision is due up to
  /// it. Otherwise returns false and changes nothing; the action then sets an alarm.
  bool skip_to(SimTime at) {
    if (!ahead() || at >= limit_ || at >= first().at || at > next_deadline_) return false;
    now_ = std::max(now_, at);
    return true;
  }
  /// For an action that has more to do at `at` but sets no alarm for it: `call` cannot skip to that time or beyond.
  template <class Call>
  void before(SimTime at, Call&& call) {
    const SimTime limit = std::exchange(limit_, std::min(limit_, at));
    call();
    limit_ = limit;
  }

 private:
  friend class Alarm;
  friend class Decider;
  friend class LoopHold;
  explicit EventLoop(const sc_core::sc_module_name& name);
  SC_HAS_PROCESS(EventLoop);

  /// An alarm that is pending, and when.
  struct Pending {
    SimTime at;
    std::size_t alarm;
    bool before(const Pending& o) const { return at != o.at ? at < o.at : alarm < o.alarm; }
  };

  void add(Alarm& alarm);
  void remove(Alarm& alarm);
  void set(std::size_t alarm, SimTime at) {
    if (!running_) [[unlikely]]
      return set_from_outside(alarm, at);
    schedule(alarm, std::max(at, now_));
  }
  void set_from_outside(std::size_t alarm, SimTime at);
  void schedule(std::size_t alarm, SimTime at) {
    if (at >= due_[alarm]) return;
    if (due_[alarm] != SimTime::max()) withdraw(alarm);
    due_[alarm] = at;
    insert({at, alarm});
  }
  void insert(const Pending& alarm) {
    Pending* place = ++first_;
    for (; place[-1].before(alarm); --place) *place = place[-1];
    *place = alarm;
  }
  void withdraw(std::size_t alarm);
  void notify(SimTime delay);
  void on_wake() {
    guarded([this] { wake(); });
  }
  void wake();
  bool run(SimTime& next);
  void act_first();
  bool decide(SimTime bound);
  void number_alarms();
  /// The earliest alarm; of several, the first. At SimTime::max() where none is pending.
  const Pending& first() const { return *first_; }
  void set_deadline(Decider& decider, SimTime deadline) {
    const SimTime before = std::exchange(decider.deadline_, deadline);
    if (deadline <= next_deadline_)
      next_deadline_ = deadline;
    else if (before == next_deadline_)
      find_next_deadline();
  }
  void find_next_deadline() {
    next_deadline_ = SimTime::max();
    for (const Decider* decider : deciders_) next_deadline_ = std::min(next_deadline_, decider->deadline_);
  }
  SimTime kernel_horizon() const;
  bool ahead() const { return holds_ == 0; }
  void look_ahead() { horizon_ = limit_ = kernel_horizon(); }
  bool others_pending() const { return sc_core::sc_pending_activity_at_current_time(simcontext()); }

  /// Carries every wake-up. An event has one pending notification and the earliest wins, and it is never pending while
  /// on_wake looks for the kernel's next event: the loop's own wake-up is no reason to stop.
  sc_core::sc_event wake_;
  std::vector<Alarm*> alarms_;  ///< by rank, then construction
  std::vector<SimTime> due_;    ///< when each alarm acts, SimTime::max() where it is not pending
  /// Pending alarms in descending order of time: the earliest is at first_. The first element is a sentinel that never
  /// acts. There is room for all alarms; two or three per drive are pending, so that a linear search costs less than a
  /// heap.
  std::vector<Pending> pending_;
  Pending* first_ = nullptr;
  std::vector<Decider*> deciders_;
  SimTime next_deadline_ = SimTime::max();  ///< the earliest of all deciders
  SimTime now_;
  SimTime kernel_now_;
  SimTime horizon_;  ///< the kernel's next timed event
  static constexpr SimTime kNotRunning{-1};
  SimTime limit_ = kNotRunning;  ///< the current action must stay below: the horizon, or the argument of before()
  std::unordered_map<const sc_core::sc_interface*, sc_core::sc_interface*> behind_;
  bool running_ = false;
  bool asked_ = false;
  /// Modules that do not allow the loop to run ahead, plus 1 until somebody asks for it. It runs ahead where this is 0.
  int holds_ = 1;
  std::weak_ptr<EventLoop> self_;
  std::exception_ptr failure_;
};

/// Keeps the loop of the current context from running ahead while it is engaged.
class LoopHold {
 public:
  LoopHold() : loop_(EventLoop::of_current_context()) {}
  ~LoopHold() { release(); }
  LoopHold(const LoopHold&) = delete;
  LoopHold& operator=(const LoopHold&) = delete;

  void engage() { loop_->holds_ += std::exchange(engaged_, true) ? 0 : 1; }
  void release() { loop_->holds_ -= std::exchange(engaged_, false) ? 1 : 0; }
  EventLoop& loop() { return *loop_; }

 private:
  std::shared_ptr<EventLoop> loop_;
  bool engaged_ = false;
};

inline void Alarm::set(SimTime at) { loop_->set(index_, at); }

inline void Alarm::continue_at(SimTime at) { loop_->skip_to(at) ? action_() : loop_->set(index_, at); }

inline void Decider::decide_by(SimTime deadline) {
  loop_->set_deadline(*this, deadline);
  if (!loop_->running_) loop_->notify(SimTime{});
}

}  // namespace csdsim
