#include "host_runtime/core/systems/flexgen_ssd/policy_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/machine/rates.h"
#include "host_runtime/core/plan/kept_kv.h"

namespace csdsim::host {

namespace {

/// A policy's costs for one number of mini-batches.
class Costs {
 public:
  Costs(const FlexGenProblem& problem, std::uint32_t mini_batches) : p_(problem), mini_batches_(mini_batches) {
    const ModelShape& m = p_.model;
    const GpuModel gpu(p_.rates.gpu);
    const auto time = [&](const ComputeWork& work) { return gpu.time(work).seconds(); };
    prompt_ = std::ranges::max(p_.workload.prompts());
    const std::uint64_t part = (p_.workload.batch() + mini_batches - 1) / mini_batches;
    const std::vector<std::uint32_t> prompts(part, prompt_);
    const std::uint64_t tokens = part * prompt_, context = part * (prompt_ + p_.workload.output_tokens / 2);
    ComputeWork attention = m.decode_attention(part, context);
    double quantising = 0;
    if (p_.kv.quantised()) {
      attention = after_dequantising(attention, m, p_.kv, context);
      quantising = time(quantise_kv(m, p_.kv, tokens));
    }
    prefill_gpu_ = mini_batches * (time(m.attention_inputs(tokens)) + time(m.prefill_attention(prompts)) +
                                   time(m.finish_layer(tokens)) + quantising);
    decode_gpu_ = mini_batches * (time(m.attention_inputs(part)) + time(attention) + time(m.finish_layer(part)));
    kv_ = bytes(kept_kv_bytes(m, p_.kv));
    batch_ = p_.workload.batch();
    tokens_at_end_ = static_cast<double>(p_.workload.longest_contexts());
    part_ = static_cast<double>(part);
  }

  /// The fastest weights for these heads, if anything fits.
  std::optional<FlexGenPolicy> fastest(std::uint32_t on_gpu, std::uint32_t on_host) const {
    const ModelShape& m = p_.model;
    const double layers = m.layers, off_gpu = m.kv_heads - on_gpu, in_files = m.kv_heads - on_gpu - on_host;
    const double weights = bytes(m.layer_weight_bytes()), buffers = std::min(p_.weight_buffers, m.layers);
    const double gpu_left = bytes(p_.rates.gpu_memory) - gpu_tokens(on_gpu, off_gpu) - bytes(m.weight_bytes());
    // K and V on their way: those of the last layers of the prefill leave while those of the first step come.
    const double way = p_.kv_buffers * kv_ * (in_files * tokens_at_end_ + off_gpu * batch_ * prompt_);
    const double host_left = bytes(p_.rates.host_memory) - on_host * kv_ * tokens_at_end_ * layers - way;
    const double files_left = bytes(p_.rates.files) - in_files * kv_ * tokens_at_end_ * layers;
    if (host_left < 0 || files_left < 0) return {};
    // A percent less of each layer's weights on the GPU gives back those of all layers but the buffered ones.
    FlexGenPolicy policy{.mini_batches = mini_batches_, .heads_on_gpu = on_gpu, .heads_on_host = on_host};
    const double off = std::max(0.0, std::ceil(-gpu_left / (weights / 100 * std::max(1.0, layers - buffers)) - 1e-9));
    if (off > 100 || (layers <= buffers && gpu_left < 0)) return {};
    const auto host_bytes = [&](double host) { return weights / 100 * (host * layers + (off - host) * buffers); };
    double host = off;
    while (host > 0 && host_bytes(host) > host_left) --host;
    const double filed = off - host;
    if (host_bytes(host) > host_left || filed / 100 * weights * layers > files_left) return {};
    if (filed > 0 && p_.rates.carried) return {};
    policy.weights_on_host = static_cast<std::uint32_t>(host);
    policy.weights_in_files = static_cast<std::uint32_t>(filed);

    const double new_kv = batch_ * prompt_ * kv_, old_kv = batch_ * (prompt_ + p_.workload.output_tokens / 2.0) * kv_;
    const double copied = off / 100 * weights, read = filed / 100 * weights;
    const double to_gpu = 1 / per_second(p_.rates.host_to_gpu), from_gpu = 1 / per_second(p_.rates.gpu_to_host);
    const double from_files = 1 / per_second(p_.rates.files_to_host), to_files = 1 / per_second(p_.rates.host_to_files);
    const double prefill = std::max(
        {prefill_gpu_, copied * to_gpu, off_gpu * new_kv * from_gpu, read * from_files + in_files * new_kv * to_files});
    const double decode =
        std::max({decode_gpu_, (copied + off_gpu * old_kv) * to_gpu, off_gpu * batch_ * kv_ * from_gpu,
                  (read + in_files * old_kv) * from_files + in_files * batch_ * kv_ * to_files});
    policy.seconds = layers * (prefill + p_.workload.decode_steps() * decode);
    return policy;
  }

  /// Bytes that a decode step moves.
  double moved(const FlexGenPolicy& policy) const {
    const double off_gpu = p_.model.kv_heads - policy.heads_on_gpu, in_files = off_gpu - policy.heads_on_host;
    return (policy.weights_on_host + 2.0 * policy.weights_in_files) / 100 * bytes(p_.model.layer_weight_bytes()) +
           (off_gpu + in_files) * kv_ * tokens_at_end_;
  }

 private:
  /// Tokens that fit in GPU memory beside the weights. Copies for the first step come while prompts leave in the
  /// prefill.
  double gpu_tokens(double on_gpu, double off_gpu) const {
    const ModelShape& m = p_.model;
    const double layers = m.layers, fp16 = bytes(m.kv_bytes_per_token_and_head());
    const double x = double(m.width) * m.element_bytes, q = bytes(m.query_bytes({KvHead{0}, m.kv_heads}));
    const double of_prompts = batch_ * prompt_, copies = p_.kv_buffers * off_gpu * kv_;
    const double new_kv = on_gpu * kv_ + m.kv_heads * (fp16 - kv_);  // before it is quantised, and where it stays
    double prefill = (on_gpu * kv_ * layers + x + q + new_kv + 2 * copies) * of_prompts + q * part_ * prompt_;
    if (p_.stores_attention_weights) prefill += part_ * prompt_ * prompt_ * 2 * m.heads * m.element_bytes;
    double decode = (on_gpu * kv_ * layers + copies) * tokens_at_end_ + batch_ * (x + 2 * q + 2 * m.kv_heads * fp16);
    if (p_.kv.quantised()) decode += m.kv_heads * fp16 * tokens_at_end_ / batch_ * part_;  // dequantised
    return std::max(prefill, decode);
  }

  const FlexGenProblem& p_;
  std::uint32_t mini_batches_;
  double prefill_gpu_ = 0, decode_gpu_ = 0;  ///< seconds of a layer
  std::uint32_t prompt_ = 0;
  double kv_ = 0;  ///< K and V of a token and head
  double batch_ = 0, part_ = 0, tokens_at_end_ = 0;
};

std::optional<FlexGenPolicy> search(const FlexGenProblem& problem) {
  std::optional<FlexGenPolicy> best;
  double best_moved = 0;
  const std::uint32_t batch = problem.workload.batch(), heads = problem.model.kv_heads;
  for (std::uint32_t mini_batches = 1; mini_batches <= batch; ++mini_batches) {
    if (batch % mini_batches != 0 && mini_batches != problem.rates.mini_batches) continue;
    if (problem.rates.mini_batches_stated && mini_batches != problem.rates.mini_batches) continue;
    const Costs costs(problem, mini_batches);
    for (std::uint32_t gpu = 0; gpu <= heads; ++gpu)
      for (std::uint32_t host = 0; gpu + host <= heads; ++host) {
        const std::optional<FlexGenPolicy> found = costs.fastest(gpu, host);
        if (!found) continue;
        const double moved = costs.moved(*found);
        constexpr double kEqual = 1e-6;
        if (best && found->seconds > best->seconds * (1 + kEqual)) continue;
        if (best && found->seconds >= best->seconds * (1 - kEqual) && moved >= best_moved) continue;
        best = found, best_moved = moved;
      }
  }
  return best;
}

}  // namespace

FlexGenPolicy best_flexgen_policy(const FlexGenProblem& problem) {
  if (const auto best = search(problem)) return *best;
  const auto gib = [](Bytes of) { return bytes(of) / static_cast<double>(Bytes::gib(1).value); };
  const std::uint32_t batch = problem.workload.batch();
  FlexGenProblem smaller = problem;
  std::uint32_t fits = batch;
  while (--fits > 0) {
    smaller.workload = problem.workload.first(fits);
    smaller.rates.mini_batches = std::min(problem.rates.mini_batches, fits);
    if (search(smaller)) break;
  }
  FlexGenProblem fused = problem;
  fused.stores_attention_weights = false;
  const bool fits_fused = problem.stores_attention_weights && search(fused);
  throw UserError(fmt::format(
      "flexgen: no placement of {} sequence{} fits: {:.2f} GiB of weights and {:.2f} GiB of K and V, beside what a "
      "layer needs, in {:.2f} GiB of GPU memory, {:.2f} GiB of host memory and {:.2f} GiB of files; {}{}",
      batch, batch == 1 ? "" : "s", gib(problem.model.weight_bytes()),
      gib(kept_kv_bytes(problem.model, problem.kv) *
          (problem.workload.longest_contexts() * problem.model.kv_heads * problem.model.layers)),
      gib(problem.rates.gpu_memory), gib(problem.rates.host_memory), gib(problem.rates.files),
      fits == 0 ? "not even 1 fits" : fmt::format("at most {} fit", fits),
      fits_fused ? "; without stored attention weights all fit (system.stores_attention_weights: false)" : ""));
}

}  // namespace csdsim::host
