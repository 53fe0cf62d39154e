// The flash of one drive as a timeline: exact times of page operations over channels, dies and planes, without events.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/page_op.h"
#include "base/units.h"
#include "nfc/core/arg_min.h"
#include "nfc/core/fixed_divisor.h"
#include "nfc/core/flash_statistics.h"
#include "nfc/core/flash_timing.h"
#include "nfc/core/nearly_sorted_queue.h"

namespace csdsim::nfc {

/// Which operations a drive accepts: a page inside the geometry, and for read and program 1 .. page_size bytes on the
/// channel (a page of which nothing is wanted is not read at all). Bytes of an erase are ignored.
constexpr bool accepts(const FlashGeometry& geometry, const PageOp& op) {
  return geometry.contains(op.ppa) &&
         (op.kind == PageOpKind::erase || (op.channel_bytes >= 1 && op.channel_bytes <= geometry.page_size.value));
}

/// Timing of page operations. Planes are independent: each has its page register and one outstanding operation; further
/// operations queue per plane in the order of submission. An operation at the head of a free plane asks for the bus of
/// its channel:
///
///   read     bus: command_time; array: tR; bus: data_out_setup + bytes/bandwidth, then the plane is free; done
///            ecc_latency later
///   program  bus: command_time + bytes/bandwidth; array: tPROG, then the plane is free and the operation done
///   erase    bus: command_time; array: tBERS, then the plane is free and the operation done
///
/// The bus is granted at max(when it is free, the earliest ask), among all that have asked by then, by BusArbitration.
///
/// The core never waits: `run` makes bus decisions in time order up to a horizon before which nobody submits anything,
/// and stops at the first completion, because a completion may make its owner submit more. Within that contract results
/// are exact, and independent of how the calls are sliced.
class FlashTimeline {
 public:
  /// Throws UserError on a geometry or timing that `validate` refuses.
  FlashTimeline(const FlashGeometry& geometry, const FlashTiming& timing);

  /// Submits a batch that completes as one, when its last operation is done. Its operations ask for their buses at `at`
  /// at the earliest, or at front() if that is later. Throws InternalError, and submits nothing, if the batch is empty
  /// or holds an operation that is not accepted.
  FlashTicket submit(std::span<const PageOp> ops, SimTime at);

  /// Makes all bus decisions at times < min(horizon, earliest completion that was not taken yet). Returns that
  /// completion's time, SimTime::max() if none is known.
  SimTime run(SimTime horizon);

  /// Appends the completions due at or before `now`, ordered by time, then ticket.
  void take_completions(SimTime now, std::vector<FlashCompletion>& out);

  /// Earliest completion that is known and not taken, SimTime::max() if there is none.
  SimTime next_completion() const { return front_time(completions_); }
  /// Time of the next bus decision if nothing is submitted before, SimTime::max() if nobody waits.
  SimTime next_decision() const { return decisions_.min(); }
  SimTime next_event() const { return std::min(next_completion(), next_decision()); }
  /// Time of the last decision made.
  SimTime front() const { return front_; }
  /// A decision at t causes no completion before t + lookahead(); at least 1 ps.
  SimTime lookahead() const { return lookahead_; }
  /// Operations submitted and not yet decided to their end.
  std::uint64_t waiting_ops() const { return next_sequence_ - statistics_.total_ops(); }

  const FlashGeometry& geometry() const { return geometry_; }
  const FlashTiming& timing() const { return timing_; }
  const FlashStatistics& statistics() const { return statistics_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Op {
    SimTime at;
    std::uint64_t sequence;
    std::uint32_t batch;
    std::uint32_t next;  ///< in the queue of the plane, or in the free list
    std::uint32_t bytes;
    PageOpKind kind;
    OpClass op_class;
  };
  struct Plane {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    std::uint32_t channel = 0;
    SimTime free_at;  ///< when the last decided operation leaves the plane; also while the plane looks idle
    SimTime granted;  ///< command of the operation in the plane
  };
  /// A plane's wish for the bus of its channel.
  struct Ask {
    SimTime at;  ///< may lie in the future
    std::uint64_t sequence;
    std::uint32_t plane;
    constexpr bool before(const Ask& o) const { return at != o.at ? at < o.at : sequence < o.sequence; }
  };
  struct Channel {
    SimTime bus_free;
    NearlySortedQueue<Ask> commands;
    NearlySortedQueue<Ask> data_outs;
  };
  struct Completion {
    SimTime at;
    FlashTicket ticket;
    constexpr bool before(const Completion& o) const { return at != o.at ? at < o.at : ticket < o.ticket; }
  };
  struct Batch {
    SimTime done;
    FlashTicket ticket;
    std::uint32_t remaining;
  };

  template <class T>
  static SimTime front_time(const NearlySortedQueue<T>& queue) {
    return queue.empty() ? SimTime::max() : queue.front().at;
  }

  void enqueue(const PageOp& op, SimTime at, std::uint32_t batch);
  void ask_for_command(const Plane& plane, std::uint32_t plane_index);
  bool serves_command(const Channel& channel, SimTime now) const;
  SimTime next_decision(const Channel& channel) const;
  void decide(std::size_t channel_index, SimTime now);
  void grant_command(Channel& channel, ChannelBusy& busy, SimTime now);
  void grant_data_out(Channel& channel, ChannelBusy& busy, SimTime now);
  /// The head of the plane leaves it at `free_at` and is done at `done`; the next one asks.
  void finish_head(std::uint32_t plane_index, SimTime free_at, SimTime done);
  void finish_op(std::uint32_t batch, SimTime done);
  SimTime bus_time(std::uint32_t bytes) const;

  FlashGeometry geometry_;
  FlashTiming timing_;
  FixedDivisor pages_per_plane_;
  SimTime page_bus_time_;
  SimTime lookahead_;
  std::vector<Plane> planes_;
  std::vector<Channel> channels_;
  TwoLevelArgMin decisions_;  ///< next decision of each channel
  std::vector<Op> ops_;
  std::uint32_t free_op_ = kNone;
  std::vector<Batch> batches_;
  std::vector<std::uint32_t> free_batches_;
  NearlySortedQueue<Completion> completions_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t next_ticket_ = 0;
  SimTime front_;
  FlashStatistics statistics_;
};

}  // namespace csdsim::nfc
