// The order in which consecutive pages of the block namespace visit the planes of the drive. KV pages are placed by
// ftl/policies/head_stripe.h instead (only policy page_l2p uses this order).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/address.h"

namespace csdsim::ftl {

enum class StripeLevel : std::uint8_t { channel, die, plane };

/// A permutation of the three levels; the first changes fastest. {channel, die, plane} puts neighbours on different
/// channels, then on different dies of a channel, then on the planes of a die.
using StripeOrder = std::array<StripeLevel, 3>;
inline constexpr StripeOrder kChannelDiePlane{StripeLevel::channel, StripeLevel::die, StripeLevel::plane};

/// Enumerates the planes of a drive in stripe order: a bijection between ranks 0..planes-1 and planes.
class Stripe {
 public:
  /// Throws UserError if `order` is not a permutation.
  Stripe(const FlashGeometry& geometry, const StripeOrder& order);

  PlaneId plane_at(std::uint64_t rank) const { return planes_[rank % planes_.size()]; }  ///< modulo the planes
  PlaneId plane_of_rank(std::uint32_t rank) const { return planes_[rank]; }              ///< rank below the planes
  std::uint32_t rank_of(PlaneId plane) const { return ranks_[plane.value]; }

 private:
  std::vector<PlaneId> planes_;       ///< by rank
  std::vector<std::uint32_t> ranks_;  ///< by plane
};

}  // namespace csdsim::ftl
