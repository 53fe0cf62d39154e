#include "ftl/kv/sequence_table.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace csdsim::ftl {

const KvSequence* SequenceTable::find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() || it->second.closing ? nullptr : &it->second;
}

KvSequence* SequenceTable::find(SequenceId id) { return const_cast<KvSequence*>(std::as_const(*this).find(id)); }

const KvSequence& SequenceTable::at(SequenceId id) const {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) throw InternalError(fmt::format("sequence {} does not exist", id.value));
  return it->second;
}

KvSequence& SequenceTable::at(SequenceId id) { return const_cast<KvSequence&>(std::as_const(*this).at(id)); }

KvStatus SequenceTable::check_unused(SequenceId id) const {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return KvStatus::ok;
  return it->second.closing ? KvStatus::busy : KvStatus::bad_sequence;
}

KvStatus SequenceTable::check(const HeadKey& key) const {
  const KvSequence* s = find(key.sequence);
  if (s == nullptr) return KvStatus::bad_sequence;
  if (key.layer.value >= s->shape.layers) return KvStatus::bad_layer;
  if (key.head.value >= s->shape.kv_heads) return KvStatus::bad_head;
  return KvStatus::ok;
}

void SequenceTable::add(KvSequence sequence) {
  const SequenceId id = sequence.id;
  sequences_.emplace(id, std::move(sequence));
}

const KvHeadState& SequenceTable::head(const HeadKey& key) const {
  const KvSequence& s = at(key.sequence);
  if (key.layer.value >= s.shape.layers || key.head.value >= s.shape.kv_heads) {
    throw bad_page({key}, "there is no such KV head");
  }
  static const KvHeadState untouched;
  const auto& layer = s.layers[key.layer.value];
  return layer ? layer->heads[key.head.value] : untouched;
}

const KvTile& SequenceTable::tile(const HeadKey& key) const {
  static const KvTile untouched;
  const KvSequence& s = at(key.sequence);
  const auto& layer = s.layers[key.layer.value];
  return layer ? layer->tiles[key.head.value / s.layout.page_heads] : untouched;
}

std::uint32_t SequenceTable::flushed_tokens(const HeadKey& key) const {
  head(key);  // throws for one that does not exist
  return tile(key).written_groups() * layout(key.sequence).group_tokens;
}

std::uint32_t SequenceTable::transposed_windows(const HeadKey& key) const {
  const KvHeadState& h = head(key);
  const std::uint32_t full = readable_windows(tile(key), h, layout(key.sequence));
  return h.partial && h.partial->window == full ? full + 1 : full;
}

std::uint32_t SequenceTable::transposed_tokens(const HeadKey& key) const {
  const KvHeadState& h = head(key);
  const KvLayout& l = layout(key.sequence);
  const std::uint32_t full = readable_windows(tile(key), h, l);
  if (h.partial && h.partial->window == full) return h.partial->end;
  return l.component_major ? l.window(full).first : 0;
}

std::size_t SequenceTable::superseded_pages() const {
  std::size_t pages = 0;
  for (const auto& [id, s] : sequences_) pages += s.superseded.size();
  return pages;
}

}  // namespace csdsim::ftl
