// State of a sequence in the KV namespace: its heads and the maps of its pages. Not a public header.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/dram_budget.h"
#include "ftl/kv/kv_layout.h"
#include "ftl/kv/kv_map.h"
#include "ftl/kv/kv_policy.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

using DramUses = std::array<Bytes, kDramUses>;

/// Stands for the job of pages that a recovery found.
inline constexpr FlushJobId kNoJob{~std::uint64_t{0}};

/// A window that was programmed before it was full.
struct PartialWindow {
  std::uint32_t window = 0;
  std::uint32_t end = 0;  ///< tokens [window.first, end) are in it
  FlushJobId job;         ///< that writes it
  std::vector<KvMapEntry> pages;
};

/// One KV head of one layer of one sequence.
struct KvHeadState {
  std::uint32_t tokens = 0;
  mutable std::uint32_t readable_windows = 0;     ///< windows [0, readable_windows) have readable embedding pages
  std::unique_ptr<PartialWindow> partial;         ///< in flash, or being programmed from DRAM
  std::unique_ptr<PartialWindow> coming_partial;  ///< its keys are being read back from flash
  std::vector<Half> key_tail;  ///< [tokens][words of a row]: of tokens that are in no token page. Carried mode
  std::vector<Half> value_tail;
  std::vector<Half> component_tail;  ///< [pages][P / 2]: the unfinished window. Carried mode, tail policy `dram`
  std::vector<float> value_mean;     ///< [d]. Carried mode
};

/// The map of the pages that one sequence wrote for the heads of a tile between two forks: sequences that were forked
/// later share it.
struct MapSegment {
  HeadKey key;               ///< the writer, the first head of the tile
  std::uint32_t number = 0;  ///< Sequence::segment of its writer when it was written
  std::uint32_t slot = 0;
  KvLayout layout;
  HeadMap map;
  Bytes table;  ///< DRAM charged for it
  std::vector<SequenceId> users;
};

/// The heads that share token pages: one, with most layouts. Its segments follow one another; the last one grows.
struct KvTile {
  std::vector<std::shared_ptr<MapSegment>> segments;

  const MapSegment& segment_of_group(std::uint32_t group) const {
    auto segment = segments.rbegin();
    while (group < (*segment)->map.first_group()) ++segment;
    return **segment;
  }
  const MapSegment& segment_of_position(std::uint32_t position) const {
    auto segment = segments.rbegin();
    while (position < (*segment)->map.first_position()) ++segment;
    return **segment;
  }
  const KvMapEntry& token(KvKind kind, std::uint32_t group) const {
    return segment_of_group(group).map.token(kind, group);
  }
  KvMapEntry& token(KvKind kind, std::uint32_t group) {
    return const_cast<KvMapEntry&>(std::as_const(*this).token(kind, group));
  }
  const KvMapEntry& embedding(std::uint64_t position) const {
    const auto at = static_cast<std::uint32_t>(position);
    return segment_of_position(at).map.embedding_at(at);
  }
  KvMapEntry& embedding(std::uint64_t position) {
    return const_cast<KvMapEntry&>(std::as_const(*this).embedding(position));
  }
  std::uint32_t written_groups() const { return segments.empty() ? 0 : segments.back()->map.end_group(); }
  std::uint32_t written_windows(const KvLayout& layout) const {
    return segments.empty() || !layout.component_major ? 0 : layout.window_at(segments.back()->map.end_position());
  }
};

struct KvLayer {
  std::vector<KvHeadState> heads;
  std::vector<KvTile> tiles;
};

struct KvSequence {
  SequenceId id;
  std::uint32_t segment = 0;  ///< number of the map segments that it writes now
  KvShape shape;
  KvLayout layout;
  std::uint32_t pins = 0;
  bool closing = false;                          ///< freed, waiting for its pins
  std::vector<std::unique_ptr<KvLayer>> layers;  ///< allocated when first appended to
  std::vector<KvMapEntry> superseded;  ///< replaced by a fuller version; given back when nobody pins the sequence
  DramUses dram{};                     ///< what it holds, without its map; flushes book flush_pending
  Bytes closing_dram;

  /// Reads of these pages may be in flight: they are given back when nobody pins the sequence.
  void supersede(std::span<const KvMapEntry> pages);
  /// The newest readable version of the unfinished window of one of its heads takes the place of older ones.
  void settle_partial(KvHeadState& head);
  KvSequenceInfo info() const { return {id, shape, layout}; }
  std::uint32_t tiles() const { return (shape.kv_heads + layout.page_heads - 1) / layout.page_heads; }
};

/// Windows [0, it) are readable: their keys are back from flash, if they had to be.
std::uint32_t readable_windows(const KvTile& tile, const KvHeadState& head, const KvLayout& layout);

constexpr PageKind token_page_kind(KvKind kind, const KvLayout& layout) {
  if (layout.paired) return PageKind::token_kv;
  return kind == KvKind::key ? PageKind::token_k : PageKind::token_v;
}

/// `partial_tokens`: see OobTag.
inline OobTag oob_tag(const KvPageId& page, const KvLayout& layout, std::uint32_t segment,
                      std::uint32_t partial_tokens = 0) {
  const std::uint64_t index = page.kind == PageKind::embedding
                                  ? layout.embedding_position(layout.window(page.window)) + page.group
                                  : page.group;
  return {page.kind, page.key.layer, page.key.head, page.key.sequence, index, segment, partial_tokens};
}

/// Where the rows of a head start in a token page: [K, V][head][n][d], K and V only where they are paired.
inline std::size_t row_offset(const KvLayout& layout, KvKind kind, KvHead head) {
  const std::uint32_t of_pair = layout.paired && kind == KvKind::value ? layout.page_heads : 0;
  return std::size_t{of_pair + head.value % layout.page_heads} * layout.group_tokens * layout.row_words();
}

inline InternalError bad_page(const KvPageId& page, std::string_view what) {
  return InternalError(std::string(what) + " (" + to_string(page) + ")");
}

inline const Half* as_halves(std::span<const std::byte> bytes) { return reinterpret_cast<const Half*>(bytes.data()); }

}  // namespace csdsim::ftl
