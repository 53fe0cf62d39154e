// Rows of K and V that the host writes again, because their pages cannot be read back.
#include <algorithm>
#include <utility>

#include "ftl/kv/kv_components.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

/// Whether a read would lose the page now. It is not counted as a read.
bool KvFtl::is_lost(PhysicalPageAddress ppa) const {
  if (lost_.contains(ppa.value)) return true;
  if (faults_ == nullptr || is_parked(ppa)) return false;
  const BlockId block = blocks_.block_of(ppa);
  return faults_->read(ppa, blocks_.erase_count(block), blocks_.reads(block)).uncorrectable;
}

KvStatus KvFtl::validate_rewrite(const Append& a) const {
  const Sequence& s = a.sequence;
  if (a.layer.value >= s.shape.layers) return KvStatus::bad_layer;
  if (std::uint64_t{a.heads.first.value} + a.heads.count > s.shape.kv_heads) return KvStatus::bad_head;
  const std::uint64_t elements = store_.carried() ? std::uint64_t{a.heads.count} * a.count * s.layout.row_words() : 0;
  if (a.keys.size() != elements || a.values.size() != elements) return KvStatus::bad_data;
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
std::vector<PhysicalPageAddress> KvFtl::lost_pages(const Append& a, bool& waits) const {
  std::vector<PhysicalPageAddress> lost;
  const auto consider = [&](const KvMapEntry& entry) {
    if (entry.in_dram()) {
      waits = waits || lost_.contains(entry.ppa().value);
    } else if (is_lost(entry.ppa())) {
      lost.push_back(entry.ppa());
    }
  };
  const KvLayout& l = a.sequence.layout;
  const Layer& layer = *a.sequence.layers[a.layer.value];
  for (std::uint32_t t = a.heads.first.value / l.page_heads; t * l.page_heads < a.end_head(); ++t) {
    const Tile& tile = layer.tiles[t];
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
std::span<const Half> KvFtl::rewritten_image(const Append& a, const KvPageId& page, std::uint32_t partial_tokens) {
  const KvLayout& l = a.sequence.layout;
  const std::uint32_t d = l.row_words();
  group_image_.assign(l.page_size.value / kElementBytes, Half{});
  if (page.kind == PageKind::embedding) {
    const KvWindow window = l.window(page.window);
    const Half* const keys = a.rows(KvKind::key, page.key.head.value).data() + std::size_t{window.first - a.first} * d;
    const std::uint32_t tokens = partial_tokens > 0 ? partial_tokens : window.tokens;
    put_components(l, window, page.group, 0, {keys, std::size_t{tokens} * d}, group_image_);
    return group_image_;
  }
  const std::uint32_t end_head = std::min(page.key.head.value + l.page_heads, a.sequence.shape.kv_heads);
  for (const KvKind kind : {KvKind::key, KvKind::value}) {
    if (!l.paired && page.kind != token_page_kind(kind, l)) continue;
    for (std::uint32_t head = page.key.head.value; head < end_head; ++head) {
      const auto rows =
          a.rows(kind, head)
              .subspan(std::size_t{page.group * l.group_tokens - a.first} * d, std::size_t{l.group_tokens} * d);
      std::ranges::copy(rows, group_image_.begin() + static_cast<std::ptrdiff_t>(row_offset(l, kind, KvHead{head})));
    }
  }
  return group_image_;
}

AppendResult KvFtl::rewrite(SequenceId id, LayerId layer, TokenIndex first, std::uint32_t count, HeadRange heads,
                            std::span<const Half> keys, std::span<const Half> values) {
  Sequence* const s = find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}, {}};
  const Append a{*s, layer, first.value, count, heads, keys, values};
  if (const KvStatus status = validate_rewrite(a); status != KvStatus::ok) return {status, {}, {}};
  if (count == 0 || heads.count == 0) return {};
  AppendResult result;
  const auto refuse = [&result](KvStatus status) {
    result.status = status;
    return std::move(result);
  };
  bool waits = false;
  if (const std::size_t pages = lost_pages(a, waits).size(); pages > 0) make_room(pages, result);
  const std::vector<PhysicalPageAddress> lost = lost_pages(a, waits);  // some of them may have moved
  if (waits) return refuse(KvStatus::busy);
  if (lost.empty()) return result;
  if (blocks_.read_only()) return refuse(KvStatus::read_only);
  if (lost.size() > appendable_pages())
    return refuse(room_may_come(lost.size() + parked_.size()) ? KvStatus::busy : KvStatus::out_of_space);
  if (!dram_.fits(geometry_.page_size * lost.size()))
    return refuse(pending_.empty() && moves_.empty() ? KvStatus::out_of_dram : KvStatus::busy);

  PendingMove move;
  move.only_copy = true;
  for (const PhysicalPageAddress from : lost)
    for (const SequenceId user : slots_[owners_.get(from.value).slot]->users) {
      // Reads of others may be under way; they would not keep the page that is replaced.
      if (user != id && sequences_.at(user).pins > 0) return refuse(KvStatus::busy);
      move.sequences.push_back(user);
    }
  FlushJob job;
  job.id = FlushJobId{next_job_++};
  job.kind = FlushKind::rewrite;
  for (const PhysicalPageAddress from : lost) {
    const PageOwner owner = owners_.get(from.value);
    const KvPageId page = page_id(owner);
    const MapSegment& segment = *slots_[owner.slot];
    const FoundEntry found = find_entry(owner, from);
    const PhysicalPageAddress to = place(page, sequences_.at(segment.users.front()), owner, job);
    if (store_.carried())
      store_.write(to, std::as_bytes(rewritten_image(a, page, found.partial_tokens)),
                   oob_tag(page, segment.layout, segment.number, found.partial_tokens));
    supersede(*s, {found.entry, 1});
    *found.entry = KvMapEntry(to, false);
    move.pages.push_back({owner, to});
  }
  std::ranges::sort(move.sequences);
  move.sequences.erase(std::unique(move.sequences.begin(), move.sequences.end()), move.sequences.end());
  for (const SequenceId user : move.sequences) ++sequences_.at(user).pins;
  dram_.charge(DramUse::flush_pending, geometry_.page_size * lost.size());
  stats_.pages_rewritten += lost.size();
  moves_.emplace(job.id.value, std::move(move));
  result.jobs.push_back(std::move(job));
  return result;
}

}  // namespace csdsim::ftl
