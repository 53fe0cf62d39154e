#include "nvme_if/core/memory_map.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace csdsim::nvme {

RegionId MemoryMap::add(MemoryRegion region) {
  const std::uint64_t base = region.base.value;
  const std::uint64_t size = region.size.value;
  if (size == 0) throw UserError(fmt::format("memory region '{}' is empty", region.name));
  if (base + (size - 1) < base)
    throw UserError(fmt::format("memory region '{}' at {:#x} of {} bytes leaves the 64-bit address space", region.name,
                                base, size));
  for (const MemoryRegion& other : regions_) {
    if (other.name == region.name) throw UserError(fmt::format("memory region '{}' is there twice", region.name));
    const bool before = base + (size - 1) < other.base.value;
    const bool after = base > other.base.value + (other.size.value - 1);
    if (!before && !after)
      throw UserError(fmt::format("memory region '{}' ({:#x}, {} bytes) overlaps '{}' ({:#x}, {} bytes)", region.name,
                                  base, size, other.name, other.base.value, other.size.value));
  }
  regions_.push_back(std::move(region));
  counts_.push_back({base, size, {}});
  routes_.emplace_back();
  return RegionId{static_cast<std::uint32_t>(regions_.size() - 1)};
}

void MemoryMap::set_route(RegionId id, LinkDirection direction, Route route) {
  routed_ = routed_ || !route.empty();
  routes_.at(id.value)[static_cast<std::size_t>(direction)] = std::move(route);
}

const Route* MemoryMap::route(Segment s, LinkDirection direction) const {
  const std::optional<RegionId> region = find(s);
  if (!region) return nullptr;
  const Route& route = routes_[region->value][static_cast<std::size_t>(direction)];
  return route.empty() ? nullptr : &route;
}

RegionTraffic MemoryMap::traffic(RegionKind kind) const {
  RegionTraffic sum;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    if (regions_[i].kind != kind) continue;
    sum.bytes_to_region += counts_[i].traffic.bytes_to_region;
    sum.bytes_from_region += counts_[i].traffic.bytes_from_region;
  }
  return sum;
}

}  // namespace csdsim::nvme
