// Plans that keep K and V in tiers and bring chosen rows of single heads to the GPU: what is chosen, and the work of
// operations that depends on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ratio.h"
#include "host_runtime/core/attention/token_budget.h"
#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/operation.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/core/plan/token_importance.h"

namespace csdsim::host {

enum class RowChoosing : std::uint8_t {
  evicting,    ///< tokens beyond the budget are dropped for good after each step, the others are attended to (H2O)
  speculated,  ///< by queries computed from the input of the layer before, while that layer is computed (InfiniGen)
  bounded      ///< by the layer's own queries and bounds of chunks of keys (LeoAM)
};

/// A plan's use of rows. A row is K and V of one token and KV head.
struct ChosenRowsPlan {
  RowChoosing choosing = RowChoosing::evicting;
  TokenBudget tokens = Ratio{1, 5};  ///< attended to in a step; evicting: that outlive a step
  std::uint32_t unit = 1;            ///< tokens that are chosen together, in timing runs
  std::uint32_t dense_layers = 0;    ///< first layers that attend to everything
  Ratio kv_on_gpu{1, 5};             ///< shares of the KV heads (tier_heads()); what is left is in files
  Ratio kv_on_host{3, 5};
  std::uint32_t written_tokens = 64;  ///< newest tokens that stay in host memory until there are so many
  std::uint32_t kv_buffers = 2;       ///< layers whose rows the GPU holds per mini-batch
  bool stores_attention_weights = false;

  bool evicts() const { return choosing == RowChoosing::evicting; }
  /// True if a layer attends to chosen tokens only, which are known during a step and not before it.
  bool sparse(LayerId layer) const { return !evicts() && layer.value >= dense_layers; }
  /// Rows of a head that exist when a sequence has `tokens` tokens.
  std::uint32_t rows(std::uint32_t tokens_so_far) const { return evicts() ? tokens.at(tokens_so_far) : tokens_so_far; }
  /// The number of these in a file, if the head is in a file. Others are in host memory.
  std::uint32_t written(std::uint32_t tokens_so_far) const {
    return evicts() ? rows(tokens_so_far) : tokens_so_far - tokens_so_far % written_tokens;
  }
  /// Rows that a head fetches in a step that finds `cached` tokens, at most.
  std::uint32_t most_fetched(LayerId layer, std::uint32_t cached) const {
    return sparse(layer) ? tokens.at(cached + std::size_t{1}) - 1 : rows(cached);
  }
};

/// Where rows are in the file of a layer and mini-batch: sequence after sequence, each with room for its rows at the
/// end of the run; head after head; row after row; K, then V.
class RowFile {
 public:
  RowFile(const ChosenRowsPlan& plan, const ModelShape& model, const BatchLengths& workload, HeadRange heads,
          std::span<const StepSequence> sequences);
  Bytes size() const;
  /// Rows [first, first + count) of a head, which counts from 0 within the file's heads.
  FileRange range(std::size_t sequence, std::uint32_t head, std::uint32_t first, std::uint32_t count) const;

 private:
  std::uint32_t heads_;
  Bytes row_;
  std::vector<std::uint64_t> before_;  ///< rows of a head before each sequence, and at the end all of them
};

/// The parts of tensors.
namespace row_tensors {
inline constexpr std::uint32_t kMain = 0, kNewest = 1;  ///< parts of kv_cache; newest tokens of heads in files
inline constexpr std::uint32_t kRead = 0, kJoined = 1;  ///< parts of fetched_kv: from a file; with newest tokens
inline constexpr std::uint32_t kKept = 1;               ///< part of new_kv: the rows of a prompt that are kept
inline constexpr std::uint32_t kSpeculated = 1;         ///< part of the queries that is speculated
}  // namespace row_tensors

/// The rows that the steps of all sequences and layers choose. A file numbers rows by position; with eviction, a new
/// row takes the place of the one that has left.
class ChosenRows {
 public:
  /// Ascending positions by KV head. One list stands for all heads.
  using Lists = std::vector<std::vector<std::uint32_t>>;

  ChosenRows(const ChosenRowsPlan& plan, const ModelShape& model, const BatchLengths& workload)
      : plan_(plan), model_(model), workload_(workload) {}
  const ChosenRowsPlan& plan() const { return plan_; }
  /// Sets the plan of the layers that follow, where parts of a run have different ones.
  void set_plan(const ChosenRowsPlan& plan) { plan_ = plan; }

  /// The next step of a layer fetches these tokens; the current one is not among them.
  void choose(SequenceId sequence, LayerId layer, Lists lists) { chosen_[{sequence, layer}] = std::move(lists); }
  /// The tokens of a step that a head fetches. InternalError if nobody has chosen them.
  std::span<const std::uint32_t> chosen(SequenceId sequence, LayerId layer, std::uint32_t head) const;

  /// With eviction and data: the tokens that a head keeps after a step or prompt, ascending. A token that is new takes
  /// the row of the one that has left.
  void keep(SequenceId sequence, LayerId layer, std::uint32_t head, std::span<const std::uint32_t> kept);
  /// Positions of the rows of a head in a file, by row number.
  const std::vector<std::uint32_t>& in_file(SequenceId sequence, LayerId layer, std::uint32_t head) const;

  /// The work of an operation whose size depends on the choice; nothing for others.
  std::optional<Work> resolve(const Operation& op) const;
  /// Rows [first, first + count) of head `head` of the model, of sequence number `sequence` of the operation.
  struct Run {
    std::size_t sequence = 0;
    std::uint32_t head = 0, first = 0, count = 0;
  };
  /// The ranges of a file operation, in their order.
  std::vector<Run> file_runs(const Operation& op) const;

 private:
  std::uint32_t written_row(const StepSequence& s, LayerId layer, std::uint32_t head) const;
  /// Rows of all heads and sequences of the operation: with `newest`, of tokens that are not in a file yet.
  std::uint64_t fetched_rows(const Operation& op, HeadRange heads, bool newest) const;
  Bytes row() const { return model_.kv_bytes_per_token_and_head(); }

  ChosenRowsPlan plan_;
  ModelShape model_;
  BatchLengths workload_;
  std::map<std::pair<SequenceId, LayerId>, Lists> chosen_;
  std::map<std::pair<SequenceId, LayerId>, Lists> rows_;  ///< by row number; with eviction and data
};

/// In timing runs: a model or a recording says which tokens matter, instead of data. All heads of a layer choose the
/// same tokens.
class ModelledRows {
 public:
  ModelledRows(ChosenRows rows, std::unique_ptr<TokenImportance> importance)
      : rows_(std::move(rows)), importance_(std::move(importance)) {}
  /// As OperationData::resolve().
  std::optional<Work> resolve(const Operation& op);
  void set_plan(const ChosenRowsPlan& plan) { rows_.set_plan(plan); }

 private:
  void choose(const StepSequence& s, LayerId layer);

  ChosenRows rows_;
  std::unique_ptr<TokenImportance> importance_;
  std::vector<std::uint32_t> important_;
};

}  // namespace csdsim::host
