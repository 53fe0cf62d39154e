// The plan of Kvpr.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "base/ratio.h"
#include "host_runtime/core/plan/layer_planner.h"
#include "host_runtime/core/plan/software.h"
#include "host_runtime/core/systems/kvpr/split.h"

namespace csdsim::host {

/// The costs of a token of a layer. `activations`: where those of the prompt are kept, host or GPU.
SplitCosts split_costs(const ModelShape& model, Place activations, const RowQuantisation& kv = {});

struct KvprPlan {
  Place activations = Place::host();
  std::optional<Ratio> share = {};  ///< share of the cached tokens that are recomputed; unset: solved for every step
  std::uint32_t split_step = 1;     ///< the recomputed tokens of a mini-batch are a multiple of it
  bool hides_recomputation = true;  ///< it starts when its weights are there, before the layer's other weights
  std::uint32_t kv_buffers = 2;     ///< layers whose K and V the GPU holds per mini-batch
  SplitRates rates = {};            ///< that the split is solved with
  RowQuantisation format = {};      ///< format of K and V on the host; recomputed ones are not quantised
  Software software = {};
};

/// K and V are in host memory, and so are the activations of the prompt, from which K and V of a layer can be computed
/// again (or these are in GPU memory).
///
/// Prefill: K and V, and activations, of a layer travel to the host while the GPU computes the next one.
///
/// Decode, for each layer and mini-batch: activations of the first l tokens travel to the GPU, which recomputes their K
/// and V while those of the other tokens travel. Only tokens of the prompt are recomputed. New k and v travel back.
/// These are the six streams of KVPR 3.3: weights, K and V, activations (all in), recomputation, K and V, and, in the
/// prefill, activations (out).
class KvprPlanner final : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes and for no buffers.
  KvprPlanner(const PlannerInputs& inputs, const KvprPlan& plan, const WeightPlacement& weights);
  std::vector<PlacedTensor> resident() const override;
  std::uint32_t layers_ahead() const override { return std::max(plan_.kv_buffers, LayerPlanner::layers_ahead()); }

  /// Tokens that a decode step recomputes, [sequence of the part]: together the split of the part, each sequence in
  /// proportion to its tokens, but at most its prompt.
  std::vector<std::uint32_t> recomputed(const Part& part) const;

  using LayerPlanner::Part;

 private:
  Ids room_for(const Part& part) const override;
  std::vector<SizedTensor> kept_inputs(const Part& part) const override;
  Software software() const override { return plan_.software; }
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;

  HeadRange heads() const { return shards().front(); }
  bool on_host() const { return plan_.activations == Place::host(); }
  std::uint32_t prompt(const StepSequence& s) const { return inputs().workload.prompt_of(s.sequence); }
  /// The activations of the prompts of a mini-batch that stay for the whole run.
  SizedTensor kept_activations(const Part& part) const;
  /// Those of `tokens` tokens that a step copies to the GPU.
  SizedTensor copied_activations(const Part& part, std::uint64_t tokens) const;
  /// K and V on the GPU for a step: part 0 recomputed, in fp16, part 1 copied, in the format of the host.
  SizedTensor step_cache(const Part& part, std::uint32_t of, std::uint64_t tokens) const;
  /// K and V, and activations, of the part travel to the host after `made`, and join what is there.
  Ids store_kv(OperationSink& sink, const Part& part, OperationId made);
  Ids store_activations(OperationSink& sink, const Part& part, OperationId made);
  OperationId recompute(OperationSink& sink, const Part& part, const std::vector<TokenSlice>& slices,
                        std::uint64_t tokens, Ids room);

  struct Layer {
    Ids kv;           ///< after which K and V on the host are complete
    Ids activations;  ///< after which the activations are complete
  };
  Layer& state(const Part& part) { return layers_[part.mini_batch()][part.layer()]; }

  KvprPlan plan_;
  std::vector<std::vector<Layer>> layers_;  ///< [mini_batch][layer]
  std::vector<Ids> freed_;  ///< [mini_batch] attention operations in order, each of which frees a buffer of the GPU
};

}  // namespace csdsim::host
