// Chooses the submission queue that the controller fetches from next.
#include <algorithm>
#include <array>
#include <utility>

#include "nvme_if/sysc/nvme_controller.h"

namespace csdsim::nvme {

/// The next queue with entries, in turn, that `accept` takes; null if there is none.
template <class Accept>
SubmissionQueue* NvmeController::next_in_turn(Accept accept) {
  const std::uint16_t limit = core_.queue_limit();
  for (std::uint16_t i = 0; i < limit; ++i) {
    last_served_ = QueueId{after(last_served_)};
    SubmissionQueue* queue = core_.sq(last_served_);
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
  return std::min(params_.fetch_burst, turn->commands);
}

[[gnu::always_inline]] inline void NvmeController::start_fetch(Fetch& fetch, SubmissionQueue& queue,
                                                               std::uint32_t most) {
  const auto room = static_cast<std::uint32_t>(params_.command_slots - live_commands_ - reserved_slots_);
  fetch.busy = true;
  fetch.epoch = epoch_;
  fetch.queue = queue.id();
  const Segment segment = queue.claim(std::min(room, most));
  fetch.count = static_cast<std::uint32_t>(segment.length.value / sizeof(SubmissionEntry));
  reserved_slots_ += fetch.count;
  unfetched_ -= std::min(unfetched_, fetch.count);
  queue.begin_work();
  ++dma_in_flight_;
  dma_.read(segment, reinterpret_cast<std::byte*>(fetch.entries.data()), *this,
            static_cast<std::uint64_t>(&fetch - fetches_.data()));
}

/// `only`, if given, is the only queue with entries: it is served next. Precondition: unfetched_ is not 0.
void NvmeController::start_fetches(SubmissionQueue* only) {
  if (!core_.running()) return;
  const bool weighted = core_.weighted();
  for (Fetch& fetch : fetches_) {
    if (live_commands_ + reserved_slots_ >= params_.command_slots) return;
    if (fetch.busy) continue;
    SubmissionQueue* queue = only;
    std::uint32_t most = params_.fetch_burst;
    if (weighted)
      most = arbitrate(queue);
    else if (queue == nullptr)
      queue = next_queue();
    if (queue == nullptr) return;
    if (std::exchange(only, nullptr) != nullptr) last_served_ = queue->id();
    start_fetch(fetch, *queue, most);
    if (weighted) arbiter_.fetched(queue->priority(), fetch.count);
    if (unfetched_ == 0) return;
  }
}

}  // namespace csdsim::nvme
