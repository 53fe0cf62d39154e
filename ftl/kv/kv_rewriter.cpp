#include "ftl/kv/kv_rewriter.h"

#include <algorithm>
#include <utility>

#include "ftl/kv/kv_components.h"

namespace csdsim::ftl {

KvStatus KvRewriter::validate(const KvAppend& a) const {
  const KvSequence& s = a.sequence;
  if (const KvStatus status = a.check(flash_.store.carried()); status != KvStatus::ok) return status;
  const std::uint32_t shared = s.layout.page_heads;
  if (a.heads.first.value % shared != 0 || (a.end_head() % shared != 0 && a.end_head() != s.shape.kv_heads))
    return KvStatus::bad_head;
  const auto& layer = s.layers[a.layer.value];
  for (std::uint32_t i = 0; i < a.heads.count; ++i) {
    const std::uint64_t tokens = layer ? layer->heads[a.heads.first.value + i].tokens : 0;
    if (tokens < std::uint64_t{a.first} + a.count) return KvStatus::bad_token;
  }
  return KvStatus::ok;
}

/// The lost pages of whole groups and windows among the tokens. `waits`: one of them is on its way to flash.
std::vector<PhysicalPageAddress> KvRewriter::lost_pages(const KvAppend& a, bool& waits) const {
  std::vector<PhysicalPageAddress> lost;
  const auto consider = [&](const KvMapEntry& entry) {
    if (entry.in_dram()) {
      waits = waits || losses_.lost(entry.ppa());
    } else if (losses_.would_lose(entry.ppa())) {
      lost.push_back(entry.ppa());
    }
  };
  const KvLayout& l = a.sequence.layout;
  const KvLayer& layer = *a.sequence.layers[a.layer.value];
  for (std::uint32_t t = a.heads.first.value / l.page_heads; t * l.page_heads < a.end_head(); ++t) {
    const KvTile& tile = layer.tiles[t];
    const std::uint32_t end_group = std::min(tile.written_groups(), a.end() / l.group_tokens);
    for (std::uint32_t group = (a.first + l.group_tokens - 1) / l.group_tokens; group < end_group; ++group) {
      consider(tile.token(KvKind::key, group));
      if (!l.paired) consider(tile.token(KvKind::value, group));
    }
    if (!l.component_major) continue;
    for (std::uint32_t w = 0; w < tile.written_windows(l); ++w) {
      const KvWindow window = l.window(w);
      if (window.first < a.first || window.end() > a.end()) continue;
      for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge)
        consider(tile.embedding(l.embedding_position(window) + ge));
    }
    if (const PartialWindow* const partial = layer.heads[t].partial.get();
        partial != nullptr && l.window(partial->window).first >= a.first && partial->end <= a.end())
      std::ranges::for_each(partial->pages, consider);
  }
  return lost;
}

/// What a page held, from the rows of `a`. `partial_tokens`: of an embedding page that is not full.
std::span<const Half> KvRewriter::image(const KvAppend& a, const KvPageId& page, std::uint32_t partial_tokens) {
  const KvLayout& l = a.sequence.layout;
  const std::uint32_t d = l.row_words();
  image_.assign(l.page_size.value / kElementBytes, Half{});
  if (page.kind == PageKind::embedding) {
    const KvWindow window = l.window(page.window);
    const Half* const keys = a.rows(KvKind::key, page.key.head.value).data() + std::size_t{window.first - a.first} * d;
    const std::uint32_t tokens = partial_tokens > 0 ? partial_tokens : window.tokens;
    put_components(l, window, page.group, 0, {keys, std::size_t{tokens} * d}, image_);
    return image_;
  }
  const std::uint32_t end_head = std::min(page.key.head.value + l.page_heads, a.sequence.shape.kv_heads);
  for (const KvKind kind : {KvKind::key, KvKind::value}) {
    if (!l.paired && page.kind != token_page_kind(kind, l)) continue;
    for (std::uint32_t head = page.key.head.value; head < end_head; ++head) {
      const auto rows =
          a.rows(kind, head)
              .subspan(std::size_t{page.group * l.group_tokens - a.first} * d, std::size_t{l.group_tokens} * d);
      std::ranges::copy(rows, image_.begin() + static_cast<std::ptrdiff_t>(row_offset(l, kind, KvHead{head})));
    }
  }
  return image_;
}

/// ok, or why the pages cannot be written now.
KvStatus KvRewriter::check_room(const KvAppend& a, const std::vector<PhysicalPageAddress>& lost) const {
  if (flash_.blocks.read_only()) return KvStatus::read_only;
  if (lost.size() > flash_.appendable_pages()) return collector_.why_full(lost.size());
  if (!flash_.dram.fits(flash_.geometry.page_size * lost.size())) {
    return jobs_.idle() ? KvStatus::out_of_dram : KvStatus::busy;
  }
  for (const PhysicalPageAddress page : lost) {
    for (const SequenceId user : owners_.segment(owners_.of(page)).users) {
      // Reads of others may be under way; they would not keep the page that is replaced.
      if (user != a.sequence.id && table_.at(user).pins > 0) return KvStatus::busy;
    }
  }
  return KvStatus::ok;
}

AppendResult KvRewriter::rewrite(const KvAppend& a) {
  if (const KvStatus status = validate(a); status != KvStatus::ok) return {status, {}, {}};
  if (a.count == 0 || a.heads.count == 0) return {};
  AppendResult result;
  bool waits = false;
  if (const std::size_t pages = lost_pages(a, waits).size(); pages > 0) collector_.make_room(pages, result);
  const std::vector<PhysicalPageAddress> lost = lost_pages(a, waits);  // some of them may have moved
  if (waits) {
    result.status = KvStatus::busy;
  } else if (!lost.empty()) {
    result.status = check_room(a, lost);
    if (result.status == KvStatus::ok) result.jobs.push_back(program(a, lost));
  }
  return result;
}

FlushJob KvRewriter::program(const KvAppend& a, const std::vector<PhysicalPageAddress>& lost) {
  FlushJob job;
  job.id = jobs_.new_id();
  job.kind = FlushKind::rewrite;
  PendingMove move;
  move.only_copy = true;
  for (const PhysicalPageAddress from : lost) {
    const PageOwner owner = owners_.of(from);
    const KvPageId page = owners_.id_of(owner);
    const MapSegment& segment = owners_.segment(owner);
    const FoundEntry found = owners_.find(owner, from);
    const PhysicalPageAddress to = placer_.place(page, table_.at(segment.users.front()), owner, job);
    if (flash_.store.carried()) {
      flash_.store.write(to, std::as_bytes(image(a, page, found.partial_tokens)),
                         oob_tag(page, segment.layout, segment.number, found.partial_tokens));
    }
    a.sequence.supersede({found.entry, 1});
    *found.entry = KvMapEntry(to, false);
    move.pages.push_back({owner, to});
    move.sequences.insert(move.sequences.end(), segment.users.begin(), segment.users.end());
  }
  flash_.dram.charge(DramUse::flush_pending, flash_.geometry.page_size * lost.size());
  flash_.stats.pages_rewritten += lost.size();
  jobs_.begin_move(job.id, std::move(move));
  return job;
}

}  // namespace csdsim::ftl
