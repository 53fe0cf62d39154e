#include "attention_engine/core/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::engine {
namespace {

/// A stream of random numbers for one head at one length.
class Hash {
 public:
  Hash(std::uint64_t seed, HeadKey key, std::uint32_t tokens, std::uint64_t purpose) : state_(seed) {
    for (const std::uint64_t part : {std::uint64_t{key.sequence.value}, std::uint64_t{key.layer.value},
                                     std::uint64_t{key.head.value}, std::uint64_t{tokens}, purpose}) {
      state_ = splitmix64(state_) ^ part;
    }
    state_ = splitmix64(state_);
  }
  std::uint64_t next() { return counter_random(state_, counter_++); }
  /// Uniform in [0, bound).
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((next() >> 32) * std::uint64_t{bound} >> 32);
  }

 private:
  std::uint64_t state_;
  std::uint64_t counter_ = 0;
};

/// Appends `count` of [0, n), ascending, each subset as likely (selection sampling, Knuth 3.4.2 S).
void sample(Hash& hash, std::uint32_t n, std::uint32_t count, std::vector<std::uint32_t>& out) {
  for (std::uint32_t i = 0; i < n && count > 0; ++i) {
    if (hash.below(n - i) < count) {
      out.push_back(i);
      --count;
    }
  }
}

}  // namespace

ClusteredSelection::ClusteredSelection(double token_page_fraction, std::uint64_t seed)
    : token_page_fraction_(token_page_fraction), seed_(seed) {
  if (!(token_page_fraction > 0 && token_page_fraction <= 1)) {
    throw UserError(fmt::format("token_page_fraction is {}: it must be above 0 and at most 1", token_page_fraction));
  }
}

void ClusteredSelection::components(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) {
  Hash hash(seed_, key, view.tokens, 0);
  indices_.clear();
  sample(hash, view.head_dim, std::min(params.r, view.head_dim), indices_);
  out.assign(indices_, view.embedding_group, view.head_dim);
}

void ClusteredSelection::tokens(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) {
  const std::uint32_t n = view.tokens_per_page, groups = view.flushed_groups();
  const std::uint32_t local = std::min({params.l, params.k, view.tokens});
  const std::uint32_t oldest_local = view.tokens - local;
  const std::uint32_t older_groups = std::min(oldest_local / n, groups);
  const std::uint32_t in_flash =
      std::min(params.k - std::min(local, view.tokens - view.flushed_tokens), view.flushed_tokens);

  const auto share = static_cast<std::uint32_t>(std::llround(token_page_fraction_ * groups));
  const std::uint32_t count = std::clamp((in_flash + n - 1) / n, groups - older_groups, groups);
  const std::uint32_t touched = std::clamp(share, count, groups);
  out.clear();
  Hash hash(seed_, key, view.tokens, 1);
  sample(hash, older_groups, touched - (groups - older_groups), out.groups);
  for (std::uint32_t g = older_groups; g < groups; ++g) out.groups.push_back(g);
  if (touched == 0) return;
  out.rows.assign(touched, in_flash / touched);
  for (std::uint32_t i = 0; i < in_flash % touched; ++i) ++out.rows[i];
}

void RecordedSelection::record(HeadKey key, std::uint32_t tokens, std::vector<std::uint32_t> components,
                               std::vector<std::uint32_t> selected_tokens) {
  if (!records_.emplace(Point{key, tokens}, Record{std::move(components), std::move(selected_tokens)}).second) {
    throw UserError(fmt::format("selection of sequence {} layer {} head {} at {} tokens is recorded twice",
                                key.sequence.value, key.layer.value, key.head.value, tokens));
  }
}

const RecordedSelection::Record& RecordedSelection::find(HeadKey key, std::uint32_t tokens) const {
  const auto it = records_.find({key, tokens});
  if (it == records_.end()) {
    throw UserError(fmt::format("no recorded selection for sequence {} layer {} head {} at {} tokens",
                                key.sequence.value, key.layer.value, key.head.value, tokens));
  }
  return it->second;
}

void RecordedSelection::components(HeadKey key, const KvHeadView& view, const SparfParams&, PageGroups& out) {
  out.assign(find(key, view.tokens).components, view.embedding_group, view.head_dim);
}

void RecordedSelection::tokens(HeadKey key, const KvHeadView& view, const SparfParams&, PageGroups& out) {
  out.assign(find(key, view.tokens).tokens, view.tokens_per_page, view.flushed_tokens);
}

}  // namespace csdsim::engine
