// Token groups over the channels in order, the same for all heads.
#pragma once

#include "ftl/policies/head_stripe.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// The plainest striping: the page at position i of a head stands on channel i mod channels and in row i / channels,
/// whatever head, layer and sequence it belongs to. K and V of a group are on the same channel, half the planes apart.
///
/// Optimises: a context is spread evenly over channels, and the address follows from the position alone. Costs: pages
/// that many heads write or read at the same time are on one channel: a flush of group gt of all heads uses a single
/// channel, and so does the group of a token that all heads attend to.
class TokenStripedPolicy final : public KvPlanePolicy {
 public:
  static constexpr std::string_view kName = "token-striped";
  static constexpr std::string_view kSummary =
      "Consecutive token groups on consecutive channels, all heads alike, K and V of a group on the same one.";

  explicit TokenStripedPolicy(const FlashGeometry& geometry) : geometry_(geometry) {}
  std::string_view name() const override { return kName; }
  PlaneId plane(const KvPageId& page, const KvSequenceInfo& sequence) override {
    const std::uint64_t position = position_of(page, sequence.layout);
    const std::uint64_t start = page.kind == PageKind::token_v ? geometry_.planes_per_channel() / 2 : 0;
    return plane_of(geometry_,
                    {static_cast<std::uint32_t>(position % geometry_.channels), start + position / geometry_.channels});
  }

 private:
  FlashGeometry geometry_;
};

}  // namespace csdsim::ftl
