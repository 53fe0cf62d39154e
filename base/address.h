// Strong identifiers and the geometry of the flash: nothing that addresses something is a bare integer.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

#include "base/units.h"

namespace csdsim {

/// An integer that only converts explicitly. `Tag` makes the types distinct.
template <class Tag, class Int = std::uint32_t>
struct StrongId {
  using value_type = Int;
  Int value = 0;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

using ChannelId = StrongId<struct ChannelTag>;    ///< channel of the drive
using DieId = StrongId<struct DieTag>;            ///< die, counted over the whole drive, channel-major
using PlaneId = StrongId<struct PlaneTag>;        ///< plane, counted over the whole drive, channel-major
using BlockId = StrongId<struct BlockTag>;        ///< erase block, counted over the whole drive, plane-major
using SequenceId = StrongId<struct SequenceTag>;  ///< a sequence (one prompt and what it generates)
using LayerId = StrongId<struct LayerTag>;        ///< decoder layer
using KvHead = StrongId<struct KvHeadTag>;        ///< key/value head within a layer
using TokenIndex = StrongId<struct TokenTag>;     ///< position of a token in its sequence, from 0

/// Flat index of a physical page: ((plane * blocks_per_plane) + block) * pages_per_block + page.
struct PhysicalPageAddress {
  std::uint64_t value = 0;
  static constexpr PhysicalPageAddress invalid() { return {~std::uint64_t{0}}; }
  constexpr bool valid() const { return value != ~std::uint64_t{0}; }
  constexpr auto operator<=>(const PhysicalPageAddress&) const = default;
};

/// Shape of the flash array. All counts are at least 1.
struct FlashGeometry {
  std::uint32_t channels = 8;
  std::uint32_t dies_per_channel = 8;
  std::uint32_t planes_per_die = 4;
  std::uint32_t blocks_per_plane = 4096;
  std::uint32_t pages_per_block = 256;
  Bytes page_size = Bytes::kib(4);

  constexpr std::uint32_t planes_per_channel() const { return dies_per_channel * planes_per_die; }
  constexpr std::uint32_t planes() const { return channels * planes_per_channel(); }
  constexpr std::uint32_t dies() const { return channels * dies_per_channel; }
  constexpr std::uint64_t pages_per_plane() const { return std::uint64_t{blocks_per_plane} * pages_per_block; }
  constexpr std::uint64_t blocks() const { return std::uint64_t{planes()} * blocks_per_plane; }
  constexpr std::uint64_t pages() const { return planes() * pages_per_plane(); }
  constexpr Bytes capacity() const { return page_size * pages(); }

  constexpr PhysicalPageAddress address(PlaneId plane, std::uint32_t block, std::uint32_t page) const {
    return {(std::uint64_t{plane.value} * blocks_per_plane + block) * pages_per_block + page};
  }
  constexpr PlaneId plane(ChannelId channel, std::uint32_t die, std::uint32_t plane_in_die) const {
    return PlaneId{(channel.value * dies_per_channel + die) * planes_per_die + plane_in_die};
  }
  constexpr PlaneId plane_of(PhysicalPageAddress a) const {
    return PlaneId{static_cast<std::uint32_t>(a.value / pages_per_plane())};
  }
  constexpr BlockId block_of(PhysicalPageAddress a) const {
    return BlockId{static_cast<std::uint32_t>(a.value / pages_per_block)};
  }
  constexpr std::uint32_t page_in_block(PhysicalPageAddress a) const {
    return static_cast<std::uint32_t>(a.value % pages_per_block);
  }
  constexpr ChannelId channel_of(PlaneId p) const { return ChannelId{p.value / planes_per_channel()}; }
  constexpr DieId die_of(PlaneId p) const { return DieId{p.value / planes_per_die}; }
  constexpr bool contains(PhysicalPageAddress a) const { return a.value < pages(); }
};

}  // namespace csdsim

template <class Tag, class Int>
struct std::hash<csdsim::StrongId<Tag, Int>> {
  std::size_t operator()(csdsim::StrongId<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value); }
};
