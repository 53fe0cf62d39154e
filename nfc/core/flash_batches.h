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
  /// A batch of `ops` operations, whose completion will have stages if `staged`. Tickets count from 0.
  [[gnu::always_inline]] Opened open(std::size_t ops, bool staged = true) {
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
    if (staged && stages_.size() <= slot) stages_.resize(batches_.size());
    return {slot, batch.ticket};
  }

  /// Prefetches the memory that finishing an operation needs.
  void prefetch(std::uint32_t slot) const { prefetch_line(&batches_[slot]); }

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
    if (--batch.remaining == 0) completions_.insert({batch.done, batch.ticket, slot});
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

  /// Appends the completions due at or before `now`, ordered by time, then ticket.
  void take(SimTime now, std::vector<FlashCompletion>& out) {
    while (!completions_.empty() && completions_.front().at <= now) {
      const Completion& completion = completions_.front();
      FlashCompletion& taken = out.emplace_back();
      taken.ticket = completion.ticket;
      taken.at = completion.at;
      const Batch& batch = batches_[completion.slot];
      if (batch.staged) taken.stages = stages_[completion.slot];
      free_.push_back(completion.slot);
      completions_.pop();
    }
  }

 private:
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
  };
  struct Completion {
    SimTime at;
    FlashTicket ticket;
    std::uint32_t slot;
    constexpr bool before(const Completion& o) const { return at != o.at ? at < o.at : ticket < o.ticket; }
  };

  std::vector<Batch> batches_;
  std::vector<FlashStages> stages_;  ///< by slot, of batches that are `staged`; few are, and a batch stays small
  std::vector<std::uint32_t> free_;
  NearlySortedQueue<Completion> completions_;
  std::uint64_t next_ticket_ = 0;
};

}  // namespace csdsim::nfc
