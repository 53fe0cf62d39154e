#include "ftl/core/stripe.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::ftl {

Stripe::Stripe(const FlashGeometry& geometry, const StripeOrder& order)
    : planes_(geometry.planes()), ranks_(geometry.planes()) {
  for (const StripeLevel level : {StripeLevel::channel, StripeLevel::die, StripeLevel::plane}) {
    if (std::find(order.begin(), order.end(), level) == order.end()) {
      throw UserError("stripe_order must name channel, die and plane once each");
    }
  }
  const std::array<std::uint32_t, 3> extent{geometry.channels, geometry.dies_per_channel, geometry.planes_per_die};
  for (std::uint32_t rank = 0; rank < geometry.planes(); ++rank) {
    std::array<std::uint32_t, 3> position{};
    std::uint32_t rest = rank;
    for (const StripeLevel level : order) {
      const auto l = static_cast<std::size_t>(level);
      position[l] = rest % extent[l];
      rest /= extent[l];
    }
    const PlaneId plane = geometry.plane(ChannelId{position[0]}, position[1], position[2]);
    planes_[rank] = plane;
    ranks_[plane.value] = rank;
  }
}

}  // namespace csdsim::ftl
