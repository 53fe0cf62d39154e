#include "host_runtime/core/features/token_pools/model/token_pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace csdsim::host {
namespace {

constexpr std::uint32_t kMostHits = std::numeric_limits<std::uint16_t>::max();
constexpr std::uint32_t kNotWritten = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kBlock = 128;  // entries that are compared together

/// Appends the i in [begin, end) with matches(i), which are few: the compiler compares blocks of them at once.
template <class Matches>
void append_matches(std::uint32_t begin, std::uint32_t end, const Matches& matches, std::vector<std::uint32_t>& found) {
  for (std::uint32_t first = begin; first < end; first += kBlock) {
    const std::uint32_t last = std::min(end, first + kBlock);
    std::uint32_t count = 0;
    for (std::uint32_t i = first; i < last; ++i) count += matches(i);
    for (std::uint32_t i = first; count > 0; ++i) {
      if (matches(i) == 0) continue;
      found.push_back(i);
      --count;
    }
  }
}

/// The position before which `count` of [0, end) match.
template <class Matches>
std::uint32_t end_of_first(std::uint32_t count, std::uint32_t end, const Matches& matches) {
  std::uint32_t first = 0;
  while (count > 0) {
    const std::uint32_t last = std::min(end, first + kBlock);
    std::uint32_t found = 0;
    for (std::uint32_t i = first; i < last; ++i) found += matches(i);
    if (found > count || last == end) break;
    count -= found;
    first = last;
  }
  for (; count > 0; ++first) count -= matches(first);
  return first;
}

void check_options(const PoolOptions& options) {
  if (options.hot_tokens < 2)
    throw UserError(
        fmt::format("a hot pool of {} tokens: at least 2, of which one is the next token's place", options.hot_tokens));
  for (const Ratio share : {options.pinned, options.kept_hot})
    if (share > Ratio{1, 1})
      throw UserError(fmt::format("a share of {}/{} of the tokens is above 1", share.numerator, share.denominator));
  if (options.policy == PoolPolicy::naive && options.kept_hot > Ratio{0, 1})
    throw UserError("a naive pool keeps no share hot by hits: it keeps the important tokens of the last step");
}

void require_room(std::uint64_t needed, const PoolOptions& options, std::uint64_t tokens, const char* what) {
  if (options.hot_tokens < needed)
    throw UserError(fmt::format("a hot pool of {} tokens is too small for a context of {}: {} and the next one take {}",
                                options.hot_tokens, tokens, what, needed));
}

}  // namespace

std::uint64_t ceil_of(Ratio share, std::uint64_t tokens) {
  return (share.numerator * tokens + share.denominator - 1) / share.denominator;
}

std::uint64_t hot_tokens_needed(const PoolOptions& options, std::uint64_t tokens) {
  return std::min(tokens, ceil_of(options.pinned, tokens) + ceil_of(options.kept_hot, tokens)) + 1;
}

TokenPools::TokenPools(const PoolOptions& options) : options_(options) { check_options(options); }

void TokenPools::set_hot_tokens(std::uint64_t hot_tokens) {
  PoolOptions options = options_;
  options.hot_tokens = hot_tokens;
  check_options(options);
  options_ = options;
}

void TokenPools::start(std::uint32_t tokens, std::span<const std::uint32_t> hot) {
  if (!hot_.empty()) throw InternalError("pools of tokens are started twice");
  require_room(hot_tokens_needed(options_, tokens), options_, tokens, "the pinned tokens, those kept hot");
  if (hot.size() >= options_.hot_tokens)
    throw InternalError(
        fmt::format("{} hot tokens leave no place of {} to the next one", hot.size(), options_.hot_tokens));
  of_rank_ = hot_of_rank_ = {0};
  rank_.assign(tokens, 0);
  hot_.assign(tokens, 0);
  log_index_.assign(tokens, kNotWritten);
  for (std::size_t i = 0; i < hot.size(); ++i) {
    if (hot[i] >= tokens || (i > 0 && hot[i] <= hot[i - 1])) throw InternalError("hot tokens do not ascend");
    hot_[hot[i]] = 1;
  }
  hot_count_ = static_cast<std::uint32_t>(hot.size());
  unpin();
  for (std::uint32_t i = 0; i < tokens; ++i) {
    if (hot_[i] != 0) continue;
    if (i >= first_pinned_) throw InternalError(fmt::format("pinned token {} is not hot", i));
    log_index_[i] = static_cast<std::uint32_t>(log_.size());
    log_.push_back(i);
  }
}

/// Moves first_pinned_ to where the newest tokens are pinned.
void TokenPools::unpin() {
  const auto first = static_cast<std::uint32_t>(tokens() - ceil_of(options_.pinned, tokens()));
  for (; first_pinned_ < first; ++first_pinned_) {
    ++of_rank_[rank_[first_pinned_]];
    if (hot_[first_pinned_] != 0) ++hot_of_rank_[rank_[first_pinned_]];
  }
}

std::uint32_t TokenPools::append() {
  if (hot_count_ >= options_.hot_tokens) throw InternalError("a token is appended before the step of the last one");
  rank_.push_back(0);
  hot_.push_back(1);
  log_index_.push_back(kNotWritten);
  ++hot_count_;
  unpin();
  return tokens() - 1;
}

void TokenPools::raise_rank(std::uint32_t position) {
  std::uint32_t& rank = rank_[position];
  const std::uint32_t raised = options_.policy == PoolPolicy::naive ? steps_ : std::min(rank + 1, kMostHits);
  if (position < first_pinned_) {
    --of_rank_[rank];
    ++of_rank_[raised];
    if (hot_[position] != 0) {
      --hot_of_rank_[rank];
      ++hot_of_rank_[raised];
    }
  }
  rank = raised;
}

void TokenPools::move(std::uint32_t position, bool hot) {
  hot_[position] = hot ? 1 : 0;
  if (hot)
    ++hot_of_rank_[rank_[position]], ++hot_count_;
  else
    --hot_of_rank_[rank_[position]], --hot_count_;
}

void TokenPools::check_room(std::span<const std::uint32_t> important) const {
  for (std::size_t i = 0; i < important.size(); ++i)
    if (important[i] >= tokens() || (i > 0 && important[i] <= important[i - 1]))
      throw InternalError("important tokens do not ascend");
  if (options_.policy == PoolPolicy::hit_table)
    return require_room(hot_tokens_needed(options_, tokens()), options_, tokens(), "the pinned tokens, those kept hot");
  const auto pinned = std::lower_bound(important.begin(), important.end(), first_pinned_);
  const auto others = static_cast<std::uint64_t>(pinned - important.begin());
  require_room(others + (tokens() - first_pinned_) + 1, options_, tokens(), "the pinned tokens, the important ones");
}

void TokenPools::promote_best() {
  const auto best =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(ceil_of(options_.kept_hot, tokens()), first_pinned_));
  if (best == 0) return;
  // All tokens above `least` are among the best, and the newest `equals` of those that have this rank.
  std::uint32_t least = static_cast<std::uint32_t>(of_rank_.size()) - 1, equals = best;
  for (; equals > of_rank_[least]; --least) equals -= of_rank_[least];
  const std::uint32_t* rank = rank_.data();
  const std::uint8_t* hot = hot_.data();
  const std::uint32_t older = end_of_first(of_rank_[least] - equals, first_pinned_,
                                           [=](std::uint32_t i) -> std::uint32_t { return rank[i] == least; });
  const auto cold_above = [=](std::uint32_t i) -> std::uint32_t { return (hot[i] == 0) & (rank[i] > least); };
  const auto cold_from = [=](std::uint32_t i) -> std::uint32_t { return (hot[i] == 0) & (rank[i] >= least); };
  append_matches(0, older, cold_above, moves_.promoted);
  append_matches(older, first_pinned_, cold_from, moves_.promoted);
  moves_.examined += older + first_pinned_;
  for (const std::uint32_t i : moves_.promoted) move(i, true);
}

void TokenPools::promote_important(std::span<const std::uint32_t> important) {
  for (const std::uint32_t i : important) {
    if (hot_[i] != 0) continue;
    moves_.promoted.push_back(i);
    move(i, true);
  }
}

void TokenPools::demote() {
  const std::uint64_t room = options_.hot_tokens - 1;
  if (hot_count_ <= room) return;
  // All hot tokens below `least` leave, and the oldest `equals` of those that have this rank.
  std::uint32_t least = 0, equals = static_cast<std::uint32_t>(hot_count_ - room);
  for (; equals > hot_of_rank_.at(least); ++least) equals -= hot_of_rank_[least];
  const std::uint32_t* rank = rank_.data();
  const std::uint8_t* hot = hot_.data();
  const std::uint32_t newer = end_of_first(
      equals, first_pinned_, [=](std::uint32_t i) -> std::uint32_t { return (hot[i] != 0) & (rank[i] == least); });
  const auto hot_up_to = [=](std::uint32_t i) -> std::uint32_t { return (hot[i] != 0) & (rank[i] <= least); };
  const auto hot_below = [=](std::uint32_t i) -> std::uint32_t { return (hot[i] != 0) & (rank[i] < least); };
  append_matches(0, newer, hot_up_to, moves_.demoted);
  append_matches(newer, first_pinned_, hot_below, moves_.demoted);
  moves_.examined += newer + first_pinned_;
  for (const std::uint32_t i : moves_.demoted) {
    move(i, false);
    if (log_index_[i] != kNotWritten) continue;
    log_index_[i] = static_cast<std::uint32_t>(log_.size());
    log_.push_back(i);
    moves_.written.push_back(i);
  }
}

const PoolMoves& TokenPools::step(std::span<const std::uint32_t> important) {
  check_room(important);
  ++steps_;
  // A rank is at most the number of steps.
  of_rank_.resize(std::size_t{steps_} + 1);
  hot_of_rank_.resize(std::size_t{steps_} + 1);
  moves_.promoted.clear();
  moves_.demoted.clear();
  moves_.written.clear();
  moves_.examined = important.size();
  for (const std::uint32_t i : important) raise_rank(i);
  if (options_.policy == PoolPolicy::hit_table)
    promote_best();
  else
    promote_important(important);
  demote();
  return moves_;
}

std::optional<std::uint32_t> TokenPools::log_index(std::uint32_t position) const {
  const std::uint32_t index = log_index_.at(position);
  return index == kNotWritten ? std::nullopt : std::optional(index);
}

}  // namespace csdsim::host
