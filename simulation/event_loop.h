// One event loop a simulation context for all models of ours: in time order, without the SystemC kernel where nobody
// else can notice.
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

/// Who acts first among the alarms of the same time. Bus decisions of flash come after all of them.
enum class AlarmRank : std::uint8_t {
  transfer,  ///< ends of DMA transfers
  firmware,  ///< the drive's processors
  host,      ///< the host reacts
  doorbell,  ///< ... and rings once for all that it has put into a queue
  flash,     ///< ends of page operations
};

/// An action at a time that its owner sets: what sc_event and SC_METHOD are to the kernel. Alarms of one rank and time
/// act in the order of construction.
class Alarm {
 public:
  Alarm(AlarmRank rank, Callback<void()> action);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// Acts at `at`, or now if that has passed. One action is pending at a time: the earlier one stays.
  inline void set(SimTime at);
  /// The same, as the last thing that an action does: acts at once if nobody else acts or decides up to `at`.
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

/// A model that decides ahead of the present what nobody sees before its alarms: a flash timeline, which grants buses.
class Decider {
 public:
  Decider(const Decider&) = delete;
  Decider& operator=(const Decider&) = delete;

 protected:
  Decider();
  ~Decider();

  /// Makes the decisions at times < `bound`, or fewer, at least one; sets alarms for what they lead to. Returns the
  /// deadline of the next one as things are, SimTime::max() if there is none.
  virtual SimTime decide(SimTime bound) = 0;
  /// What is decided after a deadline leads to nothing before that deadline + lookahead(); not negative.
  virtual SimTime lookahead() const = 0;

  /// Work has come: nothing at a time > `deadline` happens before the next decision is made. The deadline is the time
  /// of the decision, or for decisions that do not depend on what comes after them, the last moment before they may
  /// lead to something.
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
/// It runs ahead while somebody has asked for it and nobody holds it. A module holds the loop as long as its alarms
/// lead to calls that must see the kernel at their time: calls into modules of a user, or that notify a kernel event.
/// Others read the time with sim_time_now() and wait with alarms.
///
/// Step 1 ends because this is the only process that polls: another one that renews itself in delta cycles until all
/// else is quiet would wait for this one forever. When sc_start(T) is used in slices and work is submitted from outside
/// between two of them, decisions (and where the loop runs ahead, alarms) may have been made up to the next event,
/// beyond the end of the slice: such work is served from there on.
class EventLoop : public sc_core::sc_module {
 public:
  /// The loop of the current context, made by the first who asks during elaboration and gone with the last who holds
  /// it. Throws UserError if the context's time resolution is not 1 ps.
  static std::shared_ptr<EventLoop> of_current_context();

  /// Runs `step`, which a process consists of, and keeps what it throws, which the kernel would replace by a report.
  template <class Step>
  void guarded(Step step) {
    try {
      step();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
      throw;
    }
  }
  /// Throws what was kept; nothing if nothing was.
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  void ask_to_run_ahead() { asked_ = true; }
  /// Says which module of ours stands behind the interface of a socket, and asks for it (null: somebody else): who is
  /// bound straight to it may call the module itself.
  void declare(const sc_core::sc_interface& socket, sc_core::sc_interface& module) { behind_[&socket] = &module; }
  sc_core::sc_interface* behind(const sc_core::sc_interface& socket) const {
    const auto found = behind_.find(&socket);
    return found == behind_.end() ? nullptr : found->second;
  }
  /// Whether the kernel's time is the current time. Who needs it and finds it is not holds the loop, sets an alarm for
  /// now, and finds it so when the alarm acts.
  bool in_step() const { return !running_ || now_ == kernel_now_; }

  /// For an action that goes on at `at`: makes that the current time if nobody else acts or decides up to it. False,
  /// and nothing happens, if somebody may: the action sets an alarm then.
  bool skip_to(SimTime at) {
    if (!running_ || !ahead() || at >= horizon_ || at >= first_.at || at >= limit_ || at > next_deadline())
      return false;
    now_ = std::max(now_, at);
    return true;
  }
  /// For an action that has more to do at `at`, without an alarm: what it calls until then does not skip to that time.
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

  /// Alarms are compared in groups of so many: after one has acted, its group is looked through.
  static constexpr std::size_t kGroup = 4;
  /// The earliest alarm of a group; of several, the first.
  struct First {
    SimTime at;
    std::size_t alarm;
  };

  void add(Alarm& alarm);
  void remove(Alarm& alarm);
  void set(std::size_t alarm, SimTime at) {
    if (running_) at = std::max(at, now_);
    if (at >= due_[alarm]) return;
    due_[alarm] = at;
    First& first = groups_[alarm / kGroup];
    first = earlier(first, {at, alarm});
    first_ = earlier(first_, {at, alarm});
    if (!running_) notify(at - to_sim_time(sc_core::sc_time_stamp()));
  }
  void notify(SimTime delay);
  void on_wake() {
    guarded([this] { wake(); });
  }
  void wake();
  bool run(SimTime& next);
  void act(std::size_t alarm);
  bool decide(SimTime bound);
  void number_alarms();
  First first_of_group(std::size_t group) const;
  /// Selects instead of branches: who is next is as good as random to a branch predictor.
  static First earlier(First a, First b) {
    const bool later = (a.at.ps > b.at.ps) | ((a.at.ps == b.at.ps) & (a.alarm > b.alarm));
    return {SimTime{later ? b.at.ps : a.at.ps}, later ? b.alarm : a.alarm};
  }
  void look_for_first() {
    First first = groups_[0];
    for (std::size_t group = 1; group < groups_.size(); ++group) first = earlier(first, groups_[group]);
    first_ = first;
  }
  SimTime next_deadline() const {
    SimTime next = SimTime::max();
    for (const Decider* decider : deciders_) next = std::min(next, decider->deadline_);
    return next;
  }
  SimTime kernel_horizon() const;
  bool ahead() const { return asked_ && holds_ == 0; }
  bool others_pending() const { return sc_core::sc_pending_activity_at_current_time(simcontext()); }

  /// Carries every wake-up. An event has one pending notification and the earliest wins, and it is never pending while
  /// on_wake looks for the kernel's next event: the loop's own wake-up is no reason to stop.
  sc_core::sc_event wake_;
  std::vector<Alarm*> alarms_;  ///< by rank, then construction
  /// When each acts, SimTime::max() where none is pending; filled up to whole groups.
  std::vector<SimTime> due_;
  std::vector<First> groups_;
  First first_{SimTime::max(), 0};  ///< of all
  std::vector<Decider*> deciders_;
  SimTime now_;
  SimTime kernel_now_;
  SimTime horizon_;                 ///< the kernel's next timed event
  SimTime limit_ = SimTime::max();  ///< when the action that is going on has more to do
  std::unordered_map<const sc_core::sc_interface*, sc_core::sc_interface*> behind_;
  bool running_ = false;
  bool asked_ = false;
  int holds_ = 0;
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
  bool engaged() const { return engaged_; }
  EventLoop& loop() { return *loop_; }

 private:
  std::shared_ptr<EventLoop> loop_;
  bool engaged_ = false;
};

inline void Alarm::set(SimTime at) { loop_->set(index_, at); }

inline void Alarm::continue_at(SimTime at) { loop_->skip_to(at) ? action_() : loop_->set(index_, at); }

inline void Decider::decide_by(SimTime deadline) {
  deadline_ = deadline;
  if (!loop_->running_) loop_->notify(SimTime{});
}

}  // namespace csdsim
