// Forks: two sequences that share what one of them has written.
#include <algorithm>
#include <utility>

#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

KvStatus KvFtl::fork_sequence(SequenceId parent_id, SequenceId child_id) {
  Sequence* parent = find(parent_id);
  if (parent == nullptr) return KvStatus::bad_sequence;
  if (const auto it = sequences_.find(child_id); it != sequences_.end()) {
    return it->second.closing ? KvStatus::busy : KvStatus::bad_sequence;
  }
  const std::uint32_t tokens = parent->layers.front() ? parent->layers.front()->heads.front().tokens : 0;
  for (const auto& layer : parent->layers) {
    for (std::uint32_t h = 0; h < parent->shape.kv_heads; ++h) {
      if ((layer ? layer->heads[h].tokens : 0) != tokens) return KvStatus::bad_token;
    }
  }
  Bytes tails;
  for (const Bytes held : parent->dram) tails += held;
  if (!dram_.fits(tails)) {
    const Bytes drains = draining_dram();
    return dram_.used() - drains + tails > dram_.capacity() ? KvStatus::out_of_dram : KvStatus::busy;
  }
  for (std::size_t use = 0; use < kDramUses; ++use) dram_.charge(static_cast<DramUse>(use), parent->dram[use]);

  Sequence child;
  child.id = child_id;
  child.segment = next_segment_++;
  child.shape = parent->shape;
  child.layout = parent->layout;
  child.dram = parent->dram;
  child.layers.resize(parent->layers.size());
  parent->segment = next_segment_++;
  for (std::uint32_t i = 0; i < parent->layers.size(); ++i) {
    Layer* const from = parent->layers[i].get();
    if (from == nullptr) continue;
    auto to = std::make_unique<Layer>();
    for (Head& head : from->heads) {
      // A window that is partly filled belongs to nobody now: its keys are scored from their token pages.
      for (auto* partial : {&head.partial, &head.coming_partial}) {
        if (*partial) supersede(*parent, (*partial)->pages);
        partial->reset();
      }
      Head& copy = to->heads.emplace_back();
      copy.tokens = head.tokens;
      copy.readable_windows = head.readable_windows;
      copy.key_tail = head.key_tail;
      copy.value_tail = head.value_tail;
      copy.value_mean = head.value_mean;
      copy.component_tail = head.component_tail;
    }
    for (std::uint32_t t = 0; t < from->tiles.size(); ++t) {
      Tile& tile = from->tiles[t];
      const KvHead head{t * child.layout.page_heads};
      if (tile.segments.back()->map.pages() == 0) {  // forking again must not lengthen the chain
        std::vector<PageOp> none;
        release_segment(*tile.segments.back(), parent_id, none);
        tile.segments.pop_back();
      }
      Tile& copy = to->tiles.emplace_back(tile);
      for (const auto& segment : copy.segments) segment->users.push_back(child_id);
      copy.segments.push_back(new_segment({child_id, LayerId{i}, head}, child.segment, &tile, child.layout));
      tile.segments.push_back(new_segment({parent_id, LayerId{i}, head}, parent->segment, &tile, child.layout));
    }
    child.layers[i] = std::move(to);
  }
  sequences_.emplace(child_id, std::move(child));
  std::map<HeadKey, std::vector<TokenSpan>> of_child;
  for (const auto& [key, spans] : dropped_)
    if (key.sequence == parent_id) of_child.emplace(HeadKey{child_id, key.layer, key.head}, spans);
  dropped_.merge(of_child);
  return KvStatus::ok;
}

}  // namespace csdsim::ftl
