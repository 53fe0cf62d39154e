#include "ftl/kv/page_owners.h"

namespace csdsim::ftl {

PageOwners::PageOwners(const KvFlash& flash, SequenceTable& table)
    : geometry_(flash.geometry), table_(table), owners_(flash.blocks.quota() > 0 ? flash.geometry.pages() : 0) {}

void PageOwners::add(MapSegment& segment) {
  if (free_slots_.empty()) {
    segment.slot = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back(&segment);
    return;
  }
  segment.slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[segment.slot] = &segment;
}

void PageOwners::remove(const MapSegment& segment) {
  slots_[segment.slot] = nullptr;
  free_slots_.push_back(segment.slot);
}

FoundEntry PageOwners::find(PageOwner owner, PhysicalPageAddress ppa) const {
  if (slots_[owner.slot] == nullptr) return {};
  MapSegment& segment = *slots_[owner.slot];
  if ((owner.position & PageOwner::kEmbedding) == 0) {
    KvMapEntry& entry = segment.map.token_at(owner.position);
    return {entry.ppa() == ppa ? &entry : nullptr, 0};
  }
  const std::uint32_t position = owner.position & ~PageOwner::kEmbedding;
  if (position >= segment.map.first_position() && position < segment.map.end_position()) {
    if (KvMapEntry& entry = segment.map.embedding_at(position); entry.ppa() == ppa) return {&entry, 0};
  }
  if (!table_.contains(segment.key.sequence)) return {};
  KvSequence& s = table_.at(segment.key.sequence);
  if (s.segment != segment.number) return {};
  KvHeadState& head = s.layers[segment.key.layer.value]->heads[segment.key.head.value];
  const KvWindow window = segment.layout.window(segment.layout.window_at(position));
  const std::uint64_t first = segment.layout.embedding_position(window);
  for (PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
    if (partial == nullptr || partial->window != segment.layout.window_at(position)) continue;
    KvMapEntry& entry = partial->pages[position - first];
    if (entry.ppa() == ppa) return {&entry, partial->end - window.first};
  }
  return {};
}

KvPageId PageOwners::id_of(PageOwner owner) const {
  const MapSegment& segment = *slots_[owner.slot];
  if ((owner.position & PageOwner::kEmbedding) == 0) {
    const std::uint32_t per_group = segment.layout.pages_per_group();
    const KvKind kind = owner.position % per_group == 0 ? KvKind::key : KvKind::value;
    return {segment.key, token_page_kind(kind, segment.layout), owner.position / per_group, 0};
  }
  const std::uint32_t position = owner.position & ~PageOwner::kEmbedding;
  const std::uint32_t window = segment.layout.window_at(position);
  const std::uint64_t first = segment.layout.embedding_position(segment.layout.window(window));
  return {segment.key, PageKind::embedding, static_cast<std::uint32_t>(position - first), window};
}

std::optional<KvPageId> PageOwners::holder_of(PhysicalPageAddress ppa) const {
  const PageOwner owner = of(ppa);
  if (owner.slot >= slots_.size() || slots_[owner.slot] == nullptr) return std::nullopt;
  return id_of(owner);
}

void PageOwners::visit_pages(const std::function<void(const KvPageId&, PhysicalPageAddress)>& visit) const {
  const auto visit_page = [&](const KvPageId& page, const KvMapEntry& e) {
    if (geometry_.contains(e.ppa())) visit(page, e.ppa());
  };
  const auto visit_segment = [&](const MapSegment& segment) {
    const std::uint32_t per_group = segment.layout.pages_per_group();
    std::uint32_t position = segment.map.first_group() * per_group;
    for (const KvMapEntry& e : segment.map.all_tokens()) visit_page(id_of({segment.slot, position++}), e);
    position = segment.map.first_position();
    for (const KvMapEntry& e : segment.map.all_embedding())
      visit_page(id_of({segment.slot, PageOwner::kEmbedding | position++}), e);
  };
  for (const auto& [id, s] : std::as_const(table_)) {
    for (std::uint32_t i = 0; i < s.layers.size(); ++i) {
      if (!s.layers[i]) continue;
      for (const KvTile& tile : s.layers[i]->tiles) {
        for (const auto& segment : tile.segments) {
          if (segment->users.front() == id) visit_segment(*segment);
        }
      }
      for (std::uint32_t h = 0; h < s.shape.kv_heads; ++h) {
        const KvHeadState& head = s.layers[i]->heads[h];
        for (const PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
          if (partial == nullptr) continue;
          for (std::uint32_t ge = 0; ge < partial->pages.size(); ++ge) {
            visit_page({{id, LayerId{i}, KvHead{h}}, PageKind::embedding, ge, partial->window}, partial->pages[ge]);
          }
        }
      }
    }
  }
}

}  // namespace csdsim::ftl
