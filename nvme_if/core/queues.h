// Controller-side state of submission and completion queues.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "nvme_if/spec/command.h"

namespace csdsim::nvme {

/// When an interrupt vector of I/O queues is signalled (NVMe Base 1.4, 5.21.1.8): after `completions` completions since
/// the last signal, or `time` after the first of them, whichever comes first.
struct InterruptCoalescing {
  std::uint32_t completions = 1;  ///< 1..256
  SimTime time{};                 ///< a multiple of kUnit, at most 255 of them; 0: at once
  static constexpr SimTime kUnit = SimTime::microseconds(100);
  bool at_once() const { return completions == 1 || time.ps == 0; }
};

/// Classes of the I/O queues in weighted round robin.
struct QueuePriorities {
  std::vector<QueuePriority> of_queue;            ///< priority of I/O queue i at i - 1; empty: all queues take turns
  std::array<std::uint32_t, 3> weights{1, 1, 1};  ///< commands of a round of high, medium and low, each 1..256
};

/// Ring arithmetic of both kinds of queue: entries from `from` up to `to`.
constexpr std::uint32_t ring_distance(std::uint32_t from, std::uint32_t to, std::uint32_t size) {
  return to >= from ? to - from : to + size - from;
}

/// Submission queue: host moves tail, controller fetches from `fetch` and frees entries by moving head.
class SubmissionQueue {
 public:
  SubmissionQueue(QueueId id, QueueId cq, PhysicalAddress base, std::uint32_t size,
                  QueuePriority priority = QueuePriority::urgent)
      : id_(id), cq_(cq), base_(base), size_(size), priority_(priority), free_(size - 1), cids_(65536 / 64) {}

  QueueId id() const { return id_; }
  QueueId completion_queue() const { return cq_; }
  std::uint32_t size() const { return size_; }
  QueuePriority priority() const { return priority_; }
  std::uint32_t head() const { return head_; }

  /// Takes a new tail from the doorbell and returns how many entries it adds. Returns 0 and changes nothing if the tail
  /// is outside the queue, unchanged, or adds more entries than are free.
  std::uint32_t ring(std::uint32_t tail);

  /// Entries that the host has submitted and whose fetch has not begun.
  std::uint32_t available() const { return available_; }
  /// Claims up to `limit` entries that are contiguous in memory for fetching.
  Segment claim(std::uint32_t limit);
  /// Call when a claimed entry has arrived: the host may reuse it.
  void consume() {
    head_ = head_ + 1 == size_ ? 0 : head_ + 1;
    ++free_;
  }

  /// Marks `cid` outstanding; false when it already is.
  bool begin(CommandId cid);
  void end(CommandId cid);  ///< InternalError unless it is outstanding
  std::uint32_t outstanding() const { return outstanding_; }

  /// Counts what the controller still does for the queue: its fetches and its commands.
  void begin_work() { ++work_; }
  void end_work() { --work_; }
  bool idle() const { return work_ == 0; }

  bool deleting() const { return deleting_; }
  void start_deletion() { deleting_ = true; }

 private:
  [[noreturn]] static void refuse_end();

  QueueId id_;
  QueueId cq_;
  PhysicalAddress base_;
  std::uint32_t size_;
  QueuePriority priority_;
  std::uint32_t head_ = 0;
  std::uint32_t fetch_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t free_;           ///< entries into which the host may write commands
  std::uint32_t available_ = 0;  ///< from fetch_ to tail_
  std::uint32_t outstanding_ = 0;
  std::uint32_t work_ = 0;
  bool deleting_ = false;
  std::vector<std::uint64_t> cids_;  ///< one bit per command identifier
};

/// Completion queue: controller moves tail, host moves head.
class CompletionQueue {
 public:
  CompletionQueue(QueueId id, PhysicalAddress base, std::uint32_t size, InterruptVector vector, bool interrupts)
      : id_(id), base_(base), size_(size), vector_(vector), interrupts_(interrupts) {}

  QueueId id() const { return id_; }
  InterruptVector vector() const { return vector_; }
  bool interrupts() const { return interrupts_; }
  bool full() const { return used_ + 1 == size_; }

  /// Takes a new head from the doorbell. Returns false and changes nothing if the head is outside the queue, unchanged,
  /// or beyond the tail.
  bool ring(std::uint32_t head);

  /// Takes the next entry and its phase. Precondition: not full.
  struct Slot {
    PhysicalAddress address;
    bool phase;
  };
  Slot take();

  /// Submission queues that complete here.
  std::uint32_t attached() const { return attached_; }
  void attach() { ++attached_; }
  void detach() { --attached_; }

 private:
  QueueId id_;
  PhysicalAddress base_;
  std::uint32_t size_;
  InterruptVector vector_;
  bool interrupts_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t used_ = 0;  ///< entries from head_ to tail_
  bool phase_ = true;
  std::uint32_t attached_ = 0;
};

inline std::uint32_t SubmissionQueue::ring(std::uint32_t tail) {
  if (tail >= size_) return 0;
  const std::uint32_t added = ring_distance(tail_, tail, size_);
  if (added > free_) return 0;
  tail_ = tail;
  free_ -= added;
  available_ += added;
  return added;
}

inline Segment SubmissionQueue::claim(std::uint32_t limit) {
  const std::uint32_t count = std::min({limit, available_, size_ - fetch_});
  available_ -= count;
  const Segment s{base_ + Bytes{std::uint64_t{fetch_} * sizeof(SubmissionEntry)},
                  Bytes{std::uint64_t{count} * sizeof(SubmissionEntry)}};
  fetch_ = fetch_ + count == size_ ? 0 : fetch_ + count;
  return s;
}

inline bool SubmissionQueue::begin(CommandId cid) {
  std::uint64_t& word = cids_[cid.value / 64];
  const std::uint64_t bit = std::uint64_t{1} << (cid.value % 64);
  if ((word & bit) != 0) return false;
  word |= bit;
  ++outstanding_;
  return true;
}

[[gnu::always_inline]] inline void SubmissionQueue::end(CommandId cid) {
  std::uint64_t& word = cids_[cid.value / 64];
  const std::uint64_t bit = std::uint64_t{1} << (cid.value % 64);
  if ((word & bit) == 0) refuse_end();
  word &= ~bit;
  --outstanding_;
}

inline bool CompletionQueue::ring(std::uint32_t head) {
  if (head >= size_) return false;
  const std::uint32_t taken = ring_distance(head_, head, size_);
  if (taken == 0 || taken > used_) return false;
  head_ = head;
  used_ -= taken;
  return true;
}

inline CompletionQueue::Slot CompletionQueue::take() {
  const Slot slot{base_ + Bytes{std::uint64_t{tail_} * sizeof(CompletionEntry)}, phase_};
  ++used_;
  if (++tail_ == size_) {
    tail_ = 0;
    phase_ = !phase_;
  }
  return slot;
}

}  // namespace csdsim::nvme
