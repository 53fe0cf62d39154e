#include "ftl/kv/kv_windows.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ftl/kv/kv_components.h"

namespace csdsim::ftl {

std::uint32_t KvWindows::partial_target(const KvLayout& l, const KvHeadState& head, std::uint32_t windows,
                                        std::uint32_t tokens) const {
  if (head.coming_partial) return 0;
  const KvWindow window = l.window(windows);
  const auto end = static_cast<std::uint32_t>(l.windowed(tokens, flash_.config.tail_rewrites));
  const std::uint32_t old = head.partial && head.partial->window == windows ? head.partial->end : window.first;
  return end > old ? end : 0;
}

void KvWindows::write(const KvAppend& a, KvLayer& layer, const TilePlan& p, std::vector<FlushJob>& jobs) {
  KvSequence& s = a.sequence;
  const KvLayout& l = s.layout;
  KvHeadState& head = layer.heads[p.first_head];
  const HeadKey key = a.key(p.first_head);
  const bool keeps_tail = flash_.store.carried() && flash_.config.tail == TailPolicy::dram;
  for (std::uint32_t w = p.old_windows; w <= p.new_windows; ++w) {
    if (keeps_tail) fill_component_tail(a, key.head, head, l.window(w));
    if (w < p.new_windows) jobs.push_back(write_window(s, key, layer, w));
  }
  if (p.partial_end > 0) jobs.push_back(write_partial(s, key, layer, p.new_windows, p.partial_end));
}

/// Keys of this append that fall into `window`, transposed into the component-major tail.
void KvWindows::fill_component_tail(const KvAppend& a, KvHead h, KvHeadState& head, const KvWindow& window) {
  const KvLayout& l = a.sequence.layout;
  const std::size_t words = l.row_words();
  head.component_tail.resize(l.window_words(window.tokens));
  const std::uint32_t first = std::max(a.first, window.first), end = std::min(a.end(), window.end());
  if (first >= end) return;
  const auto rows = a.rows(KvKind::key, h.value).subspan((first - a.first) * words, (end - first) * words);
  put_window(l, window, first - window.first, rows, head.component_tail);
}

std::span<const Half> KvWindows::transpose(const HeadKey& key, const KvLayout& l, const KvWindow& window,
                                           std::uint32_t end) {
  image_.assign(l.window_words(window.tokens), Half{});
  for (std::uint32_t token = window.first; token < end; token += l.group_tokens) {
    const Half* rows = reader_.token_rows(key, KvKind::key, token / l.group_tokens);
    put_window(l, window, token - window.first, {rows, std::size_t{l.group_tokens} * l.row_words()}, image_);
  }
  return image_;
}

/// Programs the pages of a window from `image`, page by page, which is full up to `partial_tokens` tokens (0: full) and
/// read only in carried mode; `add` gets their map entries. `lost`: some of it could not be read.
template <class Add>
void KvWindows::program(const KvSequence& s, const HeadKey& key, const MapSegment& segment, std::uint32_t w,
                        std::uint32_t partial_tokens, const Half* image, bool lost, FlushJob& job, const Add& add) {
  const KvLayout& l = s.layout;
  const KvWindow window = l.window(w);
  const std::uint32_t pages = l.embedding_pages(window);
  const std::uint64_t position = l.embedding_position(window);
  const std::size_t words = l.page_words();
  job.programs.reserve(pages);
  for (std::uint32_t ge = 0; ge < pages; ++ge) {
    const KvPageId page{key, PageKind::embedding, ge, w};
    const PageOwner owner{segment.slot, PageOwner::kEmbedding | static_cast<std::uint32_t>(position + ge)};
    const PhysicalPageAddress to = placer_.place(page, s, owner, job);
    if (lost) losses_.mark(to);
    if (flash_.store.carried()) {
      flash_.store.write(to, std::as_bytes(std::span(image + ge * words, words)),
                         oob_tag(page, l, segment.number, partial_tokens));
    }
    add(KvMapEntry(to, !job.reads.empty()));
  }
}

FlushJob KvWindows::write_window(KvSequence& s, const HeadKey& key, KvLayer& layer, std::uint32_t w) {
  const KvLayout& l = s.layout;
  const KvWindow window = l.window(w);
  const std::uint32_t pages = l.embedding_pages(window);
  KvTile& tile = layer.tiles[key.head.value];
  KvHeadState& head = layer.heads[key.head.value];
  MapSegment& segment = *tile.segments.back();
  FlushJob job;
  job.id = jobs_.begin_flush(s, {key, PendingFlush::What::window, w, 1, pages});
  job.kind = FlushKind::window;
  const Half* image = head.component_tail.data();
  bool lost = false;
  if (flash_.config.tail != TailPolicy::dram) {
    lost = pages_.read_back(l, tile, window, window.end(), job);
    if (flash_.store.carried()) transpose(key, l, window, window.end());
    image = image_.data();
  }
  program(s, key, segment, w, 0, image, lost, job, [&](KvMapEntry entry) { segment.map.push_embedding(entry); });
  flash_.stats.embedding_pages_programmed += pages;
  if (readable_windows(tile, head, l) > w) s.settle_partial(head);
  return job;
}

FlushJob KvWindows::write_partial(KvSequence& s, const HeadKey& key, KvLayer& layer, std::uint32_t w,
                                  std::uint32_t end) {
  const KvLayout& l = s.layout;
  const KvWindow window = l.window(w);
  const std::uint32_t pages = l.embedding_pages(window);
  KvTile& tile = layer.tiles[key.head.value];
  KvHeadState& head = layer.heads[key.head.value];
  MapSegment& segment = *tile.segments.back();
  FlushJob job;
  job.id = jobs_.begin_flush(s, {key, PendingFlush::What::partial, w, end, pages});
  job.kind = FlushKind::window;
  const bool lost = pages_.read_back(l, tile, window, end, job);
  if (flash_.store.carried()) transpose(key, l, window, end);
  auto partial = std::make_unique<PartialWindow>(PartialWindow{w, end, job.id, {}});
  program(s, key, segment, w, end - window.first, image_.data(), lost, job,
          [&](KvMapEntry entry) { partial->pages.push_back(entry); });
  flash_.stats.partial_pages_programmed += pages;
  head.coming_partial = std::move(partial);
  s.settle_partial(head);
  return job;
}

}  // namespace csdsim::ftl
