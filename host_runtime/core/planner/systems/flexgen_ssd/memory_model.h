// Peak memory of a FlexGen policy (experimental/cost_model.py of FMInference/FlexLLMGen; arXiv 2303.06865, appendix).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/row_quantisation.h"
#include "base/units.h"
#include "host_runtime/core/planner/model_shape.h"
#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/linear_cost.h"

namespace csdsim::host {

/// How the latency terms of a layer combine, and how the working memory of the GPU is counted.
enum class CostForm : std::uint8_t {
  /// T_pre and T_gen are each the largest of the five terms. Of the intermediate results of a layer, only the largest
  /// group is in memory.
  paper,
  /// T_pre = max(ctog + dtoc, gtoc + ctod, comp), T_gen = ctog + max(gtoc, dtoc, ctod, comp). All intermediate results
  /// of a layer are in memory together, and in decode also a copy of the K and V of one GPU batch, for the share in GPU
  /// memory.
  released_code,
};

/// Lengths of a batch. FlexGen pads all prompts to the longest one.
struct FlexGenLengths {
  std::uint32_t prompt_tokens = 1;  ///< s
  std::uint32_t output_tokens = 1;  ///< n; the prefill yields the first

  /// The longest prompt of a batch. Throws UserError as BatchLengths::validate() does.
  static FlexGenLengths of(const BatchLengths& workload);
};

/// Bytes in GPU memory, host memory and on the disk.
using FlexGenMemory = std::array<Bytes, kTiers>;
/// For each memory, the quantities in bytes whose largest is the peak.
using MemoryCandidates = std::array<std::vector<LinearCost>, kTiers>;

/// Peak memory is the larger one of prefill and decode.
///
/// Home: the share of all weights, of the hidden states of the block (s tokens in prefill, 1 in decode), and of K and V
/// of all layers (s + n tokens; in host memory s during prefill). The published model leaves out the embedding tables.
/// They count here, because the released engine places them by the same percentages.
///
/// Working memory of the GPU: two layers of the weights that are elsewhere; the hidden states of one GPU batch that are
/// elsewhere; intermediate results of a layer (CostForm), with attention scores of heads x queries x context elements.
/// Without cpu_cache_compute also two GPU batches of the K and V of a layer that are elsewhere (not published).
///
/// Quantised K and V have the bytes of their format in their homes and in buffers. Intermediate results are not
/// quantised; on the host, which has none of K and V otherwise, the dequantised ones of one GPU batch count besides.
///
/// Working memory of the host in prefill: one layer of the weights and one GPU batch of the hidden states that are not
/// in GPU memory. In decode: one layer of the weights, two GPU batches of the hidden states and two of the K and V of a
/// layer that are on disk; with cpu_cache_compute also the scores and outputs of one GPU batch.
class FlexGenMemoryModel {
 public:
  /// Precondition: valid sizes and lengths.
  FlexGenMemoryModel(const ModelShape& model, const FlexGenLengths& lengths, CostForm form,
                     const RowQuantisation& kv = {});

  /// The percentages of `shape` do not matter.
  MemoryCandidates candidates(const FlexGenPolicy& shape) const;

 private:
  std::vector<LinearCost> gpu(const FlexGenPolicy& shape, bool prefill) const;
  LinearCost host_prefill(const FlexGenPolicy& shape) const;
  LinearCost host_decode(const FlexGenPolicy& shape) const;
  LinearCost disk(const FlexGenPolicy& shape) const;
  /// Groups of intermediate results, of which all or the largest are in GPU memory.
  std::vector<LinearCost> intermediates(const FlexGenPolicy& shape, bool prefill) const;

  CostForm form_;
  double layers_, heads_, element_;
  double s_, n_;
  double layer_weights_;  ///< matrices of a layer, bytes
  double all_weights_;    ///< of the whole model with its tables, bytes
  double hidden_;         ///< hidden state of a token, bytes
  double query_;          ///< q of a token in a layer, bytes
  double kv_;             ///< K and V of a token in a layer as they are kept, bytes
  double kv_used_;        ///< and as they are projected and attended to
  double inner_;          ///< inner activations of the feed-forward network for a token, bytes
};

/// Bytes of the matrices of a layer, without biases and norms, as FlexGen counts them.
double flexgen_layer_weights(const ModelShape& model);

}  // namespace csdsim::host
