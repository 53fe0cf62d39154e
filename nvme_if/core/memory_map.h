// The platform's physical address map: it says which memory a DMA transfer of the drive reaches.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nvme_if/core/pcie_link.h"
#include "nvme_if/core/shared_link.h"
#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

enum class RegionKind : std::uint8_t { host_dram, gpu_memory, drive_memory };

struct MemoryRegion {
  std::string name;
  PhysicalAddress base;
  Bytes size;
  RegionKind kind = RegionKind::host_dram;

  constexpr bool contains(Segment s) const {
    // An address below the base is a huge offset.
    return s.length <= size && s.address.value - base.value <= size.value - s.length.value;
  }
};

using RegionId = StrongId<struct RegionTag>;

/// Payload that crossed the drive's link to and from one region.
struct RegionTraffic {
  std::uint64_t bytes_to_region = 0;    ///< written by the drive
  std::uint64_t bytes_from_region = 0;  ///< read by the drive
};

/// Disjoint regions of physical memory, in the order in which they were added.
class MemoryMap {
 public:
  /// UserError when the region is empty, wraps around, reuses a name or overlaps another one.
  RegionId add(MemoryRegion region);

  /// The region that holds all of `s`, if one does: a DMA may not cross regions.
  std::optional<RegionId> find(Segment s) const {
    for (std::size_t i = 0; i < regions_.size(); ++i)
      if (regions_[i].contains(s)) return RegionId{static_cast<std::uint32_t>(i)};
    return std::nullopt;
  }

  const MemoryRegion& region(RegionId id) const { return regions_.at(id.value); }
  const std::vector<MemoryRegion>& regions() const { return regions_; }

  /// The shared links that transfers to or from a region pass. Set all routes before a DMA engine gets the map; the
  /// links must outlive it.
  void set_route(RegionId id, LinkDirection direction, Route route);
  /// Whether transfers of any region pass a shared link.
  bool routed() const { return routed_; }
  /// Null if no region holds all of `s`, or its transfers pass no shared link.
  const Route* route(Segment s, LinkDirection direction) const;

  /// Counts the payload of a DMA; false, and nothing is counted, where no region holds all of `s`.
  bool record(Segment s, LinkDirection direction);
  const RegionTraffic& traffic(RegionId id) const { return counts_.at(id.value).traffic; }
  /// Sum over the regions of a kind: gpu_memory and drive_memory are peer to peer, host_dram goes through the host.
  RegionTraffic traffic(RegionKind kind) const;

 private:
  /// The part of each region that count() needs.
  struct Count {
    std::uint64_t base;
    std::uint64_t size;
    RegionTraffic traffic;
  };
  std::vector<MemoryRegion> regions_;
  std::vector<Count> counts_;
  std::vector<std::array<Route, 2>> routes_;  ///< [region][LinkDirection]
  bool routed_ = false;
};

inline bool MemoryMap::record(Segment s, LinkDirection direction) {
  for (Count& c : counts_) {
    // An address below the base is a huge offset.
    if (s.length.value > c.size || s.address.value - c.base > c.size - s.length.value) continue;
    (direction == LinkDirection::to_host ? c.traffic.bytes_to_region : c.traffic.bytes_from_region) += s.length.value;
    return true;
  }
  return false;
}

}  // namespace csdsim::nvme
