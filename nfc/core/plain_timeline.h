// The timeline of a flash without extras: independent planes with one register each. The fast path.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/nearly_sorted_queue.h"
#include "nfc/core/timeline_base.h"

namespace csdsim::nfc {

/// Planes are independent: each has its page register and one outstanding operation; further operations queue per plane
/// in the order of submission. An operation at the head of a free plane asks for the bus of its channel:
///
///   read     bus: command_time; array: tR; bus: data_out_setup + bytes/bandwidth, then the plane is free; done
///            ecc_latency later. A retry keeps the plane: it asks for the bus again when the attempt is decoded
///   program  bus: command_time + bytes/bandwidth; array: tPROG, then the plane is free and the operation done
///   erase    bus: command_time; array: tBERS, then the plane is free and the operation done
///
/// The bus is granted at max(when it is free, the earliest ask), among all that have asked by then, by BusArbitration.
/// Where page buffers are limited, a data-out also waits for a buffer (GeneralTimeline). So the only steps are bus
/// decisions.
class PlainTimeline : public TimelineBase {
 public:
  /// True if these rules cover everything that `timing` asks for.
  static bool covers(const FlashTiming& timing);

  PlainTimeline(const FlashGeometry& geometry, const FlashTiming& timing);

  FlashTicket submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged, bool each);
  void release(FlashTicket ticket, SimTime at);
  SimTime run(SimTime horizon);

 private:
  struct Op {
    SimTime at;
    std::uint64_t sequence;
    std::uint32_t batch;
    std::uint32_t next;  ///< in the queue of the plane, or in the free list
    std::uint32_t bytes;
    PageOpKind kind;
    OpClass op_class;
    std::uint8_t retries;  ///< left
    std::uint8_t attempt;
  };
  struct Plane {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    std::uint32_t channel = 0;
    SimTime free_at;  ///< when the last decided operation (or attempt) leaves the plane; also while it looks idle
    SimTime granted;  ///< command of the operation (or attempt) in the plane
  };
  /// A plane's request for the bus of its channel.
  struct Ask {
    SimTime at;  ///< may lie in the future
    std::uint64_t sequence;
    std::uint32_t plane;
    std::uint32_t batch;
    constexpr bool before(const Ask& o) const { return at != o.at ? at < o.at : sequence < o.sequence; }
  };
  struct Channel {
    SimTime bus_free;
    NearlySortedQueue<Ask> commands;
    NearlySortedQueue<Ask> data_outs;
  };

  void enqueue(const PageOp& op, SimTime at, std::uint32_t batch);
  void start(std::uint32_t plane_index);
  void ask_for_command(const Plane& plane, std::uint32_t plane_index);
  bool serves_command(const Channel& channel, SimTime now) const;
  /// `kWatched`: buffers are limited, or somebody observes. Decisions of other flashes do not ask.
  template <bool kWatched>
  SimTime next_decision(std::uint32_t index, const Channel& channel) const;
  SimTime next_decision(std::uint32_t index) const;
  template <bool kWatched>
  SimTime advance(std::size_t index, SimTime bound);
  template <bool kWatched>
  SimTime run_channels(SimTime horizon);
  template <bool kWatched>
  void grant_command(Channel& channel, ChannelBusy& busy, SimTime now);
  void grant_change(const Ask& ask, Channel& channel, ChannelBusy& busy, SimTime now);
  template <bool kWatched>
  void grant_data_out(Channel& channel, ChannelBusy& busy, SimTime now);
  /// The attempt whose data-out is granted at `now` fails: the head of the plane asks again at `decoded`.
  void retry(std::uint32_t plane_index, const Ask& ask, SimTime now, SimTime transferred, SimTime decoded);
  /// The head of the plane leaves it at `free_at` and is done at `done`; the next one asks.
  template <class Stages>
  void finish_head(std::uint32_t plane_index, SimTime free_at, SimTime done, Stages&& stages);

  std::vector<Plane> planes_;
  std::vector<Channel> channels_;
  std::vector<Op> ops_;
  std::uint32_t free_op_ = kNone;
  std::vector<FlashStages> failed_;  ///< stages of the failed attempts of each plane's head; empty until one fails
};

}  // namespace csdsim::nfc
