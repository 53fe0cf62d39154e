// Placement that follows the load of the channels.
#pragma once

#include "base/ratio.h"
#include "ftl/policies/head_stripe.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// As `instinfer`, but a page whose channel bears more than 1 + slack times the mean load goes to the channel that
/// bears least, to the same die and plane there. The load of a channel is its share of recent attention reads plus its
/// share of valid pages: new pages keep away both from where hot tokens are and from where much is kept.
///
/// Optimises: contexts of which some parts are attended more than others, and what frees and garbage collection leave
/// uneven. Costs: the pages of a head are no longer evenly striped while the balance is being restored; two more
/// counters per channel.
class ChannelBalancedPolicy final : public KvMappingPolicy {
 public:
  static constexpr std::string_view kName = "channel-balanced";
  static constexpr std::string_view kSummary =
      "As instinfer, but new pages avoid channels that are read, or filled, more than the mean.";
  /// How much more than the mean a channel may bear.
  static constexpr Ratio kSlack = Ratio::of(1, 8);

  /// Setting `slack`: 0 to 10.
  explicit ChannelBalancedPolicy(const PolicyContext& context);
  std::string_view name() const override { return kName; }
  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) override;

 private:
  FlashGeometry geometry_;
  double limit_;  ///< largest load, as a multiple of the mean
};

}  // namespace csdsim::ftl
