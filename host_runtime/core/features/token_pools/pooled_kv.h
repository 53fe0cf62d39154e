// The tokens of each sequence and layer that are in host memory and in the drive, and the work of operations that
// depends on them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "contracts/token_score.h"
#include "host_runtime/core/attention/token_budget.h"
#include "host_runtime/core/features/token_pools/model/token_pools.h"
#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/operation.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/core/plan/token_importance.h"

namespace csdsim::host {

/// The pools of tokens of a plan.
struct PooledPlan {
  TokenBudget chosen = Ratio{1, 5};  ///< tokens attended to in a step, the current one included
  PoolOptions pools = {};
  std::uint32_t chunk = 2048;  ///< tokens that the drive scores in one operation; 0: all of its log
  ScorePrecision precision = ScorePrecision::int8;
  ScoreAggregate aggregate = ScoreAggregate::sum_raw;
  bool staged = false;           ///< tokens from the drives pass through host memory
  std::uint32_t drives = 1;      ///< drives of each log; tokens 0, 1, 2, ... are in them in turn
  std::uint32_t lists = 1;       ///< pools per sequence and layer: 1, or one per KV head with per_head
  std::uint32_t kv_buffers = 2;  ///< layers whose K and V the GPU holds per mini-batch in the prefill
};

/// The names of the tensors. Their sizes in a plan are bounds: how much is in them depends on data. What is in several
/// drives has a part for each.
namespace pool_tensors {
inline constexpr std::uint32_t kHot = 0, kFirstLog = 1;  ///< parts of kv_cache: host memory, drive 0
inline constexpr std::uint32_t kGathered = 0;            ///< part of fetched_kv: hot tokens
inline constexpr std::uint32_t kFirstWritten = 1;        ///< part of new_kv: tokens that enter the log of drive 0
inline constexpr std::uint32_t kSpeculated = 1;          ///< part of queries: from the layer before
inline constexpr std::uint32_t kMerged = 0;              ///< part of scores: all that the host has
inline constexpr std::uint32_t kFirstBlock = 1;          ///< part of scores: block 0 of drive 0

constexpr std::uint32_t log_part(std::uint32_t drive) { return kFirstLog + drive; }
constexpr std::uint32_t written_part(std::uint32_t drive) { return kFirstWritten + drive; }
/// Parts of fetched_kv: chosen tokens of a drive, and promoted ones.
constexpr std::uint32_t cold_part(std::uint32_t drive) { return 1 + 2 * drive; }
constexpr std::uint32_t promoted_part(std::uint32_t drive) { return 2 + 2 * drive; }
constexpr bool is_promoted(std::uint32_t part) { return part != kGathered && part % 2 == 0; }
constexpr std::uint32_t fetched_drive(std::uint32_t part) { return (part - 1) / 2; }
}  // namespace pool_tensors

/// The pools of one layer of one sequence: of all heads, or of one KV head.
struct PoolKey {
  SequenceId sequence;
  LayerId layer;
  std::uint32_t list = 0;
  auto operator<=>(const PoolKey&) const = default;
};

/// Chosen and moved tokens of a sequence in a step, in one list of a layer. Positions ascend.
struct PoolStep {
  std::vector<std::uint32_t> hot;            ///< chosen tokens that were in host memory, but for the current one
  std::vector<std::uint32_t> cold;           ///< chosen tokens that were in the drive
  PoolMoves moves;                           ///< after the prefill: the tokens that start cold are demoted and written
  std::vector<std::uint32_t> fetched_again;  ///< promoted tokens that the step has not brought to host memory
  std::uint32_t log_before = 0;              ///< tokens in the log before those of `moves` enter it
};

/// Tokens so far, over all sequences and layers.
struct PoolCounts {
  std::uint64_t promoted = 0, demoted = 0, written = 0;
  std::uint64_t important_hot = 0, important_cold = 0;  ///< chosen tokens by pool, but for current ones
  std::uint64_t host_scores = 0, drive_scores = 0;
  std::uint64_t wasted_scores = 0;  ///< those of drive_scores whose tokens were in host memory
};

/// The pools of all sequences, layers and lists. The prefill leaves the newest tokens in host memory, as many as fit
/// beside the next one.
class PooledKv {
 public:
  PooledKv(const PooledPlan& plan, const ModelShape& model);

  const PooledPlan& plan() const { return plan_; }
  const PoolCounts& counts() const { return counts_; }

  /// The prefill of a sequence has ended in a layer.
  void start(PoolKey key, std::uint32_t tokens);
  /// Calls start() for the sequences and layer of an operation after the prefill that gathers the tokens which leave
  /// host memory.
  void start_after_prefill(const Operation& op);
  /// The next decode step: a token is appended, and `chosen` tokens are attended to, ascending, the current one last.
  const PoolStep& step(PoolKey key, std::span<const std::uint32_t> chosen);
  bool started(PoolKey key) const { return entries_.contains(key); }
  /// InternalError before start().
  const TokenPools& pools(PoolKey key) const { return entry(key).pools; }
  const PoolStep& latest(PoolKey key) const { return entry(key).latest; }
  /// Number of tokens to attend to in a context that includes the current token.
  std::uint32_t chosen(std::uint32_t context) const { return plan_.chosen.at(context); }

  /// The KV heads whose tensors an operation reads or writes, and the key of their pools.
  HeadRange heads(const Operation& op) const;
  PoolKey key(const Operation& op, SequenceId sequence) const;
  /// Tokens of a log in a drive, and the token of the log that a drive numbers `index`.
  std::uint32_t logged(std::uint64_t tokens, std::uint32_t drive) const {
    return static_cast<std::uint32_t>((tokens + plan_.drives - 1 - drive) / plan_.drives);
  }
  std::uint32_t of_log(std::uint32_t index, std::uint32_t drive) const { return index * plan_.drives + drive; }
  /// Those of the positions that a drive holds, in their order.
  std::vector<std::uint32_t> in_drive(PoolKey key, std::span<const std::uint32_t> positions, std::uint32_t drive) const;
  /// Those of the tokens that enter the log in the latest step that a drive gets.
  std::vector<std::uint32_t> written(PoolKey key, std::uint32_t drive) const;

  /// The work of an operation as the pools are now; nothing for operations that do not depend on them.
  std::optional<Work> resolve(const Operation& op) const;

 private:
  struct Entry {
    TokenPools pools;
    PoolStep latest;
  };
  const Entry& entry(PoolKey key) const;
  Entry& entry(PoolKey key) { return const_cast<Entry&>(std::as_const(*this).entry(key)); }
  /// Tokens of a drive's part of the log in a block of its scores.
  Share in_block(std::uint32_t block, std::uint32_t logged) const;
  /// K and V of tokens of the heads of a list.
  Bytes kv_of(std::uint64_t tokens) const;
  ComputeWork copied(std::uint64_t tokens) const;
  std::optional<Work> resolve_on_host(const Operation& op) const;
  std::optional<Work> resolve_on_drive(const Operation& op) const;

  PooledPlan plan_;
  ModelShape model_;
  std::map<PoolKey, Entry> entries_;
  PoolCounts counts_;
};

/// Pools of timing runs: a model or a recording says which tokens matter, instead of data.
class ModelledPools {
 public:
  ModelledPools(const PooledPlan& plan, const ModelShape& model, std::unique_ptr<TokenImportance> importance);

  /// As OperationData::resolve().
  std::optional<Work> resolve(const Operation& op);
  /// The prefill and the decode steps before `step` happen in no time, in `layers` layers of prompts of `prompts`
  /// tokens.
  void skip_to(std::uint32_t step, std::uint32_t layers, std::span<const std::uint32_t> prompts);
  const PooledKv& pools() const { return pools_; }

 private:
  void next(PoolKey key);

  PooledKv pools_;
  std::unique_ptr<TokenImportance> importance_;
  std::vector<std::uint32_t> chosen_;
};

}  // namespace csdsim::host
