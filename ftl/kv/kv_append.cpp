// Appending tokens: tails in DRAM and token pages.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_pages.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

KvStatus KvFtl::validate(const Append& a) const {
  const Sequence& s = a.sequence;
  if (a.layer.value >= s.shape.layers) return KvStatus::bad_layer;
  if (std::uint64_t{a.heads.first.value} + a.heads.count > s.shape.kv_heads) return KvStatus::bad_head;
  if (std::uint64_t{a.first} + a.count > std::numeric_limits<std::uint32_t>::max()) return KvStatus::bad_token;
  const std::uint64_t elements = store_.carried() ? std::uint64_t{a.heads.count} * a.count * s.layout.row_words() : 0;
  if (a.keys.size() != elements || a.values.size() != elements) return KvStatus::bad_data;
  const auto& layer = s.layers[a.layer.value];
  for (std::uint32_t i = 0; i < a.heads.count; ++i) {
    const std::uint32_t tokens = layer ? layer->heads[a.heads.first.value + i].tokens : 0;
    if (tokens != a.first) return KvStatus::bad_token;
  }
  return KvStatus::ok;
}

/// Fills plan_: which groups and windows are written when the tokens are there.
void KvFtl::plan(const Append& a) {
  const Sequence& s = a.sequence;
  const KvLayout& l = s.layout;
  const Layer* layer = s.layers[a.layer.value].get();
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
      const std::uint32_t due = policy_->groups_to_write(s.info(), tokens, p.old_groups);
      if (due > full - p.old_groups) {
        throw PolicyError(fmt::format(
            "mapping policy \"{}\": groups_to_write({}) at {} tokens returned {}: {} groups of "
            "{} tokens are full and {} of them are written",
            policy_->name(), to_string(KvPageId{a.key(tile_first)}), tokens, due, full, l.group_tokens, p.old_groups));
      }
      p.new_groups += due;
    }
    if (!l.component_major) continue;
    p.old_windows = p.new_windows = layer != nullptr ? layer->tiles[t].written_windows(l) : 0;
    // A tail in DRAM has the keys of a window whether their token pages are written or not.
    const std::uint32_t there = config_.tail == TailPolicy::dram ? a.end() : p.new_groups * l.group_tokens;
    if (there < l.window(p.old_windows).end() && config_.tail != TailPolicy::partial_program) continue;
    p.new_windows = static_cast<std::uint32_t>(l.full_windows(there));
    if (config_.tail == TailPolicy::partial_program) {
      static const Head untouched;
      const Head& head = layer != nullptr ? layer->heads[p.first_head] : untouched;
      p.partial_end = partial_target(l, head, p.new_windows, there);
    }
  }
}

/// Books the pages that the append programs and what it needs of DRAM, or says why it cannot.
KvStatus KvFtl::book(const Append& a, std::uint64_t pages) {
  Sequence& s = a.sequence;
  const KvLayout& l = s.layout;
  const Layer* layer = s.layers[a.layer.value].get();
  Bytes table;
  std::uint64_t rows_before = 0, rows_after = 0;  // in group buffers
  std::uint64_t keys_before = 0, keys_after = 0;  // in component-major tails
  for (const TilePlan& p : plan_) {
    const std::uint64_t heads = p.end_head - p.first_head;
    const std::uint64_t tile_heads = std::min(l.page_heads, s.shape.kv_heads - p.tile * l.page_heads);
    const std::uint64_t written = std::uint64_t{p.new_groups - p.old_groups};
    if (const std::uint64_t mapped = p.mapped_pages(l); mapped > 0) {
      const std::uint64_t held = layer != nullptr ? layer->tiles[p.tile].segments.back()->map.pages() : 0;
      const Bytes before = held > 0 ? layer->tiles[p.tile].segments.back()->table : Bytes{};
      const Bytes after = policy_->table_bytes(s.info(), held + mapped);
      if (after < before) {
        throw PolicyError(fmt::format(
            "mapping policy \"{}\": table_bytes({}) shrinks from {} to {} bytes when {} pages "
            "become {}",
            policy_->name(), to_string(KvPageId{a.key(p.first_head)}), before.value, after.value, held, held + mapped));
      }
      table += after - before;
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
    rows_before += held_rows;
    rows_after += held_rows + heads * a.count - leave;
    if (config_.tail == TailPolicy::dram && l.component_major) {
      keys_before += heads * (a.first - l.window(p.old_windows).first);
      keys_after += heads * (a.end() - l.window(p.new_windows).first);
    }
  }
  if (pages > 0 && blocks_.read_only()) return KvStatus::read_only;
  if (pages > appendable_pages()) {
    return room_may_come(pages + parked_.size()) ? KvStatus::busy : KvStatus::out_of_space;
  }

  std::array<Bytes, kDramUses> before{};
  std::array<Bytes, kDramUses> after{};
  const auto set = [&](DramUse use, Bytes from, Bytes to) {
    before[static_cast<std::size_t>(use)] = from;
    after[static_cast<std::size_t>(use)] = to;
  };
  set(DramUse::group_buffer, l.row() * (2 * rows_before), l.row() * (2 * rows_after));
  set(DramUse::component_tail, l.row() * keys_before, l.row() * keys_after);
  if (a.first == 0) set(DramUse::value_mean, {}, Bytes{sizeof(float)} * l.head_dim * a.heads.count);
  set(DramUse::map, {}, table);
  set(DramUse::flush_pending, {}, l.page_size * pages);

  Bytes gone;
  Bytes come;
  for (std::size_t use = 0; use < kDramUses; ++use) {
    gone += before[use];
    come += after[use];
  }
  const Bytes kept = dram_.used() - gone;
  if (kept + come > dram_.capacity()) {
    const Bytes drains = draining_dram();
    return kept - drains + come > dram_.capacity() ? KvStatus::out_of_dram : KvStatus::busy;
  }
  for (std::size_t use = 0; use < kDramUses; ++use) dram_.release(static_cast<DramUse>(use), before[use]);
  for (std::size_t use = 0; use < kDramUses; ++use) {
    dram_.charge(static_cast<DramUse>(use), after[use]);
    if (static_cast<DramUse>(use) == DramUse::flush_pending || static_cast<DramUse>(use) == DramUse::map) continue;
    s.dram[use] = s.dram[use] - before[use] + after[use];
  }
  return KvStatus::ok;
}

KvFtl::Layer& KvFtl::layer_of(const Append& a) {
  Sequence& s = a.sequence;
  auto& slot = s.layers[a.layer.value];
  if (slot) return *slot;
  slot = std::make_unique<Layer>();
  slot->heads.resize(s.shape.kv_heads);
  slot->tiles.resize(s.tiles());
  // Growing maps by doubling would waste up to half of them; a hint that the flash could never hold is not believed.
  const std::uint64_t hinted = s.layout.pages(s.shape.max_tokens).total() * s.tiles();
  for (std::uint32_t t = 0; t < s.tiles(); ++t) {
    slot->tiles[t].segments.push_back(new_segment(a.key(t * s.layout.page_heads), s.segment, nullptr, s.layout));
    if (hinted <= blocks_.available_pages()) {
      slot->tiles[t].segments.back()->map.reserve(s.layout, s.shape.max_tokens);
    }
  }
  return *slot;
}

AppendResult KvFtl::append(SequenceId id, LayerId layer, TokenIndex first, std::uint32_t count, HeadRange heads,
                           std::span<const Half> keys, std::span<const Half> values) {
  Sequence* s = find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}, {}};
  const Append a{*s, layer, first.value, count, heads, keys, values};
  if (const KvStatus status = validate(a); status != KvStatus::ok) return {status, {}, {}};
  if (count == 0 || heads.count == 0) return {};
  plan(a);
  AppendResult result;
  std::uint64_t pages = 0;
  for (const TilePlan& p : plan_) pages += p.pages(s->layout);
  make_room(pages, result);
  result.status = book(a, pages);
  if (result.status != KvStatus::ok) return result;
  Layer& into = layer_of(a);
  for (const TilePlan& p : plan_) append_tile(a, into, p, result.jobs);
  return result;
}

void KvFtl::append_tile(const Append& a, Layer& layer, const TilePlan& p, std::vector<FlushJob>& jobs) {
  const KvLayout& l = a.sequence.layout;
  if (p.new_groups > p.old_groups) write_groups(a, layer, p, jobs);
  for (std::uint32_t h = p.first_head; h < p.end_head; ++h) {
    if (store_.carried()) update_value_mean(a, KvHead{h}, layer.heads[h]);
  }
  if (store_.carried()) {
    const std::uint32_t tile_first = p.tile * l.page_heads;
    const std::uint32_t tile_end = std::min(tile_first + l.page_heads, a.sequence.shape.kv_heads);
    for (std::uint32_t h = tile_first; h < tile_end; ++h) {
      keep_tail(a, KvHead{h}, layer.heads[h], p.old_groups * l.group_tokens, p.new_groups * l.group_tokens);
    }
  }
  for (std::uint32_t h = p.first_head; h < p.end_head; ++h) layer.heads[h].tokens = a.end();
  if (l.component_major) write_windows(a, layer, p, jobs);
  if (p.new_groups > p.old_groups || p.new_windows > p.old_windows) {
    MapSegment& segment = *layer.tiles[p.tile].segments.back();
    segment.table = policy_->table_bytes(a.sequence.info(), segment.map.pages());
  }
}

void KvFtl::update_value_mean(const Append& a, KvHead h, Head& head) {
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
std::span<const Half> KvFtl::group_image(const Append& a, Layer& layer, const TilePlan& p, std::uint32_t group,
                                         PageKind page) {
  const KvLayout& l = a.sequence.layout;
  const std::uint32_t d = l.row_words(), n = l.group_tokens, first = group * n, end = first + n;
  const std::size_t size = l.page_size.value / kElementBytes;
  if (l.page_heads == 1 && !l.paired && first >= a.first && std::size_t{n} * d == size) {
    const KvKind kind = page == PageKind::token_k ? KvKind::key : KvKind::value;
    return a.rows(kind, p.first_head).subspan(std::size_t{first - a.first} * d, size);
  }
  group_image_.assign(size, Half{});
  const std::uint32_t tail_first = p.old_groups * n;
  const std::uint32_t tile_first = p.tile * l.page_heads;
  const std::uint32_t tile_end = std::min(tile_first + l.page_heads, a.sequence.shape.kv_heads);
  for (const KvKind kind : {KvKind::key, KvKind::value}) {
    if (!l.paired && page != token_page_kind(kind, l)) continue;
    for (std::uint32_t h = tile_first; h < tile_end; ++h) {
      Half* const to = group_image_.data() + row_offset(l, kind, KvHead{h});
      const Head& head = layer.heads[h];
      const std::vector<Half>& tail = kind == KvKind::key ? head.key_tail : head.value_tail;
      const std::uint32_t from_tail = std::clamp(a.appends_to(h) ? a.first : end, first, end);
      std::copy_n(tail.data() + std::size_t{first - tail_first} * d, std::size_t{from_tail - first} * d, to);
      if (from_tail == end) continue;
      const auto rows = a.rows(kind, h).subspan(std::size_t{from_tail - a.first} * d, std::size_t{end - from_tail} * d);
      std::ranges::copy(rows, to + std::size_t{from_tail - first} * d);
    }
  }
  return group_image_;
}

/// Rows that are in no token page stay, or come, into the tail: those before `written` leave it, which began at `from`.
void KvFtl::keep_tail(const Append& a, KvHead h, Head& head, std::uint32_t from, std::uint32_t written) {
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

void KvFtl::write_groups(const Append& a, Layer& layer, const TilePlan& p, std::vector<FlushJob>& jobs) {
  Sequence& s = a.sequence;
  const KvLayout& l = s.layout;
  Tile& tile = layer.tiles[p.tile];
  MapSegment& segment = *tile.segments.back();
  const HeadKey key = a.key(p.tile * l.page_heads);
  const std::uint32_t per_group = l.pages_per_group();
  const std::uint32_t count = p.new_groups - p.old_groups;
  FlushJob job;
  job.id = begin_flush(s, {key, PendingFlush::What::groups, p.old_groups, count, count * per_group});
  job.programs.reserve(std::size_t{count} * per_group);
  for (std::uint32_t group = p.old_groups; group < p.new_groups; ++group) {
    for (std::uint32_t i = 0; i < per_group; ++i) {
      const PageKind kind = token_page_kind(i == 0 ? KvKind::key : KvKind::value, l);
      const KvPageId page{key, kind, group, 0};
      const PhysicalPageAddress to = place(page, s, {segment.slot, group * per_group + i}, job);
      if (store_.carried()) {
        store_.write(to, std::as_bytes(group_image(a, layer, p, group, kind)), oob_tag(page, l, segment.number));
      }
      segment.map.push_token({to, false});
    }
  }
  stats_.token_pages_programmed += std::uint64_t{count} * per_group;
  jobs.push_back(std::move(job));
}

}  // namespace csdsim::ftl
