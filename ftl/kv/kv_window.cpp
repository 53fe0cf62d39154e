// Component-major windows of K: transposing them, and the tail policies.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ftl/kv/kv_components.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

/// Windows [0, it) are readable: their keys are back from flash, if they had to be.
std::uint32_t KvFtl::readable_windows(const Tile& tile, const Head& head, const KvLayout& l) {
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

/// Up to which token the window `windows`, which is not full with `tokens`, is to be programmed now; 0: it is not.
std::uint32_t KvFtl::partial_target(const KvLayout& l, const Head& head, std::uint32_t windows,
                                    std::uint32_t tokens) const {
  if (head.coming_partial) return 0;
  const KvWindow window = l.window(windows);
  const auto end = static_cast<std::uint32_t>(l.windowed(tokens, config_.tail_rewrites));
  const std::uint32_t old = head.partial && head.partial->window == windows ? head.partial->end : window.first;
  return end > old ? end : 0;
}

void KvFtl::write_windows(const Append& a, Layer& layer, const TilePlan& p, std::vector<FlushJob>& jobs) {
  Sequence& s = a.sequence;
  const KvLayout& l = s.layout;
  Head& head = layer.heads[p.first_head];
  const HeadKey key = a.key(p.first_head);
  for (std::uint32_t w = p.old_windows; w <= p.new_windows; ++w) {
    if (store_.carried() && config_.tail == TailPolicy::dram) {
      fill_component_tail(a, key.head, head, l.window(w));
    }
    if (w < p.new_windows) jobs.push_back(write_window(s, key, layer, w));
  }
  if (p.partial_end > 0) jobs.push_back(write_partial(s, key, layer, p.new_windows, p.partial_end));
}

/// Keys of this append that fall into `window`, transposed into the component-major tail.
void KvFtl::fill_component_tail(const Append& a, KvHead h, Head& head, const KvWindow& window) {
  const KvLayout& l = a.sequence.layout;
  const std::size_t words = l.row_words();
  head.component_tail.resize(l.window_words(window.tokens));
  const std::uint32_t first = std::max(a.first, window.first), end = std::min(a.end(), window.end());
  if (first >= end) return;
  const auto rows = a.rows(KvKind::key, h.value).subspan((first - a.first) * words, (end - first) * words);
  put_window(l, window, first - window.first, rows, head.component_tail);
}

/// Transposes tokens [window.first, end) from their token groups into window_image_.
void KvFtl::transpose(const HeadKey& key, const KvWindow& window, std::uint32_t end) {
  const KvLayout& l = layout(key.sequence);
  window_image_.assign(l.window_words(window.tokens), Half{});
  for (std::uint32_t token = window.first; token < end; token += l.group_tokens) {
    const Half* rows = token_rows(key, KvKind::key, token / l.group_tokens);
    put_window(l, window, token - window.first, {rows, std::size_t{l.group_tokens} * l.row_words()}, window_image_);
  }
}

/// Reads of the token pages of [window.first, end) that are not in DRAM any more. True if one of them is lost.
bool KvFtl::read_back(const KvLayout& l, const Tile& tile, const KvWindow& window, std::uint32_t end, FlushJob& job) {
  bool lost = false;
  for (std::uint32_t token = window.first; token < end; token += l.group_tokens) {
    const std::uint32_t group = token / l.group_tokens;
    if (group >= tile.written_groups()) break;
    const KvMapEntry& e = tile.token(KvKind::key, group);
    if (e.in_dram()) {
      lost = lost || lost_.contains(e.ppa().value);
      continue;
    }
    const PlannedRead read = read_op(e.ppa(), OpClass::flush);
    job.reads.push_back(read.op);
    lost = lost || read.lost;
  }
  stats_.read_back_pages += job.reads.size();
  return lost;
}

/// Programs the pages of a window from `image`, page by page, which is full up to `partial_tokens` tokens (0: full) and
/// read only in carried mode; `add` gets their map entries. `lost`: some of it could not be read.
template <class Add>
void KvFtl::program_window(const Sequence& s, const HeadKey& key, const MapSegment& segment, std::uint32_t w,
                           std::uint32_t partial_tokens, const Half* image, bool lost, FlushJob& job, const Add& add) {
  const KvLayout& l = s.layout;
  const KvWindow window = l.window(w);
  const std::uint32_t pages = l.embedding_pages(window);
  const std::uint64_t position = l.embedding_position(window);
  const std::size_t words = l.page_words();
  job.programs.reserve(pages);
  for (std::uint32_t ge = 0; ge < pages; ++ge) {
    const KvPageId page{key, PageKind::embedding, ge, w};
    const PageOwner owner{segment.slot, kEmbedding | static_cast<std::uint32_t>(position + ge)};
    const PhysicalPageAddress to = place(page, s, owner, job);
    if (lost) lost_.insert(to.value);
    if (store_.carried()) {
      store_.write(to, std::as_bytes(std::span(image + ge * words, words)),
                   oob_tag(page, l, segment.number, partial_tokens));
    }
    add(KvMapEntry(to, !job.reads.empty()));
  }
}

FlushJob KvFtl::write_window(Sequence& s, const HeadKey& key, Layer& layer, std::uint32_t w) {
  const KvLayout& l = s.layout;
  const KvWindow window = l.window(w);
  const std::uint32_t pages = l.embedding_pages(window);
  Tile& tile = layer.tiles[key.head.value];
  Head& head = layer.heads[key.head.value];
  MapSegment& segment = *tile.segments.back();
  FlushJob job;
  job.id = begin_flush(s, {key, PendingFlush::What::window, w, 1, pages});
  job.kind = FlushKind::window;
  const Half* image = head.component_tail.data();
  bool lost = false;
  if (config_.tail != TailPolicy::dram) {
    lost = read_back(l, tile, window, window.end(), job);
    if (store_.carried()) transpose(key, window, window.end());
    image = window_image_.data();
  }
  program_window(s, key, segment, w, 0, image, lost, job, [&](KvMapEntry entry) { segment.map.push_embedding(entry); });
  stats_.embedding_pages_programmed += pages;
  if (readable_windows(tile, head, l) > w) partial_done(s, head);
  return job;
}

FlushJob KvFtl::write_partial(Sequence& s, const HeadKey& key, Layer& layer, std::uint32_t w, std::uint32_t end) {
  const KvLayout& l = s.layout;
  const KvWindow window = l.window(w);
  const std::uint32_t pages = l.embedding_pages(window);
  Tile& tile = layer.tiles[key.head.value];
  Head& head = layer.heads[key.head.value];
  MapSegment& segment = *tile.segments.back();
  FlushJob job;
  job.id = begin_flush(s, {key, PendingFlush::What::partial, w, end, pages});
  job.kind = FlushKind::window;
  const bool lost = read_back(l, tile, window, end, job);
  if (store_.carried()) transpose(key, window, end);
  auto partial = std::make_unique<PartialWindow>(PartialWindow{w, end, job.id, {}});
  program_window(s, key, segment, w, end - window.first, window_image_.data(), lost, job,
                 [&](KvMapEntry entry) { partial->pages.push_back(entry); });
  stats_.partial_pages_programmed += pages;
  head.coming_partial = std::move(partial);
  partial_done(s, head);
  return job;
}

/// The newest readable version of the unfinished window takes the place of older ones.
void KvFtl::partial_done(Sequence& s, Head& head) {
  const auto full = [&](const PartialWindow& partial) { return partial.window < head.readable_windows; };
  const auto readable = [](const PartialWindow& partial) {
    return std::ranges::none_of(partial.pages, &KvMapEntry::awaits_read_back);
  };
  if (head.coming_partial && readable(*head.coming_partial)) {
    if (head.partial) supersede(s, head.partial->pages);
    head.partial = std::move(head.coming_partial);
  }
  if (head.partial && full(*head.partial)) {
    supersede(s, head.partial->pages);
    head.partial.reset();
  }
}

/// Reads of these pages may be in flight: they are given back when nobody pins the sequence.
void KvFtl::supersede(Sequence& s, std::span<const KvMapEntry> pages) {
  s.superseded.insert(s.superseded.end(), pages.begin(), pages.end());
}

std::size_t KvFtl::superseded_pages() const {
  std::size_t pages = 0;
  for (const auto& [id, s] : sequences_) pages += s.superseded.size();
  return pages;
}

}  // namespace csdsim::ftl
