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
  if (std::exchange(loop_->due_[index_], SimTime::max()) != SimTime::max()) loop_->withdraw(index_);
}

Decider::Decider() : loop_(EventLoop::of_current_context()) { loop_->deciders_.push_back(this); }

Decider::~Decider() {
  std::erase(loop_->deciders_, this);
  loop_->find_next_deadline();
}

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
  pending_.resize(alarms_.size() + 1);
  pending_.front() = {SimTime::max(), 0};
  first_ = pending_.data();
  for (std::size_t i = 0; i < alarms_.size(); ++i) {
    alarms_[i]->index_ = i;
    if (due_[i] != SimTime::max()) insert({due_[i], i});
  }
}

/// Removes a pending alarm from the list.
void EventLoop::withdraw(std::size_t alarm) {
  Pending* const place = std::ranges::find(pending_.data() + 1, first_, alarm, &Pending::alarm);
  std::move(place + 1, first_ + 1, place);
  --first_;
}

void EventLoop::set_from_outside(std::size_t alarm, SimTime at) {
  const SimTime before = due_[alarm];
  schedule(alarm, at);
  if (at < before) notify(at - to_sim_time(sc_core::sc_time_stamp()));
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
      loop.limit_ = kNotRunning;
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
  look_ahead();
  for (;;) {
    const SimTime due = first().at;
    const bool in_step = !ahead();
    if (due <= kernel_now_) {
      act_first();
    } else if (!decide(std::min(due, horizon_))) {
      if (in_step || due >= horizon_) {
        next = std::min(due, next_deadline_);
        return true;
      }
      now_ = std::max(now_, due);
      act_first();
    }
    // While the loop runs ahead, no action uses the kernel.
    if (in_step) {
      if (others_pending()) return false;
      look_ahead();
    }
  }
}

inline void EventLoop::act_first() {
  const std::size_t alarm = first().alarm;
  --first_;
  due_[alarm] = SimTime::max();
  alarms_[alarm]->action_();
}

inline bool EventLoop::decide(SimTime bound) {
  if (next_deadline_ >= bound) return false;
  Decider* const first = *std::ranges::find(deciders_, next_deadline_, &Decider::deadline_);
  // Decides as far as no other decider can interfere: its decisions need at least its lookahead to have an effect.
  if (deciders_.size() > 1)
    for (const Decider* other : deciders_)
      if (other != first && other->deadline_ != SimTime::max())
        bound = std::min(bound, other->deadline_ + other->lookahead());
  set_deadline(*first, first->decide(bound));
  return true;
}

SimTime EventLoop::kernel_horizon() const {
  sc_core::sc_time next;
  return simcontext()->next_time(next) ? to_sim_time(next) : SimTime::max();
}

}  // namespace csdsim
