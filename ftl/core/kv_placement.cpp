#include "ftl/core/kv_placement.h"

#include <algorithm>

namespace csdsim::ftl {

PlaneId StripedPlacement::place(const KvPageId& page, const KvShape& shape, const KvLayout& layout) {
  const std::uint64_t channels = geometry_.channels;
  const std::uint64_t base =
      std::uint64_t{page.key.sequence.value} * shape.kv_heads + page.key.head.value + page.key.layer.value;
  std::uint64_t position = page.group;  // of the page among those of its head and kind
  std::uint64_t channel = base;
  // Heads that are neighbours are read at the same time, and over the same range of positions: they start a share of
  // the planes apart. Counting the rounds in as well makes the start of all heads cover every plane.
  const std::uint64_t apart = std::max<std::uint64_t>(1, geometry_.planes_per_channel() / channels);
  std::uint64_t row = base / channels + base % channels * apart;
  if (page.kind == PageKind::token_v) {
    channel += channels / 2;
    row += geometry_.planes_per_channel() / 2;
  } else if (page.kind == PageKind::embedding) {
    position += std::uint64_t{page.window} * layout.embedding_pages();
    // Where a window fills whole rounds, the next window would start on the same channel: turn it by one.
    if (layout.embedding_pages() % channels == 0) channel += page.window;
  }
  channel = (channel + position) % channels;
  row += position / channels;
  const auto die = static_cast<std::uint32_t>(row % geometry_.dies_per_channel);
  const auto plane = static_cast<std::uint32_t>(row / geometry_.dies_per_channel % geometry_.planes_per_die);
  return geometry_.plane(ChannelId{static_cast<std::uint32_t>(channel)}, die, plane);
}

}  // namespace csdsim::ftl
