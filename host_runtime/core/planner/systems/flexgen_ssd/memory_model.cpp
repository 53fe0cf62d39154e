#include "host_runtime/core/planner/systems/flexgen_ssd/memory_model.h"

#include <algorithm>
#include <utility>

#include "host_runtime/core/planner/kept_kv.h"

namespace csdsim::host {

FlexGenLengths FlexGenLengths::of(const BatchLengths& workload) {
  workload.validate();
  return {.prompt_tokens = *std::max_element(workload.prompt_tokens.begin(), workload.prompt_tokens.end()),
          .output_tokens = workload.output_tokens};
}

double flexgen_layer_weights(const ModelShape& model) {
  const std::uint64_t q = std::uint64_t{model.heads} * model.head_dim;
  const std::uint64_t kv = std::uint64_t{model.kv_heads} * model.head_dim;
  const std::uint64_t columns = 2 * q + 2 * kv + std::uint64_t{model.ffn_matrices} * model.ffn;
  return static_cast<double>(columns * model.width * model.element_bytes);
}

FlexGenMemoryModel::FlexGenMemoryModel(const ModelShape& model, const FlexGenLengths& lengths, CostForm form,
                                       const RowQuantisation& kv)
    : form_(form),
      layers_(model.layers),
      heads_(model.heads),
      element_(model.element_bytes),
      s_(lengths.prompt_tokens),
      n_(lengths.output_tokens),
      layer_weights_(flexgen_layer_weights(model)),
      all_weights_(static_cast<double>(model.weight_bytes().value)),
      hidden_(element_ * model.width),
      query_(element_ * heads_ * model.head_dim),
      kv_(static_cast<double>((kept_kv_bytes(model, kv) * model.kv_heads).value)),
      kv_used_(static_cast<double>(model.kv_bytes_per_token_and_layer().value)),
      inner_(element_ * model.ffn * (model.ffn_matrices - 1)) {}

std::vector<LinearCost> FlexGenMemoryModel::intermediates(const FlexGenPolicy& shape, bool prefill) const {
  const double g = shape.gpu_batch_size;
  const double queries = prefill ? s_ : 1, context = prefill ? s_ : s_ + n_;
  // Attention in prefill is on the GPU wherever the cache is.
  const auto attended = [&](double bytes) {
    return prefill || !shape.cpu_cache_compute ? LinearCost{.constant = g * bytes}
                                               : LinearCost{.cache = in_gpu(g * bytes)};
  };
  const auto always = [&](double bytes) { return LinearCost{.constant = g * bytes}; };
  const double scores = element_ * heads_ * queries * context, one_of_kv = context * kv_used_ / 2;
  const LinearCost projections = always(queries * (hidden_ + query_ + kv_used_));
  if (form_ == CostForm::paper)
    return {projections, attended(queries * query_ + one_of_kv + scores), always(2 * queries * hidden_),
            always(queries * (hidden_ + inner_))};
  // In prefill, K and V are those of the projections.
  const double kv_read = prefill ? 0 : 2 * one_of_kv;
  return {projections + attended(2 * queries * query_ + kv_read + scores) +
          always(queries * (query_ + hidden_ + inner_ + hidden_))};
}

std::vector<LinearCost> FlexGenMemoryModel::gpu(const FlexGenPolicy& shape, bool prefill) const {
  const double b = static_cast<double>(shape.block()), g = shape.gpu_batch_size;
  const double states = prefill ? s_ * hidden_ : hidden_;
  const double batch_kv = (s_ + n_) * g * kv_;  // of one layer
  const LinearCost home{.weights = in_gpu(all_weights_),
                        .cache = in_gpu((s_ + n_) * b * kv_ * layers_),
                        .activations = in_gpu(b * states)};
  LinearCost buffers{.weights = off_gpu(2 * layer_weights_), .activations = off_gpu(g * states)};
  if (!prefill && !shape.cpu_cache_compute) buffers.cache = off_gpu(2 * batch_kv);
  if (!prefill && form_ == CostForm::released_code) buffers.cache[0] += batch_kv;
  std::vector<LinearCost> peaks = intermediates(shape, prefill);
  for (LinearCost& peak : peaks) peak = home + buffers + peak;
  return peaks;
}

LinearCost FlexGenMemoryModel::host_prefill(const FlexGenPolicy& shape) const {
  const double b = static_cast<double>(shape.block()), states = s_ * hidden_;
  return LinearCost{.weights = in_host(all_weights_),
                    .cache = in_host(s_ * b * kv_ * layers_),
                    .activations = in_host(b * states)} +
         LinearCost{.weights = off_gpu(layer_weights_), .activations = off_gpu(shape.gpu_batch_size * states)};
}

LinearCost FlexGenMemoryModel::host_decode(const FlexGenPolicy& shape) const {
  const double b = static_cast<double>(shape.block()), g = shape.gpu_batch_size, tokens = s_ + n_;
  const double dequantised = kv_ == kv_used_ ? 0 : tokens * kv_used_;
  const double attention = shape.cpu_cache_compute ? g * (element_ * heads_ * tokens + query_ + dequantised) : 0;
  return LinearCost{.constant = attention,
                    .weights = in_host(all_weights_),
                    .cache = in_host(tokens * b * kv_ * layers_),
                    .activations = in_host(b * hidden_)} +
         LinearCost{.weights = on_disk(layer_weights_),
                    .cache = on_disk(2 * tokens * g * kv_),
                    .activations = on_disk(2 * g * hidden_)};
}

LinearCost FlexGenMemoryModel::disk(const FlexGenPolicy& shape) const {
  const double b = static_cast<double>(shape.block());
  return {.weights = on_disk(all_weights_),
          .cache = on_disk((s_ + n_) * b * kv_ * layers_),
          .activations = on_disk(s_ * b * hidden_)};
}

MemoryCandidates FlexGenMemoryModel::candidates(const FlexGenPolicy& shape) const {
  std::vector<LinearCost> gpu_peaks = gpu(shape, true);
  for (const LinearCost& peak : gpu(shape, false)) gpu_peaks.push_back(peak);
  return {std::move(gpu_peaks), {host_prefill(shape), host_decode(shape)}, {disk(shape)}};
}

}  // namespace csdsim::host
