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

#include "base/token_score.h"
#include "host_runtime/core/planner/model_shape.h"
#include "host_runtime/core/planner/operation.h"
#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/token_budget.h"
#include "host_runtime/core/tokens/token_importance.h"
#include "host_runtime/core/tokens/token_pools.h"

namespace csdsim::host {

/// What a plan does with pools of tokens.
struct PooledPlan {
  TokenBudget chosen = Ratio{1, 5};  ///< tokens attended to in a step, the current one included
  PoolOptions pools = {};
  std::uint32_t chunk = 2048;  ///< tokens that the drive scores in one operation; 0: all of its log
  ScorePrecision precision = ScorePrecision::int8;
  ScoreAggregate aggregate = ScoreAggregate::sum_raw;
  bool staged = false;           ///< tokens from the drive pass through host memory
  std::uint32_t kv_buffers = 2;  ///< layers whose K and V the GPU holds per mini-batch in the prefill
};

/// The names of the tensors. Their sizes in a plan are bounds: how much is in them depends on data.
namespace pool_tensors {
inline constexpr std::uint32_t kHot = 0, kLog = 1;                       ///< parts of kv_cache: host memory, drive
inline constexpr std::uint32_t kGathered = 0, kCold = 1, kPromoted = 2;  ///< parts of fetched_kv
inline constexpr std::uint32_t kWritten = 1;                             ///< part of new_kv: tokens that enter the log
inline constexpr std::uint32_t kSpeculated = 1;                          ///< part of queries: from the layer before
inline constexpr std::uint32_t kMerged = 0;                              ///< part of scores: all that the host has
inline constexpr std::uint32_t kFirstBlock = 1;                          ///< part of scores: block 0 of the drive
}  // namespace pool_tensors

/// What a step does with the tokens of a sequence in a layer. Positions ascend.
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
  std::uint64_t wasted_scores = 0;  ///< of drive_scores: of tokens that were in host memory
};

/// The pools of all sequences and layers. The prefill leaves the newest tokens in host memory, as many as fit beside
/// the next one.
class PooledKv {
 public:
  PooledKv(const PooledPlan& plan, const ModelShape& model);

  const PooledPlan& plan() const { return plan_; }
  const PoolCounts& counts() const { return counts_; }

  /// The prefill of a sequence has ended in a layer.
  void start(SequenceId sequence, LayerId layer, std::uint32_t tokens);
  /// The next decode step: a token is appended, and `chosen` tokens are attended to, ascending, the current one last.
  const PoolStep& step(SequenceId sequence, LayerId layer, std::span<const std::uint32_t> chosen);
  bool started(SequenceId sequence, LayerId layer) const { return entries_.contains({sequence, layer}); }
  /// InternalError before start().
  const TokenPools& pools(SequenceId sequence, LayerId layer) const { return entry(sequence, layer).pools; }
  const PoolStep& latest(SequenceId sequence, LayerId layer) const { return entry(sequence, layer).latest; }
  /// Number of tokens to attend to in a context that includes the current token.
  std::uint32_t chosen(std::uint32_t context) const { return plan_.chosen.at(context); }

  /// The work of an operation as the pools are now; nothing for operations that do not depend on them.
  std::optional<Work> resolve(const Operation& op) const;

 private:
  struct Entry {
    TokenPools pools;
    PoolStep latest;
  };
  const Entry& entry(SequenceId sequence, LayerId layer) const;
  Entry& entry(SequenceId sequence, LayerId layer) {
    return const_cast<Entry&>(std::as_const(*this).entry(sequence, layer));
  }
  /// Tokens of the log in a block of the drive's scores.
  Share in_block(std::uint32_t block, std::uint32_t logged) const;
  ComputeWork copied(std::uint64_t tokens) const;
  std::optional<Work> resolve_on_host(const Operation& op) const;
  std::optional<Work> resolve_on_drive(const Operation& op) const;

  PooledPlan plan_;
  ModelShape model_;
  std::map<std::pair<SequenceId, LayerId>, Entry> entries_;
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
  void next(SequenceId sequence, LayerId layer);

  PooledKv pools_;
  std::unique_ptr<TokenImportance> importance_;
  std::vector<std::uint32_t> chosen_;
};

}  // namespace csdsim::host
