// One channel per head.
#pragma once

#include "ftl/policies/head_stripe.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// All pages of KV head h stand on channel h mod channels, one after another on its planes; layers and sequences start
/// a plane apart, V half the planes away from K.
///
/// Optimises: a head needs one channel and its flash controller alone, as one engine per channel would have it. Costs:
/// a head has the bandwidth of one channel; the load of channels is uneven if their number does not divide the number
/// of heads (40 heads on 16 channels: 3 against 2), and channels beyond the number of heads stay idle.
class HeadPerChannelPolicy final : public KvPlanePolicy {
 public:
  static constexpr std::string_view kName = "head-per-channel";
  static constexpr std::string_view kSummary = "All pages of a KV head on one channel: head mod channels.";

  explicit HeadPerChannelPolicy(const FlashGeometry& geometry) : geometry_(geometry) {}
  std::string_view name() const override { return kName; }
  PlaneId plane(const KvPageId& page, const KvSequenceInfo& sequence) override {
    const std::uint64_t start = std::uint64_t{page.key.sequence.value} + page.key.layer.value +
                                (page.kind == PageKind::token_v ? geometry_.planes_per_channel() / 2 : 0);
    return plane_of(geometry_, {page.key.head.value % geometry_.channels, start + position_of(page, sequence.layout)});
  }

 private:
  FlashGeometry geometry_;
};

}  // namespace csdsim::ftl
