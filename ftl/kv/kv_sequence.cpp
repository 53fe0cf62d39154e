#include "ftl/kv/kv_sequence.h"

#include <algorithm>
#include <utility>

namespace csdsim::ftl {

std::uint32_t readable_windows(const KvTile& tile, const KvHeadState& head, const KvLayout& l) {
  const std::uint32_t written = tile.written_windows(l);
  for (; head.readable_windows < written; ++head.readable_windows) {
    const KvWindow window = l.window(head.readable_windows);
    const std::uint64_t position = l.embedding_position(window);
    for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge) {
      if (tile.embedding(position + ge).awaits_read_back()) return head.readable_windows;
    }
  }
  return head.readable_windows;
}

void KvSequence::settle_partial(KvHeadState& head) {
  const auto full = [&](const PartialWindow& partial) { return partial.window < head.readable_windows; };
  const auto readable = [](const PartialWindow& partial) {
    return std::ranges::none_of(partial.pages, &KvMapEntry::awaits_read_back);
  };
  if (head.coming_partial && readable(*head.coming_partial)) {
    if (head.partial) supersede(head.partial->pages);
    head.partial = std::move(head.coming_partial);
  }
  if (head.partial && full(*head.partial)) {
    supersede(head.partial->pages);
    head.partial.reset();
  }
}

void KvSequence::supersede(std::span<const KvMapEntry> pages) {
  superseded.insert(superseded.end(), pages.begin(), pages.end());
}

}  // namespace csdsim::ftl
