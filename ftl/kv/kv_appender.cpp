#include "ftl/kv/kv_appender.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace csdsim::ftl {

AppendResult KvAppender::append(const KvAppend& a) {
  if (const KvStatus status = validate(a); status != KvStatus::ok) return {status, {}, {}};
  if (a.count == 0 || a.heads.count == 0) return {};
  plan(a);
  AppendResult result;
  std::uint64_t pages = 0;
  for (const TilePlan& p : plan_) pages += p.pages(a.sequence.layout);
  collector_.make_room(pages, result);
  result.status = book(a, pages);
  if (result.status != KvStatus::ok) return result;
  KvLayer& into = layer_of(a);
  for (const TilePlan& p : plan_) append_tile(a, into, p, result.jobs);
  return result;
}

KvStatus KvAppender::validate(const KvAppend& a) const {
  const KvSequence& s = a.sequence;
  if (const KvStatus status = a.check(flash_.store.carried()); status != KvStatus::ok) return status;
  if (std::uint64_t{a.first} + a.count > std::numeric_limits<std::uint32_t>::max()) return KvStatus::bad_token;
  const auto& layer = s.layers[a.layer.value];
  for (std::uint32_t i = 0; i < a.heads.count; ++i) {
    const std::uint32_t tokens = layer ? layer->heads[a.heads.first.value + i].tokens : 0;
    if (tokens != a.first) return KvStatus::bad_token;
  }
  return KvStatus::ok;
}

/// Fills plan_: which groups and windows are written when the tokens are there.
void KvAppender::plan(const KvAppend& a) {
  const KvSequence& s = a.sequence;
  const KvLayout& l = s.layout;
  const KvLayer* layer = s.layers[a.layer.value].get();
  const TailPolicy tail = flash_.config.tail;
  plan_.clear();
  for (std::uint32_t t = a.heads.first.value / l.page_heads; t * l.page_heads < a.end_head(); ++t) {
    TilePlan& p = plan_.emplace_back();
    const std::uint32_t tile_first = t * l.page_heads;
    const std::uint32_t tile_end = std::min(tile_first + l.page_heads, s.shape.kv_heads);
    p.tile = t;
    p.first_head = std::max(tile_first, a.heads.first.value);
    p.end_head = std::min(tile_end, a.end_head());
    std::uint32_t tokens = a.end();
    if (p.first_head != tile_first || p.end_head != tile_end) {
      for (std::uint32_t h = tile_first; h < tile_end; ++h) {
        if (!a.appends_to(h)) tokens = std::min(tokens, layer != nullptr ? layer->heads[h].tokens : 0);
      }
    }
    p.old_groups = p.new_groups = layer != nullptr ? layer->tiles[t].written_groups() : 0;
    if (const auto full = static_cast<std::uint32_t>(l.full_groups(tokens)); full > p.old_groups) {
      const std::uint32_t due = policy_.groups_to_write(s.info(), tokens, p.old_groups);
      if (due > full - p.old_groups) {
        throw PolicyError(fmt::format(
            "mapping policy \"{}\": groups_to_write({}) at {} tokens returned {}: {} groups of "
            "{} tokens are full and {} of them are written",
            policy_.name(), to_string(KvPageId{a.key(tile_first)}), tokens, due, full, l.group_tokens, p.old_groups));
      }
      p.new_groups += due;
    }
    if (!l.component_major) continue;
    p.old_windows = p.new_windows = layer != nullptr ? layer->tiles[t].written_windows(l) : 0;
    // A tail in DRAM has the keys of a window whether their token pages are written or not.
    const std::uint32_t there = tail == TailPolicy::dram ? a.end() : p.new_groups * l.group_tokens;
    if (there < l.window(p.old_windows).end() && tail != TailPolicy::partial_program) continue;
    p.new_windows = static_cast<std::uint32_t>(l.full_windows(there));
    if (tail == TailPolicy::partial_program) {
      static const KvHeadState untouched;
      const KvHeadState& head = layer != nullptr ? layer->heads[p.first_head] : untouched;
      p.partial_end = windows_.partial_target(l, head, p.new_windows, there);
    }
  }
}

KvAppender::Tails KvAppender::change_of_tails(const KvAppend& a) const {
  const KvSequence& s = a.sequence;
  const KvLayout& l = s.layout;
  const KvLayer* layer = s.layers[a.layer.value].get();
  Tails tails;
  for (const TilePlan& p : plan_) {
    const std::uint64_t heads = p.end_head - p.first_head;
    const std::uint64_t tile_heads = std::min(l.page_heads, s.shape.kv_heads - p.tile * l.page_heads);
    const std::uint64_t written = std::uint64_t{p.new_groups - p.old_groups};
    if (const std::uint64_t mapped = p.mapped_pages(l); mapped > 0) {
      const std::uint64_t held = layer != nullptr ? layer->tiles[p.tile].segments.back()->map.pages() : 0;
      const Bytes before = held > 0 ? layer->tiles[p.tile].segments.back()->table : Bytes{};
      const Bytes after = policy_.table_bytes(s.info(), held + mapped);
      if (after < before) {
        throw PolicyError(fmt::format(
            "mapping policy \"{}\": table_bytes({}) shrinks from {} to {} bytes when {} pages "
            "become {}",
            policy_.name(), to_string(KvPageId{a.key(p.first_head)}), before.value, after.value, held, held + mapped));
      }
      tails.table += after - before;
    }
    // Rows of the tile's other heads leave with the groups that are written.
    const std::uint64_t leave = written * l.group_tokens * tile_heads;
    std::uint64_t others = 0;
    if (leave > 0 && heads < tile_heads) {
      for (std::uint64_t h = p.tile * l.page_heads; h < p.tile * l.page_heads + tile_heads; ++h) {
        if (!a.appends_to(static_cast<std::uint32_t>(h))) {
          others += layer->heads[h].tokens - std::uint64_t{p.old_groups} * l.group_tokens;
        }
      }
    }
    const std::uint64_t held_rows = heads * (a.first - std::uint64_t{p.old_groups} * l.group_tokens) + others;
    tails.rows_before += held_rows;
    tails.rows_after += held_rows + heads * a.count - leave;
    if (flash_.config.tail == TailPolicy::dram && l.component_major) {
      tails.keys_before += heads * (a.first - l.window(p.old_windows).first);
      tails.keys_after += heads * (a.end() - l.window(p.new_windows).first);
    }
  }
  return tails;
}

/// Books the pages that the append programs and what it needs of DRAM, or says why it cannot.
KvStatus KvAppender::book(const KvAppend& a, std::uint64_t pages) {
  const KvLayout& l = a.sequence.layout;
  const Tails tails = change_of_tails(a);
  if (pages > 0 && flash_.blocks.read_only()) return KvStatus::read_only;
  if (pages > flash_.appendable_pages()) return collector_.why_full(pages);

  DramUses before{};
  DramUses after{};
  const auto set = [&](DramUse use, Bytes from, Bytes to) {
    before[static_cast<std::size_t>(use)] = from;
    after[static_cast<std::size_t>(use)] = to;
  };
  set(DramUse::group_buffer, l.row() * (2 * tails.rows_before), l.row() * (2 * tails.rows_after));
  set(DramUse::component_tail, l.row() * tails.keys_before, l.row() * tails.keys_after);
  if (a.first == 0) set(DramUse::value_mean, {}, Bytes{sizeof(float)} * l.head_dim * a.heads.count);
  set(DramUse::map, {}, tails.table);
  set(DramUse::flush_pending, {}, l.page_size * pages);
  return book_dram(a.sequence, before, after);
}

KvStatus KvAppender::book_dram(KvSequence& s, const DramUses& before, const DramUses& after) {
  DramBudget& dram = flash_.dram;
  Bytes gone;
  Bytes come;
  for (std::size_t use = 0; use < kDramUses; ++use) {
    gone += before[use];
    come += after[use];
  }
  const Bytes kept = dram.used() - gone;
  if (kept + come > dram.capacity()) {
    const Bytes drains = sequences_.draining_dram();
    return kept - drains + come > dram.capacity() ? KvStatus::out_of_dram : KvStatus::busy;
  }
  for (std::size_t use = 0; use < kDramUses; ++use) dram.release(static_cast<DramUse>(use), before[use]);
  for (std::size_t use = 0; use < kDramUses; ++use) {
    dram.charge(static_cast<DramUse>(use), after[use]);
    if (static_cast<DramUse>(use) == DramUse::flush_pending || static_cast<DramUse>(use) == DramUse::map) continue;
    s.dram[use] = s.dram[use] - before[use] + after[use];
  }
  return KvStatus::ok;
}

KvLayer& KvAppender::layer_of(const KvAppend& a) {
  KvSequence& s = a.sequence;
  auto& slot = s.layers[a.layer.value];
  if (slot) return *slot;
  slot = std::make_unique<KvLayer>();
  slot->heads.resize(s.shape.kv_heads);
  slot->tiles.resize(s.tiles());
  // Growing maps by doubling would waste up to half of them; a hint that the flash could never hold is not believed.
  const std::uint64_t hinted = s.layout.pages(s.shape.max_tokens).total() * s.tiles();
  for (std::uint32_t t = 0; t < s.tiles(); ++t) {
    slot->tiles[t].segments.push_back(
        sequences_.new_segment(a.key(t * s.layout.page_heads), s.segment, nullptr, s.layout));
    if (hinted <= flash_.blocks.available_pages()) {
      slot->tiles[t].segments.back()->map.reserve(s.layout, s.shape.max_tokens);
    }
  }
  return *slot;
}

void KvAppender::append_tile(const KvAppend& a, KvLayer& layer, const TilePlan& p, std::vector<FlushJob>& jobs) {
  const KvLayout& l = a.sequence.layout;
  if (p.new_groups > p.old_groups) write_groups(a, layer, p, jobs);
  if (flash_.store.carried()) {
    for (std::uint32_t h = p.first_head; h < p.end_head; ++h) update_value_mean(a, KvHead{h}, layer.heads[h]);
    const std::uint32_t tile_first = p.tile * l.page_heads;
    const std::uint32_t tile_end = std::min(tile_first + l.page_heads, a.sequence.shape.kv_heads);
    for (std::uint32_t h = tile_first; h < tile_end; ++h) {
      keep_tail(a, KvHead{h}, layer.heads[h], p.old_groups * l.group_tokens, p.new_groups * l.group_tokens);
    }
  }
  for (std::uint32_t h = p.first_head; h < p.end_head; ++h) layer.heads[h].tokens = a.end();
  if (l.component_major) windows_.write(a, layer, p, jobs);
  if (p.new_groups > p.old_groups || p.new_windows > p.old_windows) {
    MapSegment& segment = *layer.tiles[p.tile].segments.back();
    segment.table = policy_.table_bytes(a.sequence.info(), segment.map.pages());
  }
}

void KvAppender::update_value_mean(const KvAppend& a, KvHead h, KvHeadState& head) {
  const KvLayout& l = a.sequence.layout;
  const std::uint32_t d = l.head_dim;
  head.value_mean.resize(d);
  std::span<const Half> rows = a.rows(KvKind::value, h.value);
  if (l.format.quantised()) {
    row_values_.resize(std::size_t{a.count} * d);
    dequantise_rows(l.format, std::as_bytes(rows), d, row_values_);
    rows = row_values_;
  }
  for (std::uint32_t t = 0; t < a.count; ++t) {
    const auto tokens = static_cast<float>(a.first + t + 1);
    for (std::uint32_t i = 0; i < d; ++i) {
      head.value_mean[i] += (half_to_float(rows[std::size_t{t} * d + i]) - head.value_mean[i]) / tokens;
    }
  }
}

/// The bytes of a token page. Rows of tokens that were there before come from the tails, the others from the input;
/// where all of a page's rows lie side by side in the input nothing is copied.
std::span<const Half> KvAppender::group_image(const KvAppend& a, KvLayer& layer, const TilePlan& p, std::uint32_t group,
                                              PageKind page) {
  const KvLayout& l = a.sequence.layout;
  const std::uint32_t d = l.row_words(), n = l.group_tokens, first = group * n, end = first + n;
  const std::size_t size = l.page_size.value / kElementBytes;
  if (l.page_heads == 1 && !l.paired && first >= a.first && std::size_t{n} * d == size) {
    const KvKind kind = page == PageKind::token_k ? KvKind::key : KvKind::value;
    return a.rows(kind, p.first_head).subspan(std::size_t{first - a.first} * d, size);
  }
  image_.assign(size, Half{});
  const std::uint32_t tail_first = p.old_groups * n;
  const std::uint32_t tile_first = p.tile * l.page_heads;
  const std::uint32_t tile_end = std::min(tile_first + l.page_heads, a.sequence.shape.kv_heads);
  for (const KvKind kind : {KvKind::key, KvKind::value}) {
    if (!l.paired && page != token_page_kind(kind, l)) continue;
    for (std::uint32_t h = tile_first; h < tile_end; ++h) {
      Half* const to = image_.data() + row_offset(l, kind, KvHead{h});
      const KvHeadState& head = layer.heads[h];
      const std::vector<Half>& tail = kind == KvKind::key ? head.key_tail : head.value_tail;
      const std::uint32_t from_tail = std::clamp(a.appends_to(h) ? a.first : end, first, end);
      std::copy_n(tail.data() + std::size_t{first - tail_first} * d, std::size_t{from_tail - first} * d, to);
      if (from_tail == end) continue;
      const auto rows = a.rows(kind, h).subspan(std::size_t{from_tail - a.first} * d, std::size_t{end - from_tail} * d);
      std::ranges::copy(rows, to + std::size_t{from_tail - first} * d);
    }
  }
  return image_;
}

/// Rows that are in no token page stay, or come, into the tail: those before `written` leave it, which began at `from`.
void KvAppender::keep_tail(const KvAppend& a, KvHead h, KvHeadState& head, std::uint32_t from, std::uint32_t written) {
  const std::uint32_t d = a.sequence.layout.row_words();
  for (const KvKind kind : {KvKind::key, KvKind::value}) {
    std::vector<Half>& tail = kind == KvKind::key ? head.key_tail : head.value_tail;
    const std::size_t gone = std::min<std::size_t>(tail.size(), std::size_t{written - from} * d);
    tail.erase(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(gone));
    if (!a.appends_to(h.value)) continue;
    const std::uint32_t first = std::max(a.first, written);
    if (first >= a.end()) continue;
    const auto rows = a.rows(kind, h.value).subspan(std::size_t{first - a.first} * d);
    tail.insert(tail.end(), rows.begin(), rows.end());
  }
}

void KvAppender::write_groups(const KvAppend& a, KvLayer& layer, const TilePlan& p, std::vector<FlushJob>& jobs) {
  KvSequence& s = a.sequence;
  const KvLayout& l = s.layout;
  KvTile& tile = layer.tiles[p.tile];
  MapSegment& segment = *tile.segments.back();
  const HeadKey key = a.key(p.tile * l.page_heads);
  const std::uint32_t per_group = l.pages_per_group();
  const std::uint32_t count = p.new_groups - p.old_groups;
  FlushJob job;
  job.id = jobs_.begin_flush(s, {key, PendingFlush::What::groups, p.old_groups, count, count * per_group});
  job.programs.reserve(std::size_t{count} * per_group);
  for (std::uint32_t group = p.old_groups; group < p.new_groups; ++group) {
    for (std::uint32_t i = 0; i < per_group; ++i) {
      const PageKind kind = token_page_kind(i == 0 ? KvKind::key : KvKind::value, l);
      const KvPageId page{key, kind, group, 0};
      const PhysicalPageAddress to = placer_.place(page, s, {segment.slot, group * per_group + i}, job);
      if (flash_.store.carried()) {
        flash_.store.write(to, std::as_bytes(group_image(a, layer, p, group, kind)), oob_tag(page, l, segment.number));
      }
      segment.map.push_token({to, false});
    }
  }
  flash_.stats.token_pages_programmed += std::uint64_t{count} * per_group;
  jobs.push_back(std::move(job));
}

}  // namespace csdsim::ftl
