#include "nfc/sysc/lookahead_coordinator.h"

#include <algorithm>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {
namespace {

constexpr const char* kName = "csdsim_lookahead_coordinator";

/// A timeline that has nothing to decide holds nobody back.
SimTime earliest_effect(const FlashTimeline& timeline) {
  const SimTime decision = timeline.next_decision();
  return decision == SimTime::max() ? decision : decision + timeline.lookahead();
}

}  // namespace

std::shared_ptr<LookaheadCoordinator> LookaheadCoordinator::of_current_context() {
  // Looked up in the context itself, at top level, so that no state of ours outlives it.
  if (auto* found = dynamic_cast<LookaheadCoordinator*>(sc_core::sc_find_object(kName))) {
    if (auto shared = found->self_.lock()) return shared;
  }
  if (sc_core::sc_get_time_resolution() != sc_core::sc_time(1, sc_core::SC_PS)) {
    throw UserError("the flash models need the SystemC time resolution to be 1 ps");
  }
  auto* context = sc_core::sc_get_curr_simcontext();
  context->hierarchy_push(nullptr);
  std::shared_ptr<LookaheadCoordinator> made(new LookaheadCoordinator(kName));
  context->hierarchy_pop();
  made->self_ = made;
  return made;
}

LookaheadCoordinator::LookaheadCoordinator(const sc_core::sc_module_name& name) : sc_module(name) {
  SC_METHOD(on_wake);
  sensitive << wake_;
  dont_initialize();
}

void LookaheadCoordinator::kick() {
  if (!acting_) wake_.notify(sc_core::SC_ZERO_TIME);
}

void LookaheadCoordinator::on_wake() {
  if (others_pending()) {
    wake_.notify(sc_core::SC_ZERO_TIME);
    return;
  }
  const SimTime now = sim_time_now();
  acting_ = true;
  send_due_responses(now);
  if (!others_pending()) {
    for (FlashModel* model : models_) model->decide(now);
  }
  acting_ = false;
  if (others_pending()) {
    wake_.notify(sc_core::SC_ZERO_TIME);
    return;
  }
  run_ahead();
}

void LookaheadCoordinator::send_due_responses(SimTime now) {
  bool sent = true;
  while (sent) {
    sent = false;
    for (FlashModel* model : models_) sent |= model->respond(now);
  }
}

SimTime LookaheadCoordinator::earliest_completion() const {
  SimTime earliest = SimTime::max();
  for (const FlashTimeline* timeline : timelines_) earliest = std::min(earliest, timeline->next_completion());
  return earliest;
}

void LookaheadCoordinator::run_ahead() {
  timelines_.clear();
  for (FlashModel* model : models_) {
    if (FlashTimeline* timeline = model->timeline()) timelines_.push_back(timeline);
  }
  if (timelines_.empty()) return;

  SimTime horizon = SimTime::max();
  sc_core::sc_time next;
  if (simcontext()->next_time(next)) horizon = to_sim_time(next);

  SimTime wake;
  for (;;) {
    const SimTime bound = std::min(horizon, earliest_completion());
    FlashTimeline* first = *std::min_element(timelines_.begin(), timelines_.end(), [](const auto* a, const auto* b) {
      return a->next_decision() < b->next_decision();
    });
    wake = std::min(earliest_completion(), first->next_decision());
    if (first->next_decision() >= bound) break;
    // As far as no other drive can complete anything: its decisions take at least its lookahead to have an effect.
    SimTime until = bound;
    for (const FlashTimeline* other : timelines_) {
      if (other != first) until = std::min(until, earliest_effect(*other));
    }
    first->run(until);
  }
  if (wake != SimTime::max()) wake_.notify(to_sc_time(std::max(wake - sim_time_now(), SimTime{})));
}

}  // namespace csdsim::nfc
