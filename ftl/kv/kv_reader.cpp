#include "ftl/kv/kv_reader.h"

#include <vector>

#include "base/error.h"
#include "base/touched_blocks.h"
#include "ftl/kv/kv_components.h"

namespace csdsim::ftl {

namespace {

/// Bytes of the codewords that hold the rows of `groups`, of fetch_tokens() tokens each, in one token page.
std::uint64_t codeword_bytes(const KvLayout& l, const HeadKey& key, KvRows which, KvKind kind,
                             std::span<const std::uint32_t> groups) {
  const std::uint64_t size = l.fetch_tokens() * l.row().value, page = l.group_tokens / l.fetch_tokens();
  TouchedBlocks touched(l.codeword.value);
  const auto add = [&](KvKind part) {
    const std::uint64_t base = row_offset(l, part, key.head) * kElementBytes;
    for (const std::uint32_t group : groups) touched.add(base + group % page * size, size);
  };
  add(l.paired && which == KvRows::values ? KvKind::value : kind);
  if (l.paired && which == KvRows::both) add(KvKind::value);
  return touched.size();
}

}  // namespace

void KvReader::plan_page(const HeadKey& key, const KvMapEntry& entry, std::uint64_t channel_bytes, std::uint64_t wanted,
                         ReadPlan& out) {
  bool lost = false;
  if (entry.in_dram()) {
    lost = losses_.lost(entry.ppa());
  } else {
    const PlannedRead read = reader_.plan(entry.ppa(), OpClass::attend);
    lost = read.lost;
    out.ops.push_back(read.op);
    out.ops.back().channel_bytes = static_cast<std::uint32_t>(channel_bytes);
    out.wanted.push_back(static_cast<std::uint32_t>(wanted));
    pages_.note_read(entry.ppa());
  }
  if (lost) losses_.report(key.sequence, entry.ppa());
}

void KvReader::plan_token_groups(const HeadKey& key, KvRows which, std::span<const std::uint32_t> groups,
                                 std::span<const std::uint32_t> rows, ReadPlan& out) {
  const KvHeadState& h = table_.head(key);
  const KvTile& t = table_.tile(key);
  const KvLayout& l = table_.layout(key.sequence);
  const std::uint32_t written = t.written_groups();
  const std::uint32_t fetched = l.fetch_tokens(), in_page = l.group_tokens / fetched;
  const std::uint64_t present = (std::uint64_t{h.tokens} + fetched - 1) / fetched;
  const std::size_t before = out.ops.size();
  const std::uint64_t row = l.row().value;
  const auto wanted_rows = [&](std::size_t i) { return rows.empty() ? fetched : rows[i]; };
  const auto plan_codewords = [&](KvKind kind, std::uint32_t kinds) {
    for (std::size_t i = 0; i < groups.size();) {
      const std::uint32_t page = groups[i] / in_page;
      const std::size_t first_group = i;
      std::uint64_t wanted = 0;
      for (; i < groups.size() && groups[i] / in_page == page; ++i) {
        if (groups[i] >= present)
          throw bad_page({key, token_page_kind(kind, l), page, 0}, "there is no such token group");
        wanted += wanted_rows(i) * kinds * row;
      }
      ++flash_.stats.lookups;
      const std::uint32_t first = page * l.group_tokens;
      if (page < written &&
          !losses_.report_dropped({key, token_page_kind(kind, l), page, 0}, first, first + l.group_tokens))
        plan_page(key, t.token(kind, page),
                  codeword_bytes(l, key, which, kind, groups.subspan(first_group, i - first_group)), wanted, out);
    }
  };
  const auto plan = [&](KvKind kind, std::uint32_t kinds) {
    if (l.codeword.value > 0) return plan_codewords(kind, kinds);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i] >= present) {
        throw bad_page({key, token_page_kind(kind, l), groups[i], 0}, "there is no such token group");
      }
      if (groups[i] >= written) continue;
      const std::uint32_t first = groups[i] * l.group_tokens;
      if (losses_.report_dropped({key, token_page_kind(kind, l), groups[i], 0}, first, first + l.group_tokens))
        continue;
      plan_page(key, t.token(kind, groups[i]), l.page_size.value, wanted_rows(i) * kinds * row, out);
    }
    flash_.stats.lookups += groups.size();
  };
  if (l.paired) {
    plan(KvKind::key, which == KvRows::both ? 2 : 1);
  } else {
    if (which != KvRows::values) plan(KvKind::key, 1);
    if (which == KvRows::both) out.values_from = out.ops.size();
    if (which != KvRows::keys) plan(KvKind::value, 1);
  }
  out.lookups += policy_.lookups(table_.at(key.sequence).info(), out.ops.size() - before);
}

void KvReader::plan_embedding_groups(const HeadKey& key, std::span<const std::uint32_t> groups,
                                     std::span<const std::uint32_t> rows, ReadPlan& out) {
  const KvHeadState& h = table_.head(key);
  const KvTile& t = table_.tile(key);
  const KvLayout& l = table_.layout(key.sequence);
  const std::size_t before = out.ops.size();
  const std::uint32_t full = readable_windows(t, h, l);
  const std::uint32_t windows = table_.transposed_windows(key);
  const std::uint32_t fetched = l.fetch_components();
  for (std::uint32_t w = 0; w < windows; ++w) {
    const KvWindow window = l.window(w);
    const std::uint32_t finer = window.group / fetched;
    const std::uint64_t position = l.embedding_position(window);
    const std::uint32_t tokens = w < full ? window.tokens : h.partial->end - window.first;
    for (std::size_t i = 0; i < groups.size();) {
      const std::uint32_t ge = groups[i] / finer;
      if (ge >= l.embedding_pages(window)) {
        throw bad_page({key, PageKind::embedding, ge, w}, "there is no such embedding group");
      }
      std::uint64_t runs = 0;
      ComponentReads reads(l, window, ge);
      for (; i < groups.size() && groups[i] / finer == ge; ++i) {
        runs += rows.empty() ? fetched : rows[i];
        reads.add(groups[i] % finer * fetched, fetched);
      }
      ++flash_.stats.lookups;
      if (losses_.report_dropped({key, PageKind::embedding, ge, w}, window.first, window.first + tokens)) continue;
      const KvMapEntry& e = w < full ? t.embedding(position + ge) : h.partial->pages[ge];
      plan_page(key, e, reads.channel_bytes(), reads.wanted(runs, tokens), out);
    }
  }
  out.lookups += policy_.lookups(table_.at(key.sequence).info(), out.ops.size() - before);
}

const Half* KvReader::token_rows(const HeadKey& key, KvKind kind, std::uint32_t group) const {
  const KvHeadState& h = table_.head(key);
  const KvTile& t = table_.tile(key);
  const KvLayout& l = table_.layout(key.sequence);
  const KvPageId page{key, token_page_kind(kind, l), group, 0};
  const std::uint32_t written = t.written_groups();
  if (group < written) {
    const MapSegment& segment = t.segment_of_group(group);
    return as_halves(reader_.bytes(page, segment, segment.map.token(kind, group).ppa())) +
           row_offset(l, kind, key.head);
  }
  const std::vector<Half>& tail = kind == KvKind::key ? h.key_tail : h.value_tail;
  const std::size_t at = std::size_t{group - written} * l.group_tokens * l.row_words();
  if (at >= tail.size()) throw bad_page(page, "no rows to read");
  return tail.data() + at;
}

const Half* KvReader::token_row(const HeadKey& key, KvKind kind, TokenIndex token) const {
  const KvLayout& l = table_.layout(key.sequence);
  const std::uint32_t group = token.value / l.group_tokens;
  if (token.value >= table_.tokens(key)) throw bad_page({key, token_page_kind(kind, l), group, 0}, "no row to read");
  return token_rows(key, kind, group) + std::size_t{token.value % l.group_tokens} * l.row_words();
}

const Half* KvReader::embedding_page(const HeadKey& key, std::uint32_t ge, std::uint32_t w) const {
  const KvHeadState& h = table_.head(key);
  const KvTile& t = table_.tile(key);
  const KvLayout& l = table_.layout(key.sequence);
  const KvPageId page{key, PageKind::embedding, ge, w};
  const KvWindow window = l.window(w);
  if (w >= table_.transposed_windows(key) || ge >= l.embedding_pages(window)) {
    throw bad_page(page, "no embedding page to read");
  }
  if (w >= readable_windows(t, h, l)) {
    return as_halves(
        reader_.bytes(page, *t.segments.back(), h.partial->pages[ge].ppa(), h.partial->end - window.first));
  }
  const std::uint64_t position = l.embedding_position(window) + ge;
  return as_halves(
      reader_.bytes(page, t.segment_of_position(static_cast<std::uint32_t>(position)), t.embedding(position).ppa()));
}

std::span<const float> KvReader::value_mean(const HeadKey& key) const {
  const KvHeadState& h = table_.head(key);
  if (h.value_mean.empty()) throw bad_page({key}, "no values were appended to this head, or only in timing mode");
  return h.value_mean;
}

}  // namespace csdsim::ftl
