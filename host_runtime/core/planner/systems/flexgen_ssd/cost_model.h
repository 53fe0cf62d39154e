// The cost model of FlexGen (arXiv 2303.06865, section 4.3 and appendix; experimental/cost_model.py of
// FMInference/FlexLLMGen): latency and peak memory of a policy, all linear in the percentages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "base/units.h"
#include "host_runtime/core/planner/model_shape.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/linear_cost.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/memory_model.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/policy.h"

namespace csdsim::host {

/// Constants of the machine. Bandwidths and rates are sustained values.
struct FlexGenHardware {
  Bandwidth host_to_gpu;
  Bandwidth gpu_to_host;
  Bandwidth disk_to_host;
  Bandwidth host_to_disk;
  ComputeRate gpu_matrix_rate;     ///< matrix products
  ComputeRate gpu_attention_rate;  ///< attention in prefill and decode
  ComputeRate host_attention_rate;
  /// FlexGen has no memory bandwidths: its rates are fitted. If given, a GPU batch takes at least the time to read the
  /// weights of a layer, and attention in decode at least the time to read K and V.
  std::optional<Bandwidth> gpu_memory_bandwidth = {};
  std::optional<Bandwidth> host_memory_bandwidth = {};
  /// Usable bytes of GPU memory, host memory and the disk. FlexGen plans with 80 % of what the machine has.
  FlexGenMemory capacity = {};

  /// Throws UserError that names the first bandwidth or rate that is zero. A capacity may be zero.
  void validate() const;
};

/// One value per path between the memories: bytes or seconds. `Value` is double for a policy, or LinearCost.
template <class Value>
struct LayerPaths {
  Value host_to_gpu{};   ///< ctog
  Value gpu_to_host{};   ///< gtoc
  Value disk_to_host{};  ///< dtoc
  Value host_to_disk{};  ///< ctod
};

/// Seconds of the five terms of one layer.
template <class Value>
struct LayerTerms : LayerPaths<Value> {
  Value compute{};  ///< comp; GPU and host one after the other
};

/// Latency and memory of a batch shape for all percentages. A latency or a peak is the largest of its candidates.
struct FlexGenBounds {
  std::vector<LinearCost> prefill;  ///< seconds of one layer in prefill
  std::vector<LinearCost> decode;   ///< seconds of one layer in a decode step
  MemoryCandidates memory;          ///< bytes
  double prefill_layers = 0;        ///< L
  double decode_layers = 0;         ///< (n - 1) L

  /// T = T_pre L + T_gen (n - 1) L in seconds.
  double seconds(const FlexGenPolicy& policy) const;
  /// Rounded up to bytes.
  FlexGenMemory peak_memory(const FlexGenPolicy& policy) const;
};

/// Costs of a run of one block. Symbols: s prompt length, n output length, b block, L layers; W weights of a layer (its
/// matrices), H hidden state of a token, C K and V of a token in a layer, all in bytes. w, h, c are the shares of
/// weights, activations and cache outside GPU memory; w', h', c' those on disk.
///
/// Bytes per layer in prefill:
///   ctog = w W + h s b H      gtoc = c (s + 1) b C + h s b H
///   dtoc = w' W + h' s b H    ctod = c' (s + 1) b C + h' s b H
/// Bytes per layer in a decode step, averaged over the steps:
///   ctog = w W + h b H        gtoc = h b H
///   dtoc = w' W + c' (s + n/2) b C + h' b H        ctod = c' b C + h' b H
/// Computation: matrix products on the GPU, 2 flops per weight and token; attention in prefill on the GPU, 4 flops per
/// element of q and pair of tokens, not causal; attention in decode over s + n/2 tokens, on the GPU for the share of
/// the cache there and on the host for the rest, one after the other.
///
/// With quantised K and V, C has their bytes. A processor that attends in decode dequantises K and V before, and the
/// GPU quantises new ones in prefill: passes that read one format and write the other at the bandwidth of its memory.
///
/// These are the published terms, in which the host attends in decode. Without cpu_cache_compute, the GPU attends to
/// everything, ctog of decode grows by c (s + n/2) b C, and gtoc by c b C. Without overlap, a layer takes the sum of
/// all terms in both forms. Not modelled, as published: queries and attention outputs that pass between GPU and host,
/// the embedding, the language-model head, and kernel launches. The released code also lets the host's rate fall for
/// GPU batches below 64 sequences; here the rate is constant.
class FlexGenCostModel {
 public:
  /// Throws UserError for inconsistent sizes, zero lengths and zero rates.
  FlexGenCostModel(const ModelShape& model, const FlexGenLengths& lengths, const FlexGenHardware& hardware,
                   CostForm form = CostForm::released_code, const RowQuantisation& kv = {});

  const FlexGenLengths& lengths() const { return lengths_; }
  const FlexGenHardware& hardware() const { return hardware_; }

  /// Bytes of one layer. Here and below, throws UserError for an invalid policy.
  LayerPaths<double> prefill_traffic(const FlexGenPolicy& policy) const;
  LayerPaths<double> decode_traffic(const FlexGenPolicy& policy) const;
  /// Seconds of the five terms of one layer.
  LayerTerms<double> prefill_terms(const FlexGenPolicy& policy) const;
  LayerTerms<double> decode_terms(const FlexGenPolicy& policy) const;

  /// T_pre, in seconds.
  double prefill_layer_seconds(const FlexGenPolicy& policy) const;
  /// T_gen, in seconds.
  double decode_layer_seconds(const FlexGenPolicy& policy) const;
  /// T = T_pre L + T_gen (n - 1) L for one block, in seconds.
  double seconds(const FlexGenPolicy& policy) const;
  /// Generated tokens per second: b n / T.
  double tokens_per_second(const FlexGenPolicy& policy) const;

  /// See FlexGenMemoryModel.
  FlexGenMemory peak_memory(const FlexGenPolicy& policy) const;
  /// Throws UserError that says which memory is short, and by how much, if the policy does not fit.
  void require_fit(const FlexGenPolicy& policy) const;

  /// All costs as functions of the percentages; those of `shape` do not matter.
  FlexGenBounds bounds(const FlexGenPolicy& shape) const;

 private:
  LayerPaths<LinearCost> prefill_bytes(const FlexGenPolicy& shape) const;
  LayerPaths<LinearCost> decode_bytes(const FlexGenPolicy& shape) const;
  LayerTerms<LinearCost> prefill_linear(const FlexGenPolicy& shape) const;
  LayerTerms<LinearCost> decode_linear(const FlexGenPolicy& shape) const;
  LinearCost prefill_compute(const FlexGenPolicy& shape) const;
  LinearCost decode_compute(const FlexGenPolicy& shape) const;
  LayerPaths<LinearCost> in_seconds(const LayerPaths<LinearCost>& bytes) const;
  /// Seconds of the matrix products of one layer for a block, `tokens` of each sequence.
  double matrix_seconds(const FlexGenPolicy& shape, double tokens) const;
  /// The candidates whose largest is T_pre or T_gen.
  std::vector<LinearCost> prefill_candidates(const FlexGenPolicy& shape) const;
  std::vector<LinearCost> decode_candidates(const FlexGenPolicy& shape) const;

  ModelShape model_;
  FlexGenLengths lengths_;
  FlexGenHardware hardware_;
  CostForm form_;
  FlexGenMemoryModel memory_;
  double layer_weights_;  ///< W
  double hidden_;         ///< H
  double kv_;             ///< C
  double kv_used_;        ///< K and V of a token in a layer as they are attended to
  double converted_;      ///< bytes that a pass reads and writes to quantise or dequantise C; 0 if it is not quantised
};

/// "GPU memory needs 60.0 GiB, of which 48.0 GiB are usable: 12.0 GiB short", for each memory that is too small; empty
/// if `needed` fits.
std::string flexgen_shortage(const FlexGenMemory& needed, const FlexGenMemory& capacity);

}  // namespace csdsim::host
