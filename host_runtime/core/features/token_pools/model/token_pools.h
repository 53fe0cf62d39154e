// The tokens of a context in two pools: hot ones in host memory, cold ones in the drive (HillInfer, section 4.2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ratio.h"

namespace csdsim::host {

enum class PoolPolicy : std::uint8_t {
  hit_table,  ///< tokens with the most hits become hot, those with the fewest leave: bidirectional KV pools
  naive       ///< the important tokens of a step become hot, those that were important the longest ago leave
};

/// Shares are of the tokens of the context, rounded up.
struct PoolOptions {
  std::uint64_t hot_tokens = 0;  ///< M0: most tokens that are hot, the one that comes next included; at least 2
  Ratio pinned{0, 1};            ///< newest tokens that stay hot, in [0, 1]
  Ratio kept_hot{0, 1};  ///< share in [0, 1] of the other tokens that become hot: those with the most hits; hit_table
  PoolPolicy policy = PoolPolicy::hit_table;
};

/// A share of a number of tokens, rounded up.
std::uint64_t ceil_of(Ratio share, std::uint64_t tokens);

/// The smallest M0 that holds the pinned tokens, those kept hot and the next one of a context of `tokens`.
std::uint64_t hot_tokens_needed(const PoolOptions& options, std::uint64_t tokens);

/// What a step moves. Positions ascend.
struct PoolMoves {
  std::vector<std::uint32_t> promoted;  ///< from the drive to host memory
  std::vector<std::uint32_t> demoted;   ///< from host memory to the drive
  std::vector<std::uint32_t> written;   ///< demoted tokens that the drive does not hold yet, in the log's order
  std::uint64_t examined = 0;           ///< entries of the hit table that the step read
};

/// The pools of one layer of one sequence. Every token is either hot or cold.
///
/// The drive keeps what it has: K and V never change, so a token is written once, when it leaves host memory for the
/// first time. The order of these writes is the log; the drive numbers tokens by it.
///
/// A hit table has a counter of 16 bits per token, which saturates. step() counts a hit for every important token, then
/// ranks the tokens that are not pinned by hits (of equals the newer first). The best ceil(kept_hot * tokens) of them
/// that are cold are promoted. Of the hot tokens, those of the lowest rank that are not pinned are demoted until
/// hot_tokens - 1 are left: as many as are promoted, once the pool is full, and one for the token that comes next. So
/// there are never more than hot_tokens hot ones. With `naive`, all important tokens are promoted, and a token ranks by
/// the step in which it was important last.
///
/// A step takes time in proportion to the number of tokens: it sorts nothing.
class TokenPools {
 public:
  /// UserError for hot_tokens below 2, a share above 1, or kept_hot with `naive`.
  explicit TokenPools(const PoolOptions& options);

  /// The pools after the prefill of `tokens` tokens. `hot` ascends and holds the pinned tokens; it has less than
  /// hot_tokens. The other tokens enter the log by position. UserError if hot_tokens is below hot_tokens_needed();
  /// InternalError for another broken precondition.
  void start(std::uint32_t tokens, std::span<const std::uint32_t> hot);
  /// Adds a token, which is hot, and returns its position. InternalError if step() has not made room since the last.
  std::uint32_t append();
  /// Counts the important tokens, which ascend, and moves tokens. The result is valid until the next step. UserError if
  /// what must be hot does not fit.
  const PoolMoves& step(std::span<const std::uint32_t> important);
  /// Sets M0. Between append() and step(), which demotes until it holds. UserError if it is below 2.
  void set_hot_tokens(std::uint64_t hot_tokens);

  const PoolOptions& options() const { return options_; }
  std::uint32_t tokens() const { return static_cast<std::uint32_t>(hot_.size()); }
  bool hot(std::uint32_t position) const { return hot_.at(position) != 0; }
  std::uint32_t hot_count() const { return hot_count_; }
  /// First of the pinned tokens, which are the newest.
  std::uint32_t first_pinned() const { return first_pinned_; }
  /// Hits so far; with `naive` the number of the step in which the token was important last, from 1.
  std::uint32_t rank(std::uint32_t position) const { return rank_.at(position); }

  /// Positions of the tokens that the drive holds, by log index.
  std::span<const std::uint32_t> log() const { return log_; }
  std::optional<std::uint32_t> log_index(std::uint32_t position) const;

 private:
  void unpin();
  void raise_rank(std::uint32_t position);
  void move(std::uint32_t position, bool hot);
  void check_room(std::span<const std::uint32_t> important) const;
  void promote_best();
  void promote_important(std::span<const std::uint32_t> important);
  void demote();

  PoolOptions options_;
  std::vector<std::uint32_t> rank_;
  std::vector<std::uint8_t> hot_;
  std::uint32_t hot_count_ = 0;
  std::uint32_t first_pinned_ = 0;
  std::uint32_t steps_ = 0;
  /// Numbers of the tokens below first_pinned_, by rank.
  std::vector<std::uint32_t> of_rank_, hot_of_rank_;
  std::vector<std::uint32_t> log_;
  std::vector<std::uint32_t> log_index_;  ///< by position
  PoolMoves moves_;
};

}  // namespace csdsim::host
