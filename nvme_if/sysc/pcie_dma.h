// The drive's DMA engine: moves bytes between the drive and physical memory over the PCIe link.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <systemc>
#include <tlm>
#include <vector>

#include "base/callback.h"
#include "base/ring_queue.h"
#include "nvme_if/core/memory_map.h"
#include "nvme_if/core/pcie_link.h"
#include "nvme_if/spec/status.h"
#include "simulation/event_loop.h"

namespace csdsim::nvme {

/// A user of the DMA engine.
class DmaClient {
 public:
  /// Called when the transfer with `token` is over: success, or data_transfer_error if memory refused a part of it.
  virtual void dma_done(std::uint64_t token, Status status) = 0;

 protected:
  ~DmaClient() = default;
};

/// Each direction serves its transfers in the order of submission. The link is reserved at submission; at the end of
/// each segment the engine moves its bytes: directly where the target of `memory` grants DMI without a latency, with a
/// b_transport otherwise. Time that b_transport takes (by waiting or by an annotated delay) delays the following
/// segments of the same direction, but not the link. Callbacks run in an SC_METHOD: on the main stack, without waiting.
///
/// Where the memory map has routes over shared links, transfers go in pieces (kSharedPiece). A piece that the drive's
/// own link has carried passes the shared links of its route, and the next one follows when it has passed them all.
///
/// The engine acts in the event loop (simulation/event_loop.h) and holds the loop once it meets a memory without DMI.
class PcieDma : public sc_core::sc_module {
 public:
  using Done = Callback<void(Status)>;

  tlm_utils::simple_initiator_socket<PcieDma> memory;

  /// With a memory map, segments outside of it fail without reaching `memory`, also in timing-only transfers, and
  /// traffic is counted by region.
  PcieDma(const sc_core::sc_module_name& name, const LinkConfig& link, MemoryMap* map = nullptr);

  /// Reads `length` bytes from `offset` of the buffer that `segments` describe. `into` holds `length` bytes and stays
  /// valid until the transfer is over; null: timing only.
  void read(std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* into, DmaClient& client,
            std::uint64_t token) {
    submit(to_drive_, segments, offset, length, into, client, token);
  }
  void read(std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* into, Done done) {
    submit(to_drive_, segments, offset, length, into, callbacks_, callbacks_.keep(std::move(done)));
  }

  /// Writes likewise. (The payload of a TLM write takes a pointer to mutable data, which the target only reads.)
  void write(std::span<const Segment> segments, Bytes offset, Bytes length, const std::byte* from, DmaClient& client,
             std::uint64_t token) {
    submit(to_host_, segments, offset, length, const_cast<std::byte*>(from), client, token);
  }
  void write(std::span<const Segment> segments, Bytes offset, Bytes length, const std::byte* from, Done done) {
    submit(to_host_, segments, offset, length, const_cast<std::byte*>(from), callbacks_,
           callbacks_.keep(std::move(done)));
  }

  /// The same for one piece of memory, as nearly all transfers are.
  [[gnu::always_inline]] void read(const Segment& piece, std::byte* into, DmaClient& client, std::uint64_t token) {
    transfer<LinkDirection::to_drive>(piece, into, client, token);
  }
  [[gnu::always_inline]] void write(const Segment& piece, const std::byte* from, DmaClient& client,
                                    std::uint64_t token) {
    transfer<LinkDirection::to_host>(piece, const_cast<std::byte*>(from), client, token);
  }

  /// Writes one piece of at least 1 byte at `at` in timing only and calls no client; later transfers of this direction
  /// follow it. `at` may be ahead of the current time, if nothing else is asked of the engine before. Returns false and
  /// does nothing if the map has no such memory, or routes over shared links.
  [[gnu::always_inline]] bool write_ahead(const Segment& piece, SimTime at) {
    if (routed_ || (map_ != nullptr && !map_->record(piece, LinkDirection::to_host))) return false;
    link_.reserve(LinkDirection::to_host, piece.length, at);
    return true;
  }

  /// Runs `submit`, which submits reads, as the last statement of an action: the data may arrive, and clients may be
  /// called, before this returns.
  template <class Submit>
  void read_last(Submit&& submit) {
    Lane& l = to_drive_;
    if (l.held || !l.slices.empty()) return submit();
    l.held = true;
    submit();
    l.held = false;
    if (!l.slices.empty()) l.due.continue_at(l.slices.front().end);
  }

  /// The power fails: nothing is moved, and no client is called any more.
  void forget();

  const PcieLink& link() const { return link_; }
  /// See PcieLink::observe().
  void observe_link(WorkObserver* observer) { link_.observe(observer); }

 private:
  SC_HAS_PROCESS(PcieDma);

  /// One segment of a transfer, or the end of a transfer that moves no (more) bytes.
  struct Slice {
    SimTime end;
    std::uint64_t address = 0;
    std::byte* local = nullptr;  ///< null: nothing to move
    std::uint32_t length = 0;
    bool last = false;
    bool failed = false;           ///< memory refused the segment
    SimTime wire;                  ///< with routes: time on the drive's own link
    const Route* route = nullptr;  ///< with routes: shared links to pass; null if there are none
    DmaClient* client = nullptr;   ///< set in the last segment: the client to call
    std::uint64_t token = 0;
  };
  /// The client of transfers that have a callback.
  class Callbacks final : public DmaClient {
   public:
    std::uint64_t keep(Done&& done);
    void dma_done(std::uint64_t token, Status status) override;

   private:
    std::vector<Done> done_;  ///< by token
    std::vector<std::uint64_t> free_;
  };
  /// The client of transfers that nobody waits for.
  struct Nobody final : DmaClient {
    void dma_done(std::uint64_t /*token*/, Status /*status*/) override {}
  };
  struct Lane {
    explicit Lane(LinkDirection d, PcieDma& dma)
        : direction(d), due(AlarmRank::transfer, [this, &dma] { dma.serve(*this); }) {}
    LinkDirection direction;
    RingQueue<Slice> slices;
    Alarm due;              ///< the end of the front slice
    bool failed = false;    ///< whether a segment of the transfer at the front failed
    std::size_t stage = 0;  ///< shared links that the front slice has been offered to
    SimTime offered;        ///< when the slice at the front, or the last one, had crossed the drive's own link
    bool held =
        false;  ///< the holder of the lane sets the alarm: its thread, which has the front slice, or read_last()
    sc_core::sc_event handed_over;
    tlm::tlm_generic_payload payload;
    sc_core::sc_time delay;
  };
  /// What memory answered to a DMI request for a range of addresses.
  struct DirectRange {
    std::uint64_t first;
    std::uint64_t last;
    std::byte* at;  ///< host address of `first`; null: no direct access
    bool contains(std::uint64_t address, std::uint64_t length) const {
      const std::uint64_t offset = address - first, largest = last - first;
      return offset <= largest && length - 1 <= largest - offset;
    }
  };

  template <LinkDirection direction>
  [[gnu::always_inline]] inline void transfer(const Segment& piece, std::byte* local, DmaClient& client,
                                              std::uint64_t token);
  void submit(Lane& lane, std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* local,
              DmaClient& client, std::uint64_t token);
  void submit_pieces(Lane& lane, std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* local,
                     Slice& last);
  void submit_routed(Lane& lane, std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* local,
                     Slice& last);
  LinkSlot reserve(LinkDirection direction, Bytes length);
  void serve(Lane& lane);
  bool pass_shared(Lane& lane);
  void drop_front(Lane& lane);
  void hand_over(Lane& lane);
  void forget(Lane& lane);
  bool move_directly(LinkDirection direction, const Slice& slice);
  bool find_direct_range(const Slice& slice);
  void ask_for_direct_range(std::uint64_t address);
  void invalidate(sc_dt::uint64 first, sc_dt::uint64 last);
  void to_host_thread();
  void to_drive_thread();
  void transport(Lane& lane);

  PcieLink link_;
  MemoryMap* map_;
  bool routed_;           ///< the map has routes over shared links
  Bytes largest_direct_;  ///< transfers of one piece up to this size take the short way
  Callbacks callbacks_;
  Nobody nobody_;
  Lane to_host_{LinkDirection::to_host, *this};
  Lane to_drive_{LinkDirection::to_drive, *this};
  std::vector<DirectRange> direct_;
  DirectRange last_range_{0, 0, nullptr};  ///< the range used last; queue entries usually lie in one range
  LoopHold hold_;
};

[[gnu::always_inline]] inline LinkSlot PcieDma::reserve(LinkDirection direction, Bytes length) {
  return direction == LinkDirection::to_host ? link_.reserve(direction, length, sim_time_now())
                                             : link_.reserve_read(length, sim_time_now());
}

/// Inline in the few callers: most transfers are of one piece.
template <LinkDirection direction>
[[gnu::always_inline]] inline void PcieDma::transfer(const Segment& piece, std::byte* local, DmaClient& client,
                                                     std::uint64_t token) {
  Lane& l = direction == LinkDirection::to_host ? to_host_ : to_drive_;
  const bool one_slice = piece.length.value - 1 < largest_direct_.value;
  if (!one_slice || (map_ != nullptr && !map_->record(piece, direction))) [[unlikely]]
    return submit(l, {&piece, 1}, Bytes{0}, piece.length, local, client, token);
  const bool wakes = l.slices.empty() && !l.held;
  Slice& slice = l.slices.extend();
  slice.address = piece.address.value;
  slice.local = local;
  slice.length = static_cast<std::uint32_t>(piece.length.value);
  slice.last = true;
  slice.failed = false;
  slice.client = &client;
  slice.token = token;
  slice.end = reserve(direction, piece.length).arrival;
  // Otherwise the alarm is set for the front slice already, or the holder of the lane will set it.
  if (wakes) l.due.set(slice.end);
}

}  // namespace csdsim::nvme
