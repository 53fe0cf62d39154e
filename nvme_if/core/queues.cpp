#include "nvme_if/core/queues.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::nvme {

bool SubmissionQueue::ring(std::uint32_t tail) {
  if (tail >= size_ || tail == tail_) return false;
  const std::uint32_t used = ring_distance(head_, tail_, size_);
  if (ring_distance(tail_, tail, size_) > size_ - 1 - used) return false;
  tail_ = tail;
  return true;
}

Segment SubmissionQueue::claim(std::uint32_t limit) {
  const std::uint32_t count = std::min({limit, available(), size_ - fetch_});
  const Segment s{base_ + Bytes{std::uint64_t{fetch_} * sizeof(SubmissionEntry)},
                  Bytes{std::uint64_t{count} * sizeof(SubmissionEntry)}};
  fetch_ = fetch_ + count == size_ ? 0 : fetch_ + count;
  return s;
}

bool SubmissionQueue::begin(CommandId cid) {
  std::uint64_t& word = cids_[cid.value / 64];
  const std::uint64_t bit = std::uint64_t{1} << (cid.value % 64);
  if ((word & bit) != 0) return false;
  word |= bit;
  ++outstanding_;
  return true;
}

void SubmissionQueue::end(CommandId cid) {
  std::uint64_t& word = cids_[cid.value / 64];
  const std::uint64_t bit = std::uint64_t{1} << (cid.value % 64);
  if ((word & bit) == 0) throw InternalError("a command ends that is not outstanding");
  word &= ~bit;
  --outstanding_;
}

bool CompletionQueue::ring(std::uint32_t head) {
  if (head >= size_ || head == head_) return false;
  if (ring_distance(head_, head, size_) > ring_distance(head_, tail_, size_)) return false;
  head_ = head;
  return true;
}

CompletionQueue::Slot CompletionQueue::take() {
  const Slot slot{base_ + Bytes{std::uint64_t{tail_} * sizeof(CompletionEntry)}, phase_};
  if (++tail_ == size_) {
    tail_ = 0;
    phase_ = !phase_;
  }
  return slot;
}

}  // namespace csdsim::nvme
