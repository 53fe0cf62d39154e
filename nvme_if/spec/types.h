// Strong types of the NVMe interface that the wire structs themselves cannot carry.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/units.h"

namespace csdsim::nvme {

using QueueId = StrongId<struct QueueTag, std::uint16_t>;          ///< 0 is the admin queue
using CommandId = StrongId<struct CommandTag, std::uint16_t>;      ///< unique among the outstanding commands of a queue
using NamespaceId = StrongId<struct NamespaceTag, std::uint32_t>;  ///< from 1
using Lba = StrongId<struct LbaTag, std::uint64_t>;                ///< logical block address
using InterruptVector = StrongId<struct VectorTag, std::uint16_t>;

/// An address in the platform's physical address map (host DRAM, GPU BAR, drive memory), as the drive's DMA sees it.
using PhysicalAddress = StrongId<struct PhysicalAddressTag, std::uint64_t>;

constexpr PhysicalAddress operator+(PhysicalAddress a, Bytes offset) { return PhysicalAddress{a.value + offset.value}; }

/// A run of contiguous physical memory.
struct Segment {
  PhysicalAddress address;
  Bytes length;
  constexpr auto operator<=>(const Segment&) const = default;
};

}  // namespace csdsim::nvme
