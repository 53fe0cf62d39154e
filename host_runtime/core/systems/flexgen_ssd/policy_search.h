// FlexGen's policy (arXiv 2303.06865, section 4.3): where weights, K and V are, and how many mini-batches there are.
#pragma once

#include <cstdint>

#include "contracts/row_quantisation.h"
#include "host_runtime/core/plan/layer_planner.h"
#include "host_runtime/core/plan/searched_system.h"

namespace csdsim::host {

/// Inputs of the policy search.
struct FlexGenProblem {
  ModelShape model;
  BatchLengths workload;
  PlatformRates rates;
  RowQuantisation kv = {};
  std::uint32_t kv_buffers = 2;
  std::uint32_t weight_buffers = 2;
  bool stores_attention_weights = true;
};

struct FlexGenPolicy {
  std::uint32_t mini_batches = 1;
  std::uint32_t heads_on_gpu = 0, heads_on_host = 0;        ///< KV heads; the others are in files
  std::uint32_t weights_on_host = 0, weights_in_files = 0;  ///< percent; the others are on the GPU
  double seconds = 0;                                       ///< seconds of the run, by rates
};

/// Tries every number of mini-batches that divides the batch (or the stated one) and every division of the KV heads
/// among GPU, host and files. Each time as many percent of the weights as fit are on the GPU, then on the host. The
/// policy of least seconds wins: a layer takes the longest of GPU, link and files, by their rates. Of equal ones
/// (1e-6), the one that moves fewer bytes, then the fewer mini-batches.
///
/// What has to fit: weights and their buffers, K and V of the longest contexts, and the tensors of a layer: of a prompt
/// those that the GPU makes, in decode the K and V of `kv_buffers` layers that are copied.
///
/// FlexGen solves a linear program over its cost model instead, which counts attention weights of the prefill even
/// where they are not stored, and plans with 80 % of each memory. Throws UserError if nothing fits.
FlexGenPolicy best_flexgen_policy(const FlexGenProblem& problem);

}  // namespace csdsim::host
