// K and V in tiers, of which the GPU gets chosen rows: H2O, InfiniGen and LeoAM as systems.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host_runtime/core/features/chosen_rows/chosen_rows.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"

namespace csdsim::host {

/// The costs of a choice beside the K and V that it fetches.
struct ChoosingCosts {
  std::uint32_t columns = 0;          ///< speculated: of each head's queries and keys, whose partial keys the GPU keeps
  std::uint32_t chunk = 0, leaf = 0;  ///< bounded: tokens of the largest and smallest chunks with abstracts
};

/// Keys that choosing keeps beside K and V, of one layer and sequence of `tokens` tokens: partial keys in GPU memory,
/// or the least and largest key of every chunk in host memory.
Bytes choosing_bytes(const ChosenRowsPlan& plan, const ChoosingCosts& costs, const ModelShape& model,
                     std::uint64_t tokens);

/// The KV heads are divided between GPU memory, host memory and files (tier_heads()).
///
/// Prefill: K and V go to their tier; with eviction, what is kept of them. The newest tokens of heads in files stay in
/// host memory until written_tokens are there.
///
/// Decode: the GPU attends to chosen rows. Those in host memory are gathered and copied; those in files are read,
/// joined by the newest ones, and copied. When that may begin depends on the choice:
/// - evicting, and layers that attend to everything: as soon as one of the kv_buffers buffers of the GPU is free;
/// - speculated: when the layer before has begun. The GPU computes queries of the next layer from its input, scores
///   partial keys and chooses, beside the attention of the layer before;
/// - bounded: when the host has bounded the chunks by the layer's own queries.
/// New k and v join their tier when the attention has ended.
class ChosenRowsPlanner final : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes, no buffers and no written tokens.
  ChosenRowsPlanner(const PlannerInputs& inputs, const ChosenRowsPlan& plan, const ChoosingCosts& costs,
                    const WeightPlacement& weights);
  std::vector<PlacedTensor> resident() const override;
  std::uint32_t layers_ahead() const override;

 private:
  Ids room_for(const Part& part) const override;
  Bytes prefill_workspace(const Part& part) const override;
  std::vector<PlannedFile> layer_files(std::uint32_t layer) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;

  LayerId layer_of(const Part& part) const { return *part.tag.layer; }
  static std::string file_name(const Part& part);
  Bytes rows(HeadRange heads, std::uint64_t of_each) const {
    return model().kv_bytes_per_token_and_head() * (heads.count * of_each);
  }
  /// K and V of a shard in its tier, and the newest tokens of a shard in files, before or after the step.
  SizedTensor kept(const Part& part, const KvShard& shard, bool after) const;
  SizedTensor newest(const Part& part, const KvShard& shard, bool after) const;
  SizedTensor fetched(const Part& part, const KvShard& shard, std::uint32_t part_of) const;
  SizedTensor choice(const Part& part) const;
  SizedTensor workspace(const Part& part) const;
  Place place_of(const Part& part, const KvShard& shard) const;
  bool has_newest(const KvShard& shard) const { return shard.tier == Place::file() && !plan_.evicts(); }

  /// New k and v, or the rows of a prompt that are kept, join the shard's tier, after `before`.
  Ids store(OperationSink& sink, const Part& part, const KvShard& shard, const SizedTensor& rows, Ids before);
  /// Chosen rows of a shard come to the GPU, after `before`.
  OperationId fetch(OperationSink& sink, const Part& part, const KvShard& shard, Ids before);
  OperationId bound(OperationSink& sink, const Part& part, OperationId moved);
  /// The GPU chooses by partial keys. Returns the operation after which the choice is at the host.
  OperationId select_on_gpu(OperationSink& sink, const Part& part, Ids before, TensorUses uses);
  /// The rows of the next layer are chosen from the input of this one. Returns the operation that has read the input.
  OperationId speculate(OperationSink& sink, const Part& part, OperationId projected);
  Ids& stored(const Part& part, std::size_t shard) { return stored_[part.mini_batch()][part.layer()][shard]; }

  ChosenRowsPlan plan_;
  ChoosingCosts costs_;
  std::vector<KvShard> tiers_;
  /// [mini_batch][layer][shard] operations after which K and V are complete; none before a span's first step
  std::vector<std::vector<std::vector<Ids>>> stored_;
  std::vector<Ids> freed_;       ///< [mini_batch] attention operations in order, each of which frees a buffer
  std::vector<Ids> speculated_;  ///< [mini_batch] after which the rows of the next layer are known at the host
};

}  // namespace csdsim::host
