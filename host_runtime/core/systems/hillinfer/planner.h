// The operations of HillInfer: tokens scored in the drive and on the host, the chosen ones attended to on the GPU.
#pragma once

#include <vector>

#include "host_runtime/core/features/token_pools/pooled_kv.h"
#include "host_runtime/core/plan/layer_planner.h"

namespace csdsim::host {

/// Every token of a sequence and layer is in host memory (hot) or in the drives (cold); PooledKv says which. With a
/// list per KV head this holds for each head by itself: everything below happens for each of them. Cold tokens are in
/// the drives in turn, and each drive numbers those that it has.
///
/// Prefill: K and V of a layer go to host memory. Those of the tokens that start cold go on to the drive.
///
/// Decode: q, k and v of the new tokens travel to the host. It scores the hot tokens while the each drive scores its
/// log in blocks of `chunk` tokens, two of which are under way at a time: one is scored while the scores of the one
/// before it travel. The host merges each block when it arrives and, after the last one, chooses the best tokens. Hot
/// ones are gathered and copied to the GPU, cold ones are fetched into GPU memory or staged in host memory. The GPU
/// attends to them and to the current token. Then, in the background, promoted tokens are fetched into host memory, and
/// demoted ones are appended to the log if it does not have them. The next step of the layer scores when this has
/// ended.
///
/// With `prefetch`, layers but the first are scored by queries that the GPU computes from the input of the layer before
/// them. Scores, choice and fetches thus run under that layer.
class HillinferPlanner final : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes, impossible pools and no buffers.
  HillinferPlanner(const PlannerInputs& inputs, const PooledPlan& plan, bool prefetch, const WeightPlacement& weights);
  std::vector<PlacedTensor> resident() const override;

 private:
  /// What a choice of tokens has read: all of it is at the host then.
  struct Chosen {
    OperationId selected;
    SizedTensor choice;
  };
  /// A choice, and the operations after which its tokens are at the GPU.
  struct Ahead {
    Chosen chosen;
    Ids there;
  };

  Ids room_for(const Part& part) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;

  std::uint32_t list_of(HeadRange heads) const { return heads.first.value / shards().front().count; }
  Ids& settled(const Part& part, HeadRange heads) { return settled_[part.mini_batch()][part.layer()][list_of(heads)]; }
  Bytes kv_of(HeadRange heads, std::uint64_t tokens) const {
    return model().kv_bytes_per_token_and_head() * (heads.count * tokens);
  }
  /// Tokens in host memory at most, of sequences with so many tokens as `tokens` says.
  template <class Tokens>
  std::uint64_t hot_bound(const Part& part, Tokens tokens) const;
  SizedTensor kept_pool(const Part& part, HeadRange heads, std::uint32_t part_of, std::uint64_t tokens) const;
  SizedTensor fetched(const Part& part, HeadRange heads, std::uint32_t part_of, std::uint64_t tokens) const;
  SizedTensor scores(const Part& part, HeadRange heads, std::uint32_t part_of, std::uint64_t tokens) const;
  /// Tokens of the part that are chosen, but for the current ones.
  std::uint64_t chosen_bound(const Part& part) const;
  /// Blocks of scores of a drive.
  std::uint32_t blocks(const Part& part) const;

  /// Host and drives score all tokens by the queries `q`, which are at the host after `asked`, and the host chooses.
  Chosen choose(OperationSink& sink, const Part& part, HeadRange heads, const SizedTensor& q, OperationId asked);
  /// The chosen tokens come to the GPU.
  Ids bring(OperationSink& sink, const Part& part, HeadRange heads, const Chosen& chosen);
  /// Chooses and brings the tokens of the next layer. Returns the operation that has read the input of this one.
  OperationId look_ahead(OperationSink& sink, const Part& part, OperationId projected);
  /// Tokens change pools, after `before`: those that enter the log are written, promoted ones are there.
  void settle(OperationSink& sink, const Part& part, HeadRange heads, Ids before, TensorUses arrived);
  /// Promoted tokens are fetched after `attention`, and tokens change pools.
  void exchange(OperationSink& sink, const Part& part, HeadRange heads, OperationId attention, OperationId joined,
                const SizedTensor& choice);

  PooledPlan plan_;
  bool prefetch_;
  std::vector<std::vector<Ahead>> ahead_;  ///< [mini_batch][list] of the layer that comes next
  std::vector<std::vector<std::vector<Ids>>>
      settled_;  ///< [mini_batch][layer][list] operations after which its tokens are where they belong
};

}  // namespace csdsim::host
