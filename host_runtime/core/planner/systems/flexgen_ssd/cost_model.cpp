#include "host_runtime/core/planner/systems/flexgen_ssd/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/planner/kept_kv.h"

namespace csdsim::host {

namespace {

double per_second(Bandwidth bandwidth) { return static_cast<double>(bandwidth.bytes_per_second); }
double per_second(ComputeRate rate) { return static_cast<double>(rate.flop_per_second); }

/// Seconds of a processor that computes and reads memory at the same time.
double roofline(double flops, ComputeRate rate, double bytes, const std::optional<Bandwidth>& memory) {
  const double arithmetic = flops / per_second(rate);
  return memory ? std::max(arithmetic, bytes / per_second(*memory)) : arithmetic;
}

/// Seconds of a pass over `bytes` of memory; none where the bandwidth is not known.
double at_memory(double bytes, const std::optional<Bandwidth>& memory) {
  return memory ? bytes / per_second(*memory) : 0;
}

LayerPaths<double> paths_at(const LayerPaths<LinearCost>& paths, const FlexGenPolicy& policy) {
  policy.validate();
  return {.host_to_gpu = paths.host_to_gpu.at(policy),
          .gpu_to_host = paths.gpu_to_host.at(policy),
          .disk_to_host = paths.disk_to_host.at(policy),
          .host_to_disk = paths.host_to_disk.at(policy)};
}

LayerTerms<double> terms_at(const LayerTerms<LinearCost>& terms, const FlexGenPolicy& policy) {
  return {paths_at(terms, policy), terms.compute.at(policy)};
}

LinearCost sum(const LayerTerms<LinearCost>& t) {
  return t.host_to_gpu + t.gpu_to_host + t.disk_to_host + t.host_to_disk + t.compute;
}

double gib(std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(Bytes::gib(1).value); }

}  // namespace

void FlexGenHardware::validate() const {
  const std::pair<std::string_view, std::uint64_t> rates[] = {
      {"host_to_gpu", host_to_gpu.bytes_per_second},
      {"gpu_to_host", gpu_to_host.bytes_per_second},
      {"disk_to_host", disk_to_host.bytes_per_second},
      {"host_to_disk", host_to_disk.bytes_per_second},
      {"gpu_matrix_rate", gpu_matrix_rate.flop_per_second},
      {"gpu_attention_rate", gpu_attention_rate.flop_per_second},
      {"host_attention_rate", host_attention_rate.flop_per_second},
      {"gpu_memory_bandwidth", gpu_memory_bandwidth ? gpu_memory_bandwidth->bytes_per_second : 1},
      {"host_memory_bandwidth", host_memory_bandwidth ? host_memory_bandwidth->bytes_per_second : 1}};
  for (const auto& [name, rate] : rates)
    if (rate == 0) throw UserError(fmt::format("flexgen: {} is 0, must be more than 0", name));
}

double FlexGenBounds::seconds(const FlexGenPolicy& policy) const {
  return prefill_layers * largest(prefill, policy) + decode_layers * largest(decode, policy);
}

FlexGenMemory FlexGenBounds::peak_memory(const FlexGenPolicy& policy) const {
  FlexGenMemory peak;
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    peak[tier] = {static_cast<std::uint64_t>(std::ceil(largest(memory[tier], policy)))};
  return peak;
}

FlexGenCostModel::FlexGenCostModel(const ModelShape& model, const FlexGenLengths& lengths,
                                   const FlexGenHardware& hardware, CostForm form, const RowQuantisation& kv)
    : model_(model),
      lengths_(lengths),
      hardware_(hardware),
      form_(form),
      memory_(model, lengths, form, kv),
      layer_weights_(flexgen_layer_weights(model)),
      hidden_(static_cast<double>(std::uint64_t{model.width} * model.element_bytes)),
      kv_(static_cast<double>((kept_kv_bytes(model, kv) * model.kv_heads).value)),
      kv_used_(static_cast<double>(model.kv_bytes_per_token_and_layer().value)),
      converted_(kv.quantised() ? kv_ + kv_used_ : 0) {
  model.validate();
  hardware.validate();
  if (lengths.prompt_tokens == 0) throw UserError("flexgen: prompt_tokens is 0, must be at least 1");
  if (lengths.output_tokens == 0) throw UserError("flexgen: output_tokens is 0, must be at least 1");
}

LayerPaths<LinearCost> FlexGenCostModel::prefill_bytes(const FlexGenPolicy& shape) const {
  const double s = lengths_.prompt_tokens, b = static_cast<double>(shape.block());
  const double states = s * b * hidden_, new_kv = (s + 1) * b * kv_;
  return {.host_to_gpu = {.weights = off_gpu(layer_weights_), .activations = off_gpu(states)},
          .gpu_to_host = {.cache = off_gpu(new_kv), .activations = off_gpu(states)},
          .disk_to_host = {.weights = on_disk(layer_weights_), .activations = on_disk(states)},
          .host_to_disk = {.cache = on_disk(new_kv), .activations = on_disk(states)}};
}

LayerPaths<LinearCost> FlexGenCostModel::decode_bytes(const FlexGenPolicy& shape) const {
  const double context = lengths_.prompt_tokens + lengths_.output_tokens / 2.0, b = static_cast<double>(shape.block());
  const double states = b * hidden_, new_kv = b * kv_, old_kv = context * b * kv_;
  LayerPaths<LinearCost> bytes{
      .host_to_gpu = {.weights = off_gpu(layer_weights_), .activations = off_gpu(states)},
      .gpu_to_host = {.activations = off_gpu(states)},
      .disk_to_host = {.weights = on_disk(layer_weights_), .cache = on_disk(old_kv), .activations = on_disk(states)},
      .host_to_disk = {.cache = on_disk(new_kv), .activations = on_disk(states)}};
  if (!shape.cpu_cache_compute) {
    bytes.host_to_gpu.cache = off_gpu(old_kv);
    bytes.gpu_to_host.cache = off_gpu(new_kv);
  }
  return bytes;
}

LayerPaths<LinearCost> FlexGenCostModel::in_seconds(const LayerPaths<LinearCost>& bytes) const {
  return {.host_to_gpu = 1 / per_second(hardware_.host_to_gpu) * bytes.host_to_gpu,
          .gpu_to_host = 1 / per_second(hardware_.gpu_to_host) * bytes.gpu_to_host,
          .disk_to_host = 1 / per_second(hardware_.disk_to_host) * bytes.disk_to_host,
          .host_to_disk = 1 / per_second(hardware_.host_to_disk) * bytes.host_to_disk};
}

double FlexGenCostModel::matrix_seconds(const FlexGenPolicy& shape, double tokens) const {
  const double weights = layer_weights_ / model_.element_bytes;
  return shape.num_gpu_batches * roofline(2 * weights * tokens * shape.gpu_batch_size, hardware_.gpu_matrix_rate,
                                          layer_weights_, hardware_.gpu_memory_bandwidth);
}

LinearCost FlexGenCostModel::prefill_compute(const FlexGenPolicy& shape) const {
  const double s = lengths_.prompt_tokens, b = static_cast<double>(shape.block());
  const double attention = 4 * b * s * s * model_.heads * model_.head_dim / per_second(hardware_.gpu_attention_rate);
  return {.constant =
              matrix_seconds(shape, s) + attention + at_memory(s * b * converted_, hardware_.gpu_memory_bandwidth)};
}

LinearCost FlexGenCostModel::decode_compute(const FlexGenPolicy& shape) const {
  const double context = lengths_.prompt_tokens + lengths_.output_tokens / 2.0;
  const double pairs = context * static_cast<double>(shape.block());
  const double flops = 4 * pairs * model_.heads * model_.head_dim, bytes = pairs * kv_used_;
  const double at_gpu = roofline(flops, hardware_.gpu_attention_rate, bytes, hardware_.gpu_memory_bandwidth) +
                        at_memory(pairs * converted_, hardware_.gpu_memory_bandwidth);
  const double at_host = roofline(flops, hardware_.host_attention_rate, bytes, hardware_.host_memory_bandwidth) +
                         at_memory(pairs * converted_, hardware_.host_memory_bandwidth);
  const double matrices = matrix_seconds(shape, 1);
  if (!shape.cpu_cache_compute) return {.constant = matrices + at_gpu};
  return {.constant = matrices, .cache = {at_gpu, at_host, at_host}};
}

LayerTerms<LinearCost> FlexGenCostModel::prefill_linear(const FlexGenPolicy& shape) const {
  return {in_seconds(prefill_bytes(shape)), prefill_compute(shape)};
}

LayerTerms<LinearCost> FlexGenCostModel::decode_linear(const FlexGenPolicy& shape) const {
  return {in_seconds(decode_bytes(shape)), decode_compute(shape)};
}

std::vector<LinearCost> FlexGenCostModel::prefill_candidates(const FlexGenPolicy& shape) const {
  const LayerTerms<LinearCost> t = prefill_linear(shape);
  if (!shape.overlap) return {sum(t)};
  if (form_ == CostForm::paper) return {t.host_to_gpu, t.gpu_to_host, t.disk_to_host, t.host_to_disk, t.compute};
  return {t.host_to_gpu + t.disk_to_host, t.gpu_to_host + t.host_to_disk, t.compute};
}

std::vector<LinearCost> FlexGenCostModel::decode_candidates(const FlexGenPolicy& shape) const {
  const LayerTerms<LinearCost> t = decode_linear(shape);
  if (!shape.overlap) return {sum(t)};
  if (form_ == CostForm::paper) return {t.host_to_gpu, t.gpu_to_host, t.disk_to_host, t.host_to_disk, t.compute};
  return {t.host_to_gpu + t.gpu_to_host, t.host_to_gpu + t.disk_to_host, t.host_to_gpu + t.host_to_disk,
          t.host_to_gpu + t.compute};
}

FlexGenBounds FlexGenCostModel::bounds(const FlexGenPolicy& shape) const {
  shape.validate();
  const double layers = model_.layers;
  return {.prefill = prefill_candidates(shape),
          .decode = decode_candidates(shape),
          .memory = memory_.candidates(shape),
          .prefill_layers = layers,
          .decode_layers = layers * (lengths_.output_tokens - 1)};
}

LayerPaths<double> FlexGenCostModel::prefill_traffic(const FlexGenPolicy& policy) const {
  return paths_at(prefill_bytes(policy), policy);
}

LayerPaths<double> FlexGenCostModel::decode_traffic(const FlexGenPolicy& policy) const {
  return paths_at(decode_bytes(policy), policy);
}

LayerTerms<double> FlexGenCostModel::prefill_terms(const FlexGenPolicy& policy) const {
  return terms_at(prefill_linear(policy), policy);
}

LayerTerms<double> FlexGenCostModel::decode_terms(const FlexGenPolicy& policy) const {
  return terms_at(decode_linear(policy), policy);
}

double FlexGenCostModel::prefill_layer_seconds(const FlexGenPolicy& policy) const {
  return largest(bounds(policy).prefill, policy);
}

double FlexGenCostModel::decode_layer_seconds(const FlexGenPolicy& policy) const {
  return largest(bounds(policy).decode, policy);
}

double FlexGenCostModel::seconds(const FlexGenPolicy& policy) const { return bounds(policy).seconds(policy); }

double FlexGenCostModel::tokens_per_second(const FlexGenPolicy& policy) const {
  return static_cast<double>(policy.block() * lengths_.output_tokens) / seconds(policy);
}

FlexGenMemory FlexGenCostModel::peak_memory(const FlexGenPolicy& policy) const {
  return bounds(policy).peak_memory(policy);
}

void FlexGenCostModel::require_fit(const FlexGenPolicy& policy) const {
  const std::string shortage = flexgen_shortage(peak_memory(policy), hardware_.capacity);
  if (shortage.empty()) return;
  throw UserError(fmt::format("flexgen: {} x {} sequences of {} + {} tokens do not fit: {}", policy.num_gpu_batches,
                              policy.gpu_batch_size, lengths_.prompt_tokens, lengths_.output_tokens, shortage));
}

std::string flexgen_shortage(const FlexGenMemory& needed, const FlexGenMemory& capacity) {
  std::string text;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    if (needed[tier] <= capacity[tier]) continue;
    text += fmt::format("{}{} needs {:.2f} GiB, of which {:.2f} GiB are usable: {:.2f} GiB short",
                        text.empty() ? "" : "; ", kTierNames[tier], gib(needed[tier].value), gib(capacity[tier].value),
                        gib((needed[tier] - capacity[tier]).value));
  }
  return text;
}

}  // namespace csdsim::host
