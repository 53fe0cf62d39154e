#include "attention_engine/core/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
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
    state_ = splitmix64(splitmix64(state_));
  }
  /// counter_random() of its seed and of 0, 1, 2 and so on.
  std::uint64_t next() {
    const std::uint64_t counter = counter_++;
    return splitmix64(state_ ^ (counter < kMixed.size() ? kMixed[counter] : splitmix64(~counter)));
  }
  /// Uniform in [0, bound).
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((next() >> 32) * std::uint64_t{bound} >> 32);
  }

 private:
  /// The first counters, mixed: heads draw about as many numbers as they have components or pages of tokens.
  static constexpr auto kMixed = [] {
    std::array<std::uint64_t, 1024> mixed{};
    for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] = splitmix64(~std::uint64_t{i});
    return mixed;
  }();

  std::uint64_t state_;  ///< the seed, mixed
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

/// Touches of `of` groups scaled to `groups`, `rows` selected rows spread over what is touched, at most `size` each.
void stretch(const PageGroups& recorded, std::uint32_t of, std::uint32_t groups, std::uint64_t rows, std::uint32_t size,
             PageGroups& out) {
  out.clear();
  std::size_t next = 0;
  for (std::uint64_t g = 0; g < groups && of > 0; ++g) {
    const auto from = static_cast<std::uint32_t>((2 * g + 1) * of / (2 * std::uint64_t{groups}));
    while (next < recorded.groups.size() && recorded.groups[next] < from) ++next;
    if (next < recorded.groups.size() && recorded.groups[next] == from) {
      out.groups.push_back(static_cast<std::uint32_t>(g));
    }
  }
  const auto touched = static_cast<std::uint32_t>(out.groups.size());
  if (touched == 0) return;
  rows = std::clamp<std::uint64_t>(rows, touched, std::uint64_t{touched} * size);
  out.rows.assign(touched, static_cast<std::uint32_t>(rows / touched));
  for (std::uint32_t i = 0; i < rows % touched; ++i) ++out.rows[i];
}

/// True if `part` of `whole` is a budget like the recorded one.
void require_like(const char* what, double part, double whole, std::size_t recorded, double of) {
  const double asked = part / whole, was = static_cast<double>(recorded) / of;
  if (std::abs(asked - was) <= std::max(0.1 * was, 1 / std::min(whole, of))) return;
  throw UserError(
      fmt::format("the selection was recorded at {} = {:.4f}, the run attends at {:.4f}: record it at that budget",
                  what, was, asked));
}

}  // namespace

ClusteredSelection::ClusteredSelection(double token_page_fraction, std::uint64_t seed)
    : token_page_fraction_(token_page_fraction), seed_(seed) {
  if (!(token_page_fraction > 0 && token_page_fraction <= 1)) {
    throw UserError(fmt::format("token_page_fraction is {}: it must be above 0 and at most 1", token_page_fraction));
  }
}

ClusteredSelection ClusteredSelection::with_selected_per_page(double selected_per_page, std::uint64_t seed) {
  if (!(selected_per_page >= 1))
    throw UserError(fmt::format("selected_per_page is {}: it must be at least 1", selected_per_page));
  ClusteredSelection selection(1, seed);
  selection.selected_per_page_ = selected_per_page;
  return selection;
}

double ClusteredSelection::share(const KvHeadView& view, const SparfParams& params) const {
  if (selected_per_page_ == 0) return token_page_fraction_;
  const double pages = double(view.tokens) / view.tokens_per_page;
  return std::min(1.0, params.k / (selected_per_page_ * pages));
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

  const auto expected = static_cast<std::uint32_t>(std::llround(share(view, params) * groups));
  const std::uint32_t count = std::clamp((in_flash + n - 1) / n, groups - older_groups, groups);
  const std::uint32_t touched = std::clamp(expected, count, groups);
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
  sequences_ = std::max(sequences_, key.sequence.value + 1);
  layers_ = std::max(layers_, key.layer.value + 1);
  heads_ = std::max(heads_, key.head.value + 1);
}

RecordedSelection::Found RecordedSelection::find(HeadKey key, std::uint32_t tokens) const {
  auto it = records_.find({key, tokens});
  if (it != records_.end()) return {it->second, tokens};
  if (head_dim_ > 0 && !records_.empty()) {
    const std::uint32_t round = key.sequence.value / sequences_;
    key = {SequenceId{key.sequence.value % sequences_}, LayerId{(key.layer.value + round) % layers_},
           KvHead{key.head.value % heads_}};
    it = records_.lower_bound({key, tokens});
    const bool above = it != records_.end() && it->first.key == key;
    if (it != records_.begin()) {
      const auto below = std::prev(it);
      const bool nearer = !above || tokens - below->first.tokens <= it->first.tokens - tokens;
      if (below->first.key == key && nearer) return {below->second, below->first.tokens};
    }
    if (above) return {it->second, it->first.tokens};
  }
  throw UserError(fmt::format("no recorded selection for sequence {} layer {} head {} at {} tokens", key.sequence.value,
                              key.layer.value, key.head.value, tokens));
}

void RecordedSelection::check(std::uint32_t tokens, std::uint32_t head_dim, const SparfParams& params) const {
  const Found found = find({}, tokens);
  if (head_dim_ == 0) return;
  require_like("r/d", std::min(params.r, head_dim), head_dim, found.record.components.size(), head_dim_);
  require_like("k/S", params.k, tokens, found.record.tokens.size(), found.tokens);
}

void RecordedSelection::components(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) {
  const Found found = find(key, view.tokens);
  const std::uint32_t m = view.embedding_group, d = head_dim_ == 0 ? view.head_dim : head_dim_;
  const std::uint32_t r = std::min(params.r, view.head_dim);
  if (head_dim_ > 0) require_like("r/d", r, view.head_dim, found.record.components.size(), d);
  out.assign(found.record.components, m, d);
  if (d == view.head_dim) return;
  const PageGroups recorded = out;
  stretch(recorded, (d + m - 1) / m, view.head_dim / m, r, m, out);
}

void RecordedSelection::tokens(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) {
  const Found found = find(key, view.tokens);
  const std::uint32_t n = view.tokens_per_page;
  if (head_dim_ > 0) require_like("k/S", params.k, view.tokens, found.record.tokens.size(), found.tokens);
  if (found.tokens == view.tokens) return out.assign(found.record.tokens, n, view.flushed_tokens);
  PageGroups recorded;
  recorded.assign(found.record.tokens, n, found.tokens / n * n);
  std::uint64_t rows = 0;
  for (const std::uint32_t count : recorded.rows) rows += count;
  stretch(recorded, found.tokens / n, view.flushed_groups(), rows * params.k / found.record.tokens.size(), n, out);
}

}  // namespace csdsim::engine
