#include "ftl/policies/channel_balanced.h"

#include "ftl/policies/settings.h"

namespace csdsim::ftl {

namespace {

/// Reads and pages that every channel has to begin with, so that the first few do not decide anything.
constexpr double kPrior = 256;

double slack(const PolicyContext& context) {
  SettingsReader settings(ChannelBalancedPolicy::kName, context);
  const auto slack = settings.value("slack", ChannelBalancedPolicy::kSlack, {Ratio{0, 1}, Ratio{10, 1}});
  settings.finish();
  return slack.value();
}

}  // namespace

ChannelBalancedPolicy::ChannelBalancedPolicy(const PolicyContext& context)
    : geometry_(context.geometry), limit_(1 + slack(context)) {}

PhysicalPageAddress ChannelBalancedPolicy::place(const KvPageId& page, const KvSequenceInfo& sequence,
                                                 PageAllocator& pages) {
  double all_reads = 0, all_valid = 0;
  for (std::uint32_t c = 0; c < geometry_.channels; ++c) {
    all_reads += kPrior + pages.read_load(ChannelId{c});
    all_valid += kPrior + static_cast<double>(pages.valid_pages(ChannelId{c}));
  }
  const auto load = [&](std::uint32_t c) {
    return (kPrior + pages.read_load(ChannelId{c})) / all_reads +
           (kPrior + static_cast<double>(pages.valid_pages(ChannelId{c}))) / all_valid;
  };
  StripeSlot slot = head_stripe(geometry_, page, sequence);
  const double mean = 2.0 / geometry_.channels;
  if (load(slot.channel) > limit_ * mean) {
    for (std::uint32_t c = 0; c < geometry_.channels; ++c) {
      if (load(c) < load(slot.channel)) slot.channel = c;
    }
  }
  return pages.take(plane_of(geometry_, slot));
}

}  // namespace csdsim::ftl
