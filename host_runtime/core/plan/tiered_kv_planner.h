// K and V in tiers: GPU memory, host memory and files; the GPU attends to copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host_runtime/core/plan/layer_planner.h"
#include "host_runtime/core/plan/software.h"

namespace csdsim::host {

/// KV heads whose K and V are kept in one tier.
struct KvShard {
  HeadRange heads;
  Place tier = Place::gpu();
};

/// Divides the heads by shares, each rounded to whole heads. What GPU and host do not get is in files.
std::vector<KvShard> tier_heads(std::uint32_t kv_heads, Ratio on_gpu, Ratio on_host);
/// The heads of each shard.
std::vector<HeadRange> heads_of(const std::vector<KvShard>& shards);

struct TieredKv {
  std::vector<KvShard> shards;   ///< cover the KV heads of the model, in order
  RowQuantisation format = {};   ///< format of K and V in all tiers
  std::uint32_t kv_buffers = 2;  ///< layers whose K and V the GPU holds per mini-batch, on their way in or out
  /// The growth of a cache in a file. False: new tokens are written behind the others. True: all tokens are written to
  /// new memory in every step, and the old ones are released when the step has ended. Two such copies take turns.
  bool rewritten = false;
  /// The GPU stores the attention weights of a prompt before and after the softmax.
  bool stores_attention_weights = false;
  Software software = {};
};

/// Prefill: K and V of a layer travel to their tier while the GPU computes the next one; the GPU holds those of at most
/// `kv_buffers` layers. Decode: K and V of a layer are copied to the GPU as soon as one of the `kv_buffers` buffers of
/// the mini-batch is free, so that copies run ahead of the computation; new k and v travel back.
///
/// A file holds K and V of one layer and mini-batch: sequence after sequence, token after token, K before V of all its
/// heads. The files of the layers are on the drives in turn. Files do not shrink: what a sequence that has ended leaves
/// in them is not accessed any more. Requests that arrive have room for the longest of them at each place.
class TieredKvPlanner : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes and for no buffers; InternalError for weights in files beside a cache that
  /// is rewritten, because reuse_distance() is one number, and for such a cache that is quantised.
  TieredKvPlanner(const PlannerInputs& inputs, const TieredKv& kv, const WeightPlacement& weights = {});
  std::vector<PlacedTensor> resident() const override;
  /// Where two copies take turns, the next step reads what a step has written: after all other layers but those that
  /// are read ahead. Otherwise a step reads all files in the same order as the one before it,
  /// those of weights included.
  double reuse_distance() const override;
  std::uint32_t layers_ahead() const override;

 private:
  Ids room_for(const Part& part) const override;
  Software software() const override { return kv_.software; }
  Bytes prefill_workspace(const Part& part) const override;
  std::vector<PlannedFile> layer_files(std::uint32_t layer) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;
  void release(OperationSink& sink, const Part& part) override;

  /// New k and v of a shard leave the GPU, `after` the operation that has used them, and join the cache after `before`.
  Ids store(OperationSink& sink, const Part& part, const KvShard& shard, OperationId after, Ids before);
  Ids store_in_file(OperationSink& sink, const Part& part, const KvShard& shard, Ids after);
  /// K and V of a shard come to the GPU, after `before`. Returns the last operation, or nothing if they are there.
  Ids load(OperationSink& sink, const Part& part, const KvShard& shard, Ids before);

  static std::string file_name(const Part& part);
  Resource file_of(const Part& part) const { return files_of(part.layer()); }
  Bytes row(const KvShard& shard) const;
  /// Tokens that files of the mini-batch have room for, in one copy of the cache.
  std::uint64_t tokens_in_file(std::uint32_t mini_batch) const;
  /// The first of the tokens that are a sequence's: it is behind those of all sequences, or places, before it.
  std::uint64_t first_in_file(const Part& part, SequenceId sequence) const;
  /// Tokens [first, first + count) of a sequence in copy `copy` of the cache.
  FileRange rows(const Part& part, const KvShard& shard, SequenceId sequence, std::uint32_t copy, std::uint64_t first,
                 std::uint64_t count) const;
  std::uint32_t copies() const { return kv_.rewritten ? 2 : 1; }
  /// The copy that a sequence's decode step `step` reads; the next one is the one that it writes.
  std::uint32_t copy_of(std::uint32_t step) const { return step % copies(); }
  /// Decode steps that a sequence has behind it.
  std::uint32_t decoded(const StepSequence& s) const { return s.first_token - inputs().workload.prompt_of(s.sequence); }
  Ids& stored(const Part& part, std::size_t shard) { return stored_[part.mini_batch()][part.layer()][shard]; }

  TieredKv kv_;
  /// [mini_batch][layer][shard] operations after which K and V are complete; none before a span's first step
  std::vector<std::vector<std::vector<Ids>>> stored_;
  std::vector<Ids> freed_;  ///< [mini_batch] attention operations in order, each of which frees a buffer of the GPU
};

}  // namespace csdsim::host
