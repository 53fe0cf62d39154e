#include "csd_model/firmware/kv_lookup.h"

namespace csd_model {

using namespace csdsim;
using engine::HeadKey;

namespace {

ftl::KvKey to_key(HeadKey key) { return {key.sequence, key.layer, key.head}; }
ftl::KvKind to_kind(engine::KvKind kind) { return kind == engine::KvKind::key ? ftl::KvKind::key : ftl::KvKind::value; }

}  // namespace

engine::KvHeadView KvLookup::view(HeadKey key) const {
  const ftl::KvLayout& layout = ftl_.layout(key.sequence);
  // A sequence that is only token-major has no component-major tail in DRAM either.
  const bool tail_in_dram = ftl_.tail_policy() == ftl::TailPolicy::dram && layout.component_major;
  return {.tokens = ftl_.tokens(to_key(key)),
          .head_dim = layout.head_dim,
          .tokens_per_page = layout.group_tokens,
          .embedding_group = layout.embedding_group,
          .window = layout.window_tokens,
          .flushed_tokens = ftl_.flushed_tokens(to_key(key)),
          .transposed_tokens = ftl_.transposed_tokens(to_key(key)),
          .tail = tail_in_dram ? engine::TailScoring::dram : engine::TailScoring::token_pages};
}

template <class Plan>
void KvLookup::plan_filtered(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> rows,
                             std::uint64_t row_bytes, std::vector<PageOp>& out, const Plan& plan) {
  if (filter_ == nfc::FilterLocation::nfc || rows.empty()) return plan(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t first = out.size();
    plan(groups.subspan(i, 1));
    for (std::size_t op = first; op < out.size(); ++op)
      out[op].channel_bytes = static_cast<std::uint32_t>(rows[i] * row_bytes);
  }
}

void KvLookup::plan_token_groups(HeadKey key, engine::KvKind kind, std::span<const std::uint32_t> groups,
                                 std::span<const std::uint32_t> rows, std::vector<PageOp>& out) {
  plan_filtered(groups, rows, ftl_.layout(key.sequence).row().value, out, [&](std::span<const std::uint32_t> some) {
    ftl_.plan_token_groups(to_key(key), to_kind(kind), some, out);
  });
}

void KvLookup::plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups,
                                     std::span<const std::uint32_t> rows, std::vector<PageOp>& out) {
  const std::uint64_t run_bytes = std::uint64_t{ftl_.layout(key.sequence).window_tokens} * ftl::kElementBytes;
  plan_filtered(groups, rows, run_bytes, out,
                [&](std::span<const std::uint32_t> some) { ftl_.plan_embedding_groups(to_key(key), some, out); });
}

const Half* KvLookup::token_rows(HeadKey key, engine::KvKind kind, std::uint32_t group) const {
  return ftl_.token_rows(to_key(key), to_kind(kind), group);
}

const Half* KvLookup::embedding_page(HeadKey key, std::uint32_t group, std::uint32_t window) const {
  return ftl_.embedding_page(to_key(key), group, window);
}

std::span<const float> KvLookup::value_mean(HeadKey key) const { return ftl_.value_mean(to_key(key)); }

}  // namespace csd_model
