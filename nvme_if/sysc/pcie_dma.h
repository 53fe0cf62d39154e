// The drive's DMA engine: moves bytes between the drive and physical memory over the PCIe link.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <systemc>
#include <tlm>
#include <vector>

#include "nvme_if/core/memory_map.h"
#include "nvme_if/core/pcie_link.h"
#include "nvme_if/spec/status.h"

namespace csdsim::nvme {

/// Called when a transfer is over: success, or data_transfer_error when memory refused a part of it.
using DmaDone = std::function<void(Status)>;

/// Each direction serves its transfers in the order of submission. The link is reserved at submission; at the end of
/// each segment the engine does a b_transport on `memory`, and what that takes (waiting inside or an annotated delay)
/// delays the following segments of the same direction, while the link goes on. Callbacks run in an SC_METHOD: on the
/// main stack, without waiting.
class PcieDma : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<PcieDma> memory;

  /// With a memory map, segments outside of it fail without reaching `memory`, also in timing-only transfers, and
  /// traffic is counted by region.
  PcieDma(const sc_core::sc_module_name& name, const PcieLinkParams& link, MemoryMap* map = nullptr);

  /// Reads `length` bytes from `offset` of the buffer that `segments` describe. `into` holds `length` bytes and stays
  /// valid until `done`, as do the segments; null: timing only.
  void read(std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* into, DmaDone done);

  /// Writes likewise.
  void write(std::span<const Segment> segments, Bytes offset, Bytes length, const std::byte* from, DmaDone done);

  const PcieLink& link() const { return link_; }

 private:
  SC_HAS_PROCESS(PcieDma);

  struct Slice {
    SimTime end;
    std::uint64_t address;
    std::byte* local;  ///< null: nothing to move
    std::uint32_t length;
    bool last;
  };
  struct Transfer {
    DmaDone done;
    Status status;
  };
  struct Lane {
    std::deque<Slice> slices;
    std::deque<Transfer> transfers;
    sc_core::sc_event wake;
    bool idle = false;  ///< the thread waits for `wake`, and nobody has promised it
    tlm::tlm_generic_payload payload;
    sc_core::sc_time delay;
  };

  void submit(LinkDirection direction, std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* local,
              DmaDone&& done);
  std::optional<SimTime> reserve(LinkDirection direction, const Segment& part);
  void to_host_thread();
  void to_drive_thread();
  bool due(Lane& lane);
  void serve(Lane& lane, LinkDirection direction);
  bool transport(Lane& lane, LinkDirection direction, const Slice& slice);
  void deliver();
  Lane& lane(LinkDirection d) { return lanes_[static_cast<std::size_t>(d)]; }

  PcieLink link_;
  MemoryMap* map_;
  std::array<Lane, 2> lanes_;
  std::vector<Transfer> finished_;
  std::vector<Transfer> delivering_;
  sc_core::sc_event deliver_event_;
};

}  // namespace csdsim::nvme
