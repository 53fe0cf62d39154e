#include "ftl/block/wear_leveller.h"

#include <optional>

namespace csdsim::ftl {

void WearLeveller::level(PlaneId plane, std::vector<Phase>* phases) {
  if (victims_.has(plane)) return;
  const std::optional<BlockId> block = flash_.blocks.least_worn(plane, Namespace::block);
  if (!block || flash_.blocks.most_erases(plane) - flash_.blocks.erase_count(*block) <= flash_.config.wear_spread)
    return;
  // No block holds both pages of the host and translation pages: collection of one that does would open two blocks,
  // where only one is kept free for it.
  const Stream to = mover_.stream_for(*block) == Stream::map ? Stream::map : Stream::cold;
  if (!flash_.fits(*block, to)) return;
  flash_.blocks.begin_collect(*block);
  if (!mover_.move_all(*block, to, phases, flash_.stats.wear_pages_moved)) {
    victims_.choose(*block);  // programs failed: what is left of it is collected
    return;
  }
  mover_.erase(*block, phases);
  ++flash_.stats.wear_erases;
}

}  // namespace csdsim::ftl
