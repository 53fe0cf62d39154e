// One append or rewrite of rows: its arguments, and what it does to the heads that share pages.
#pragma once

#include <cstdint>
#include <span>

#include "base/fp16.h"
#include "contracts/kv_address.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

/// Changes that an append makes to the heads of one tile.
struct TilePlan {
  std::uint32_t tile = 0;
  std::uint32_t first_head = 0;  ///< first of the heads that are appended to
  std::uint32_t end_head = 0;
  std::uint32_t old_groups = 0;  ///< token groups that have pages, before and after
  std::uint32_t new_groups = 0;
  std::uint32_t old_windows = 0;
  std::uint32_t new_windows = 0;
  std::uint32_t partial_end = 0;  ///< the unfinished window is programmed up to this token; 0: it is not

  /// Pages that get a map entry: those of groups and of full windows.
  std::uint64_t mapped_pages(const KvLayout& l) const {
    const std::uint64_t token_pages = std::uint64_t{new_groups - old_groups} * l.pages_per_group();
    if (new_windows == old_windows) return token_pages;
    return token_pages + l.embedding_position(l.window(new_windows)) - l.embedding_position(l.window(old_windows));
  }
  /// All pages that are programmed.
  std::uint64_t pages(const KvLayout& l) const {
    return mapped_pages(l) + (partial_end > 0 ? l.embedding_pages(l.window(new_windows)) : 0);
  }
};

/// The arguments of an append or a rewrite.
struct KvAppend {
  KvSequence& sequence;
  LayerId layer;
  std::uint32_t first;
  std::uint32_t count;
  HeadRange heads;
  std::span<const Half> keys;
  std::span<const Half> values;

  /// ok, bad_layer, bad_head; bad_data unless there are as many rows as the data mode asks for.
  KvStatus check(bool carried) const {
    if (layer.value >= sequence.shape.layers) return KvStatus::bad_layer;
    if (std::uint64_t{heads.first.value} + heads.count > sequence.shape.kv_heads) return KvStatus::bad_head;
    const std::uint64_t elements = carried ? std::uint64_t{heads.count} * count * sequence.layout.row_words() : 0;
    return keys.size() == elements && values.size() == elements ? KvStatus::ok : KvStatus::bad_data;
  }
  std::uint32_t end() const { return first + count; }
  std::uint32_t end_head() const { return heads.first.value + heads.count; }
  bool appends_to(std::uint32_t head) const { return head >= heads.first.value && head < end_head(); }
  HeadKey key(std::uint32_t head) const { return {sequence.id, layer, KvHead{head}}; }
  std::span<const Half> rows(KvKind kind, std::uint32_t head) const {
    const std::size_t size = std::size_t{count} * sequence.layout.row_words();
    return (kind == KvKind::key ? keys : values).subspan((head - heads.first.value) * size, size);
  }
};

}  // namespace csdsim::ftl
