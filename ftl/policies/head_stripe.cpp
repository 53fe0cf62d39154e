#include "ftl/policies/head_stripe.h"

#include <algorithm>

namespace csdsim::ftl {

PlaneId plane_of(const FlashGeometry& geometry, const StripeSlot& slot) {
  const auto die = static_cast<std::uint32_t>(slot.row % geometry.dies_per_channel);
  const auto plane = static_cast<std::uint32_t>(slot.row / geometry.dies_per_channel % geometry.planes_per_die);
  return geometry.plane(ChannelId{slot.channel}, die, plane);
}

std::uint64_t position_of(const KvPageId& page, const KvLayout& layout) {
  if (page.kind != PageKind::embedding) return page.group;
  return layout.embedding_position(layout.window(page.window)) + page.group;
}

StripeSlot head_stripe(const FlashGeometry& geometry, const KvPageId& page, const KvSequenceInfo& sequence) {
  const std::uint64_t channels = geometry.channels;
  const std::uint64_t base =
      std::uint64_t{page.key.sequence.value} * sequence.shape.kv_heads + page.key.head.value + page.key.layer.value;
  // Heads whose first pages are on the same channel differ in base / channels. Adding it to the row gives them
  // different planes, so that the first pages of all heads cover every plane.
  const std::uint64_t apart = std::max<std::uint64_t>(1, geometry.planes_per_channel() / channels);
  std::uint64_t channel = base;
  std::uint64_t row = base / channels + base % channels * apart;
  if (page.kind == PageKind::token_v) {
    channel += channels / 2;
    row += geometry.planes_per_channel() / 2;
  } else if (page.kind == PageKind::embedding &&
             sequence.layout.embedding_pages(sequence.layout.window(page.window)) % channels == 0) {
    // A window that fills whole rounds would let the next one start on the same channel: shift by one per window.
    channel += page.window;
  }
  const std::uint64_t position = position_of(page, sequence.layout);
  return {static_cast<std::uint32_t>((channel + position) % channels), row + position / channels};
}

}  // namespace csdsim::ftl
