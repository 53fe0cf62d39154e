#include "simulation/event_loop.h"

#include <algorithm>
#include <utility>

namespace csdsim {
namespace {

constexpr const char* kName = "csdsim_event_loop";

}  // namespace

Alarm::Alarm(AlarmRank rank, Callback<void()> action)
    : loop_(EventLoop::of_current_context()), rank_(rank), action_(std::move(action)) {
  loop_->add(*this);
}

Alarm::~Alarm() { loop_->remove(*this); }

void Alarm::cancel() {
  loop_->due_[index_] = SimTime::max();
  const std::size_t group = index_ / EventLoop::kGroup;
  loop_->groups_[group] = loop_->first_of_group(group);
  loop_->look_for_first();
}

Decider::Decider() : loop_(EventLoop::of_current_context()) { loop_->deciders_.push_back(this); }

Decider::~Decider() { std::erase(loop_->deciders_, this); }

std::shared_ptr<EventLoop> EventLoop::of_current_context() {
  // Looked up in the context itself, at top level, so that no state of ours outlives it.
  if (auto* found = dynamic_cast<EventLoop*>(sc_core::sc_find_object(kName))) {
    if (auto shared = found->self_.lock()) return shared;
  }
  check_time_resolution();
  auto* context = sc_core::sc_get_curr_simcontext();
  context->hierarchy_push(nullptr);
  std::shared_ptr<EventLoop> made(new EventLoop(kName));
  context->hierarchy_pop();
  made->self_ = made;
  return made;
}

EventLoop::EventLoop(const sc_core::sc_module_name& name) : sc_module(name) {
  number_alarms();
  SC_METHOD(on_wake);
  sensitive << wake_;
  dont_initialize();
}

void EventLoop::add(Alarm& alarm) {
  const auto place = std::upper_bound(alarms_.begin(), alarms_.end(), alarm.rank_,
                                      [](AlarmRank rank, const Alarm* other) { return rank < other->rank_; });
  due_.insert(due_.begin() + (place - alarms_.begin()), SimTime::max());
  alarms_.insert(place, &alarm);
  number_alarms();
}

void EventLoop::remove(Alarm& alarm) {
  due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(alarm.index_));
  alarms_.erase(alarms_.begin() + static_cast<std::ptrdiff_t>(alarm.index_));
  number_alarms();
}

void EventLoop::number_alarms() {
  for (std::size_t i = 0; i < alarms_.size(); ++i) alarms_[i]->index_ = i;
  due_.resize(std::max<std::size_t>(1, (alarms_.size() + kGroup - 1) / kGroup) * kGroup, SimTime::max());
  groups_.resize(due_.size() / kGroup);
  for (std::size_t group = 0; group < groups_.size(); ++group) groups_[group] = first_of_group(group);
  look_for_first();
}

void EventLoop::notify(SimTime delay) {
  if (delay > SimTime{})
    wake_.notify(to_sc_time(delay));
  else
    wake_.notify(sc_core::SC_ZERO_TIME);
}

void EventLoop::wake() {
  if (others_pending()) return notify(SimTime{});
  kernel_now_ = to_sim_time(sc_core::sc_time_stamp());
  now_ = std::max(now_, kernel_now_);
  struct Running {
    EventLoop& loop;
    explicit Running(EventLoop& l) : loop(l) {
      loop.running_ = true;
      detail::loop_now = &loop.now_;
    }
    ~Running() {
      loop.running_ = false;
      detail::loop_now = nullptr;
    }
  };
  SimTime next;
  {
    const Running running(*this);
    if (!run(next)) next = kernel_now_;
  }
  // After the last alarm the kernel catches up with our time.
  if (next == SimTime::max() && now_ > kernel_now_) next = now_;
  if (next != SimTime::max()) notify(next - kernel_now_);
}

/// Runs alarms and decisions as far as the kernel allows. Returns false if the kernel has something pending at the
/// current time. `next`: when to continue.
bool EventLoop::run(SimTime& next) {
  horizon_ = kernel_horizon();
  for (;;) {
    const First first = first_;
    const SimTime due = first.at;
    const bool in_step = !ahead();
    if (due <= kernel_now_) {
      act(first.alarm);
    } else if (!decide(std::min(due, horizon_))) {
      if (in_step || due >= horizon_) {
        next = std::min(due, next_deadline());
        return true;
      }
      now_ = std::max(now_, due);
      act(first.alarm);
    }
    // While the loop runs ahead, no action uses the kernel.
    if (in_step) {
      if (others_pending()) return false;
      horizon_ = kernel_horizon();
    }
  }
}

inline void EventLoop::act(std::size_t alarm) {
  due_[alarm] = SimTime::max();
  groups_[alarm / kGroup] = first_of_group(alarm / kGroup);
  look_for_first();
  alarms_[alarm]->action_();
}

inline bool EventLoop::decide(SimTime bound) {
  Decider* first = nullptr;
  SimTime earliest = bound;
  for (Decider* decider : deciders_) {
    if (decider->deadline_ >= earliest) continue;
    earliest = decider->deadline_;
    first = decider;
  }
  if (first == nullptr) return false;
  // Decides as far as no other decider can interfere: its decisions need at least its lookahead to have an effect.
  if (deciders_.size() > 1)
    for (const Decider* other : deciders_)
      if (other != first && other->deadline_ != SimTime::max())
        bound = std::min(bound, other->deadline_ + other->lookahead());
  first->deadline_ = first->decide(bound);
  return true;
}

/// Uses selects instead of branches: a branch predictor cannot guess which alarm is next.
inline EventLoop::First EventLoop::first_of_group(std::size_t group) const {
  const SimTime* const due = &due_[group * kGroup];
  std::int64_t least = due[0].ps;
  std::size_t first = 0;
#pragma GCC unroll 8
  for (std::size_t i = 1; i < kGroup; ++i) {
    const bool less = due[i].ps < least;
    first = less ? i : first;
    least = less ? due[i].ps : least;
  }
  return {SimTime{least}, group * kGroup + first};
}

SimTime EventLoop::kernel_horizon() const {
  sc_core::sc_time next;
  return simcontext()->next_time(next) ? to_sim_time(next) : SimTime::max();
}

}  // namespace csdsim
