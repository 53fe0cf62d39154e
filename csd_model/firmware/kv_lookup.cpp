#include "csd_model/firmware/kv_lookup.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ftl/kv/kv_components.h"

namespace csdsim::csd_model {

engine::KvHeadView KvLookup::view(HeadKey key) const {
  const ftl::KvLayout& layout = ftl_.layout(key.sequence);
  dequantised_.clear();
  dequantised_components_.clear();
  dequantised_rows_.clear();
  // A sequence that is only token-major has no component-major tail in DRAM either.
  const bool tail_in_dram = ftl_.tail_policy() == ftl::TailPolicy::dram && layout.component_major;
  return {.tokens = ftl_.tokens(key),
          .head_dim = layout.head_dim,
          .tokens_per_page = layout.fetch_tokens(),
          .embedding_group = layout.fetch_components(),
          .window = layout.window_tokens,
          .flushed_tokens = ftl_.flushed_tokens(key),
          .transposed_tokens = ftl_.transposed_tokens(key),
          .tail = tail_in_dram ? engine::TailScoring::dram : engine::TailScoring::token_pages,
          .format = layout.format};
}

engine::KvWindowView KvLookup::window(HeadKey key, std::uint32_t w) const {
  const ftl::KvWindow window = ftl_.layout(key.sequence).window(w);
  return {window.first, window.tokens, window.group};
}

void KvLookup::plan_token_groups(HeadKey key, KvRows which, std::span<const std::uint32_t> groups,
                                 std::span<const std::uint32_t> rows, ReadPlan& out) {
  const std::size_t before = out.size();
  ftl_.plan_token_groups(key, which, groups, rows, out);
  filter_from(before, out);
  if (ftl_.has_losses()) report(key);
}

void KvLookup::plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups,
                                     std::span<const std::uint32_t> rows, ReadPlan& out) {
  const std::size_t before = out.size();
  ftl_.plan_embedding_groups(key, groups, rows, out);
  filter_from(before, out);
  if (ftl_.has_losses()) report(key);
}

/// As they are in the page.
const Half* KvLookup::raw_rows(HeadKey key, KvKind kind, std::uint32_t group) const {
  const ftl::KvLayout& layout = ftl_.layout(key.sequence);
  const std::uint32_t fetched = layout.fetch_tokens(), in_page = layout.group_tokens / fetched;
  return ftl_.token_rows(key, kind, group / in_page) + std::size_t{group % in_page * fetched} * layout.row_words();
}

const Half* KvLookup::token_rows(HeadKey key, KvKind kind, std::uint32_t group) const {
  const Half* const rows = raw_rows(key, kind, group);
  return ftl_.layout(key.sequence).format.quantised() ? dequantised(key, kind, group, rows) : rows;
}

/// The wanted ones of the rows of a page, to passed_. Where there is no filter, whole pages reach the engine, which
/// takes the rows out itself.
void KvLookup::pass(const Half* page, std::size_t row, std::size_t rows, std::span<const std::uint32_t> wanted) const {
  const auto* const bytes = reinterpret_cast<const std::byte*>(page);
  passed_.clear();
  if (!filter_.present()) {
    for (const std::uint32_t i : wanted) passed_.push_back(bytes + i * row);
    return;
  }
  mask_.assign(rows, false);
  for (const std::uint32_t i : wanted) mask_[i] = true;
  filter_.pass(bytes, row, mask_, passed_);
  if (passed_.size() != wanted.size())
    throw InternalError(fmt::format("a filter has passed {} rows in place of {}", passed_.size(), wanted.size()));
}

void KvLookup::passed_rows(HeadKey key, KvKind kind, std::uint32_t group, std::span<const std::uint32_t> wanted,
                           std::vector<const Half*>& out) const {
  const ftl::KvLayout& layout = ftl_.layout(key.sequence);
  const std::size_t row = layout.row().value;
  pass(raw_rows(key, kind, group), row, layout.fetch_tokens(), wanted);
  for (const std::byte* const passed : passed_) {
    if (!layout.format.quantised()) {
      out.push_back(reinterpret_cast<const Half*>(passed));
      continue;
    }
    std::vector<Half>& values = dequantised_rows_.emplace_back(layout.head_dim);
    dequantise_rows(layout.format, {passed, row}, layout.head_dim, values);
    out.push_back(values.data());
  }
}

void KvLookup::passed_runs(HeadKey key, std::uint32_t group, std::uint32_t w, std::span<const std::uint32_t> wanted,
                           std::vector<const Half*>& out) const {
  const ftl::KvWindow window = ftl_.layout(key.sequence).window(w);
  // The runs of a page of few bits pass as the fp16 values that they stand for.
  pass(embedding_page(key, group, w), std::size_t{window.tokens} * sizeof(Half), window.group, wanted);
  for (const std::byte* const passed : passed_) out.push_back(reinterpret_cast<const Half*>(passed));
}

const Half* KvLookup::dequantised(HeadKey key, KvKind kind, std::uint32_t group, const Half* rows) const {
  const auto [found, made] = dequantised_.try_emplace({key, kind, group});
  if (made) {
    const ftl::KvLayout& layout = ftl_.layout(key.sequence);
    const std::uint32_t fetched = layout.fetch_tokens();
    const std::size_t tokens = std::min(fetched, ftl_.tokens(key) - group * fetched);
    found->second.resize(tokens * layout.head_dim);
    dequantise_rows(layout.format, std::as_bytes(std::span(rows, tokens * layout.row_words())), layout.head_dim,
                    found->second);
  }
  return found->second.data();
}

const Half* KvLookup::embedding_page(HeadKey key, std::uint32_t group, std::uint32_t window) const {
  const Half* const page = ftl_.embedding_page(key, group, window);
  const ftl::KvLayout& layout = ftl_.layout(key.sequence);
  if (!layout.format.quantised()) return page;
  const auto [found, made] = dequantised_components_.try_emplace({key, window, group});
  if (made) {
    const ftl::KvWindow of = layout.window(window);
    found->second.resize(std::size_t{of.group} * of.tokens);
    const std::uint32_t tokens = std::min(of.tokens, ftl_.transposed_tokens(key) - of.first);
    dequantise_components(layout, of, group, tokens, page, found->second);
  }
  return found->second.data();
}

std::span<const float> KvLookup::value_mean(HeadKey key) const { return ftl_.value_mean(key); }

std::vector<engine::TokenRange> KvLookup::dropped(HeadKey key) const {
  std::vector<engine::TokenRange> ranges;
  for (const ftl::TokenSpan& span : ftl_.dropped(key)) ranges.push_back({span.first, span.end});
  return ranges;
}

void KvLookup::filter_from(std::size_t first, ReadPlan& plan) {
  filter_.plan(std::span(plan.ops).subspan(first), plan.wanted);
  plan.wanted.clear();
}

void KvLookup::report(const HeadKey& key) {
  const std::vector<ftl::KvLoss> losses = ftl_.take_losses();
  for (LossWatch* const watch : watches_) {
    if (!watch->heads.overlap({key.sequence, key.layer}, {key.head, 1})) continue;
    if (watch->drops)
      for (const ftl::KvLoss& loss : losses) ftl_.drop(loss);
    else
      watch->losses.insert(losses.begin(), losses.end());
  }
}

}  // namespace csdsim::csd_model
