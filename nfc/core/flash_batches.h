// Batches of page operations in flight, and the completions known so far.
#pragma once

#include <cstdint>
#include <vector>

#include "base/nearly_sorted_queue.h"
#include "base/prefetch.h"
#include "base/units.h"
#include "contracts/page_op.h"

namespace csdsim::nfc {

/// Slots are reused: memory grows with the number of batches in flight, not with the number ever submitted.
class FlashBatches {
 public:
  struct Opened {
    std::uint32_t slot;
    FlashTicket ticket;
  };
  /// A batch of `ops` operations, whose completion will have stages if `staged`. Tickets count from 0. With `each`, the
  /// end of every operation is reported, and the batch completes with the last one.
  [[gnu::always_inline]] Opened open(std::size_t ops, bool staged = true, bool each = false) {
    if (free_.empty()) [[unlikely]]
      add_slot();
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    Batch& batch = batches_[slot];
    batch.done = SimTime{-1};
    batch.last = 0;
    batch.ticket = FlashTicket{next_ticket_++};
    batch.remaining = static_cast<std::uint32_t>(ops);
    batch.staged = staged;
    batch.each = each;
    if (staged && stages_.size() <= slot) stages_.resize(batches_.size());
    return {slot, batch.ticket};
  }

  /// Prefetches the memory that finishing an operation needs.
  void prefetch(std::uint32_t slot) const { prefetch_line(&batches_[slot]); }

  bool staged(std::uint32_t slot) const { return batches_[slot].staged; }
  FlashTicket ticket(std::uint32_t slot) const { return batches_[slot].ticket; }

  /// Operation `sequence` of the batch will be done at `done`. `stages` is called for them if it is the last so far.
  template <class Stages>
  void finish(std::uint32_t slot, SimTime done, std::uint64_t sequence, Stages&& stages) {
    Batch& batch = batches_[slot];
    if (done > batch.done || (done == batch.done && sequence >= batch.last)) {
      batch.done = done;
      batch.last = sequence;
      if (batch.staged) stages_[slot] = stages();
    }
    if (--batch.remaining > 0) {
      if (batch.each) parts_.insert({done, sequence, slot});
      return;
    }
    completions_.insert({batch.done, batch.ticket, slot});
    if (!batch.each || batch.last == sequence) return;
    // The operation that is decided last does not always end last.
    parts_.insert({done, sequence, slot});
    parts_.erase({batch.done, batch.last, slot});
  }

  /// Takes back the reported end of an operation that will be done later: it is reported once more.
  void reopen(std::uint32_t slot) {
    Batch& batch = batches_[slot];
    if (batch.remaining++ == 0) completions_.erase({batch.done, batch.ticket, slot});
  }

  /// Time of the earliest known completion that was not taken yet, SimTime::max() if there is none.
  SimTime next_completion() const { return completions_.front_time(); }

  /// Ticket of that completion. Precondition: there is one.
  FlashTicket next_ticket() const { return completions_.front().ticket; }

  /// When the first operation ends of those that are reported and do not complete their batch, SimTime::max() without
  /// one.
  SimTime next_part() const { return parts_.front_time(); }
  /// Calls `take(ticket, at)` for each of them that ends before `bound`, in their order, as long as it returns true.
  /// Returns the time of the first one that is left.
  template <class Take>
  SimTime take_parts(SimTime bound, Take&& take) {
    for (; parts_.front_time() < bound; parts_.pop()) {
      const Part& part = parts_.front();
      if (!take(batches_[part.slot].ticket, part.at)) break;
    }
    return parts_.front_time();
  }

  /// Appends the completions due at or before `now`, and the parts that end before them, ordered by time, then ticket.
  void take(SimTime now, std::vector<FlashCompletion>& out) {
    if (parts_.front_time() <= now) [[unlikely]]
      return take_with_parts(now, out);
    take_completions(now, out);
  }

 private:
  void take_completions(SimTime now, std::vector<FlashCompletion>& out) {
    while (!completions_.empty() && completions_.front().at <= now) take_completion(out);
  }
  [[gnu::noinline]] void take_with_parts(SimTime now, std::vector<FlashCompletion>& out) {
    for (; parts_.front_time() <= now; parts_.pop()) {
      const Part part = parts_.front();
      const FlashTicket ticket = batches_[part.slot].ticket;
      while (completions_.front_time() < part.at ||
             (completions_.front_time() == part.at && completions_.front().ticket < ticket))
        take_completion(out);
      FlashCompletion& part_end = out.emplace_back();
      part_end.ticket = ticket;
      part_end.at = part.at;
    }
    take_completions(now, out);
  }
  void take_completion(std::vector<FlashCompletion>& out) {
    const Completion& completion = completions_.front();
    FlashCompletion& taken = out.emplace_back();
    taken.ticket = completion.ticket;
    taken.at = completion.at;
    const Batch& batch = batches_[completion.slot];
    if (batch.staged) taken.stages = stages_[completion.slot];
    free_.push_back(completion.slot);
    completions_.pop();
  }

  [[gnu::noinline]] void add_slot() {
    free_.push_back(static_cast<std::uint32_t>(batches_.size()));
    batches_.emplace_back();
  }

  struct Batch {
    SimTime done;
    std::uint64_t last;  ///< sequence of the operation that finishes last
    FlashTicket ticket;
    std::uint32_t remaining;
    bool staged;
    bool each;
  };
  struct Completion {
    SimTime at;
    FlashTicket ticket;
    std::uint32_t slot;
    constexpr bool before(const Completion& o) const { return at != o.at ? at < o.at : ticket < o.ticket; }
  };

  /// The end of an operation that is reported and does not complete its batch, or is not known to.
  struct Part {
    SimTime at;
    std::uint64_t sequence;
    std::uint32_t slot;
    constexpr bool before(const Part& o) const { return at != o.at ? at < o.at : sequence < o.sequence; }
  };

  std::vector<Batch> batches_;
  std::vector<FlashStages> stages_;  ///< by slot, of batches that are `staged`; few are, and a batch stays small
  std::vector<std::uint32_t> free_;
  NearlySortedQueue<Completion> completions_;
  NearlySortedQueue<Part> parts_;
  std::uint64_t next_ticket_ = 0;
};

}  // namespace csdsim::nfc
