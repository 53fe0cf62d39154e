// Which submission queue the controller fetches from next.
#include <array>
#include <utility>

#include "nvme_if/sysc/nvme_controller.h"

namespace csdsim::nvme {

/// The next queue with entries, in turn, that `accept` takes; null if there is none.
template <class Accept>
SubmissionQueue* NvmeController::next_in_turn(Accept accept) {
  const std::uint16_t limit = core_.queue_limit();
  for (std::uint16_t i = 0; i < limit; ++i) {
    const std::uint16_t id = round_robin_;
    round_robin_ = after(QueueId{id});
    SubmissionQueue* queue = core_.sq(QueueId{id});
    if (queue != nullptr && !queue->deleting() && queue->available() > 0 && accept(*queue)) return queue;
  }
  return nullptr;
}

SubmissionQueue* NvmeController::next_queue() {
  SubmissionQueue* const queue = next_in_turn([](const SubmissionQueue&) { return true; });
  if (queue == nullptr) unfetched_ = 0;
  return queue;
}

/// The queue that the priorities of queues choose, and how many of its commands are fetched at most. The admin queue
/// goes before all others.
std::uint32_t NvmeController::arbitrate(SubmissionQueue*& queue) {
  std::array<bool, kQueuePriorities> waiting{};
  queue = next_in_turn([&](const SubmissionQueue& q) {
    if (q.id().value != 0) waiting[static_cast<std::size_t>(q.priority())] = true;
    return q.id().value == 0;
  });
  if (queue != nullptr) return params_.fetch_burst;
  const auto turn = arbiter_.next(waiting, core_.priority_weights());
  if (!turn) {
    unfetched_ = 0;
    return 0;
  }
  queue = next_in_turn([&](const SubmissionQueue& q) { return q.priority() == turn->priority; });
  return turn->commands;
}

/// `only`, if given, is the only queue with entries: it is served next.
void NvmeController::start_fetches(SubmissionQueue* only) {
  for (Fetch& fetch : fetches_) {
    if (unfetched_ == 0 || !core_.running() || live_commands_ + reserved_slots_ >= params_.command_slots) return;
    if (fetch.busy) continue;
    SubmissionQueue* queue = only;
    std::uint32_t most = params_.fetch_burst;
    if (core_.weighted())
      most = arbitrate(queue);
    else if (queue == nullptr)
      queue = next_queue();
    if (queue == nullptr) return;
    if (std::exchange(only, nullptr) != nullptr) round_robin_ = after(queue->id());
    start_fetch(fetch, *queue, most);
    if (core_.weighted()) arbiter_.fetched(queue->priority(), fetch.count);
  }
}

}  // namespace csdsim::nvme
