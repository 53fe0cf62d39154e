// The flash of one drive as a timeline: exact times of page operations over channels, dies and planes, without events.
// The times are computed in plain_timeline.cpp and general_timeline.cpp; this class chooses between the two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "nfc/core/flash_statistics.h"
#include "nfc/core/flash_timing.h"
#include "nfc/core/general_timeline.h"
#include "nfc/core/plain_timeline.h"

namespace csdsim::nfc {

/// Timing of page operations, by the rules of PlainTimeline where they cover the parameters, else of GeneralTimeline
/// (which has the same results where both apply).
///
/// The core never waits: `run` makes bus decisions in time order up to a horizon before which nobody submits anything,
/// and stops at the first completion, because a completion may make its owner submit more. Within that contract results
/// are exact, and independent of how the calls are sliced.
class FlashTimeline {
 public:
  enum class Rules : std::uint8_t { automatic, general };

  /// Throws UserError on a geometry or timing that `validate` refuses.
  FlashTimeline(const FlashGeometry& geometry, const FlashTiming& timing, Rules rules = Rules::automatic);
  FlashTimeline(const FlashTimeline&) = delete;
  FlashTimeline& operator=(const FlashTimeline&) = delete;

  /// Submits a batch that completes as one, when its last operation is done. Its operations ask for their buses at `at`
  /// at the earliest, or at front() if that is later. Throws InternalError, and submits nothing, if the batch is empty
  /// or holds an operation that is not accepted.
  /// With `hold`, the pages read keep their buffers until the batch is released. Without `staged`, the stages of its
  /// completion are 0: for callers that do not look at them.
  /// With `each`, the end of each operation is reported: of those that do not complete the batch as a part.
  FlashTicket submit(std::span<const PageOp> ops, SimTime at, bool hold = false, bool staged = true,
                     bool each = false) {
    if (auto* const plain = std::get_if<PlainTimeline>(&timeline_)) [[likely]]
      return plain->submit(ops, at, hold, staged, each);
    return std::get<GeneralTimeline>(timeline_).submit(ops, at, hold, staged, each);
  }

  /// Gives back, at `at` or front(), the buffers of a batch that was submitted with `hold` and whose completion has
  /// been taken. Throws InternalError for any other where buffers are limited.
  void release(FlashTicket ticket, SimTime at) {
    std::visit([&](auto& timeline) { timeline.release(ticket, at); }, timeline_);
  }

  /// Makes all bus decisions at times < min(horizon, earliest completion that was not taken yet). Returns the time of
  /// that completion, SimTime::max() if none is known. A decision may delay a completion that was known.
  SimTime run(SimTime horizon) {
    return std::visit([&](auto& timeline) { return timeline.run(horizon); }, timeline_);
  }

  /// Time of the earliest known part that was not taken yet, SimTime::max() if there is none. run() does not stop
  /// there: the owner of a batch submits nothing because of a part.
  SimTime next_part() const { return base_->next_part(); }
  /// Calls `take(ticket, at)` for the parts before `bound`, in their order, as long as it returns true. Returns the
  /// time of the first one that is left. Precondition: the decisions before `bound` have been made.
  template <class Take>
  SimTime take_parts(SimTime bound, Take&& take) {
    return base_->take_parts(bound, std::forward<Take>(take));
  }

  /// Appends the completions and parts due at or before `now`, ordered by time, then ticket.
  void take_completions(SimTime now, std::vector<FlashCompletion>& out) { base_->take_completions(now, out); }

  /// Time of the earliest known completion that was not taken yet, SimTime::max() if there is none.
  SimTime next_completion() const { return base_->next_completion(); }
  /// Ticket of that completion. Precondition: there is one.
  FlashTicket next_ticket() const { return base_->next_ticket(); }
  /// Earliest time of the next bus decision if nothing is submitted before; SimTime::max() if no operation waits.
  SimTime next_decision() const { return base_->next_step(); }
  SimTime next_event() const { return std::min(next_completion(), next_decision()); }
  /// True if decisions may be made late, just before they have an effect, as long as nothing is submitted. True for
  /// PlainTimeline, and for GeneralTimeline while it only reads.
  bool decides_late() const {
    const auto* const general = std::get_if<GeneralTimeline>(&timeline_);
    return general == nullptr || general->decides_late();
  }
  /// All decisions before this time have been made.
  SimTime front() const { return base_->front(); }
  /// A decision at t causes no completion before t + lookahead(); at least 1 ps.
  SimTime lookahead() const { return base_->lookahead(); }
  /// Operations whose last decision has not been made yet.
  std::uint64_t waiting_ops() const { return base_->waiting_ops(); }

  const FlashGeometry& geometry() const { return base_->geometry(); }
  const FlashTiming& timing() const { return base_->timing(); }
  const FlashStatistics& statistics() const { return base_->statistics(); }
  /// The observers must outlive the timeline. They may be told of work that starts later than now.
  void observe(const FlashObservers& observers) { base_->observe(observers); }
  /// It must outlive the timeline.
  void observe_changes(ChangeObserver& observer) { base_->observe_changes(&observer); }

  /// The power fails at `now`: all operations are given up, and no batch completes any more. Tickets count from 0
  /// again. Operations that had been granted stay counted in the statistics.
  void forget(SimTime now);

 private:
  using Timeline = std::variant<PlainTimeline, GeneralTimeline>;

  Timeline timeline_;
  /// `timeline_`, for what does not depend on the rules.
  TimelineBase* base_;
};

}  // namespace csdsim::nfc
