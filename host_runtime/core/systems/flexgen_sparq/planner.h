// The operations of FlexGen with SparQ attention, K and V in files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host_runtime/core/plan/layer_planner.h"
#include "host_runtime/core/plan/sparf_budget.h"

namespace csdsim::host {

struct SparqFiles {
  SparfParameters budget = {};
  std::uint32_t written_tokens = 64;  ///< newest tokens of a sequence that fill up before they are written
  std::uint32_t kv_buffers = 2;       ///< layers whose K and V the GPU holds per mini-batch in the prefill
  /// The GPU stores the attention weights of a prompt before and after the softmax.
  bool stores_attention_weights = false;
};

/// K and V of a layer and mini-batch are in two files (head_rows.h): one of tokens, and one with K once more, by
/// component. Both hold multiples of written_tokens; the newest tokens are in host memory, until there are as many.
///
/// Decode: q, k and v of the new tokens travel to the host, which chooses r components for each sequence and KV head.
/// It reads them for all tokens and copies them to the GPU, which scores all tokens and chooses k. The host reads K and
/// V of these tokens and copies them to the GPU, which attends. What is in host memory joins what was read. A sequence
/// of at most k tokens needs no scores: all of K and V is copied. Nothing of this can begin before q is there, so that
/// one mini-batch waits for the drive while another one computes.
class SparqPlanner final : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes, a budget out of range, no buffers and no written tokens.
  SparqPlanner(const PlannerInputs& inputs, const SparqFiles& sparq, const WeightPlacement& weights);
  std::vector<PlacedTensor> resident() const override;

 private:
  Ids room_for(const Part& part) const override;
  Bytes prefill_workspace(const Part& part) const override;
  std::vector<PlannedFile> layer_files(std::uint32_t layer) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;

  static std::string file_name(const Part& part, HeadRows::Kind kind);
  /// Tokens of a context that are in files when it is complete.
  std::uint32_t written(std::uint64_t context) const {
    return static_cast<std::uint32_t>(context - context % sparq_.written_tokens);
  }
  HeadRange heads() const { return shards().front(); }
  /// Bytes of `elements` elements of K (or V) of each KV head.
  Bytes bytes_of(std::uint64_t elements) const { return {elements * model().element_bytes * model().kv_heads}; }
  /// The rows of the part: as its step finds them, or as it writes them.
  HeadRows rows_before(const Part& part, HeadRows::Kind kind) const;
  HeadRows rows_written(const Part& part, HeadRows::Kind kind) const;
  SizedTensor in_file(const Part& part, HeadRows::Kind kind, const HeadRows& rows) const;
  /// The newest tokens, in host memory, after the step.
  SizedTensor newest(const Part& part) const;
  SizedTensor value_means(const Part& part) const;
  SizedTensor choice(const Part& part, HeadRows::Kind kind) const;
  /// The rows that a step reads from a file, and these rows together with those of the newest tokens in host memory.
  SizedTensor read_part(const Part& part, const HeadRows& rows) const;
  SizedTensor all_parts(const Part& part, const HeadRows& rows) const;

  OperationId update_means(OperationSink& sink, const Part& part, OperationId projected);
  /// The part's new tokens that make whole multiples leave host memory for the files, after `there`.
  Ids write(OperationSink& sink, const Part& part, const SizedTensor& source, OperationId there);
  /// Rows that `chosen` names are read, joined by those in host memory, and copied to the GPU.
  OperationId fetch(OperationSink& sink, const Part& part, const HeadRows& rows, OperationId chosen);
  Ids& stored(const Part& part) { return stored_[part.mini_batch()][part.layer()]; }

  SparqFiles sparq_;
  SparfBudget budget_;
  std::vector<std::vector<Ids>> stored_;  ///< [mini_batch][layer] operations after which the files are complete
};

}  // namespace csdsim::host
