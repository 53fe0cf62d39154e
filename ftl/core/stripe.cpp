#include "ftl/core/stripe.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::ftl {
namespace {
constexpr std::size_t at(StripeLevel level) { return static_cast<std::size_t>(level); }
}  // namespace

Stripe::Stripe(const FlashGeometry& geometry, const StripeOrder& order) : geometry_(geometry), order_(order) {
  extent_ = {geometry.channels, geometry.dies_per_channel, geometry.planes_per_die};
  for (const StripeLevel level : {StripeLevel::channel, StripeLevel::die, StripeLevel::plane}) {
    if (std::find(order.begin(), order.end(), level) == order.end()) {
      throw UserError("stripe_order must name channel, die and plane once each");
    }
  }
}

PlaneId Stripe::plane_at(std::uint64_t rank) const {
  rank %= geometry_.planes();
  std::array<std::uint32_t, 3> position{};
  for (const StripeLevel level : order_) {
    position[at(level)] = static_cast<std::uint32_t>(rank % extent_[at(level)]);
    rank /= extent_[at(level)];
  }
  return geometry_.plane(ChannelId{position[0]}, position[1], position[2]);
}

std::uint32_t Stripe::rank_of(PlaneId plane) const {
  const std::uint32_t in_channel = plane.value % geometry_.planes_per_channel();
  const std::array<std::uint32_t, 3> position{geometry_.channel_of(plane).value, in_channel / geometry_.planes_per_die,
                                              in_channel % geometry_.planes_per_die};
  std::uint32_t rank = 0;
  std::uint32_t weight = 1;
  for (const StripeLevel level : order_) {
    rank += position[at(level)] * weight;
    weight *= extent_[at(level)];
  }
  return rank;
}

}  // namespace csdsim::ftl
