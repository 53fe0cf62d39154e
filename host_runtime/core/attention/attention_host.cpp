#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention/attention_provider.h"
#include "host_runtime/core/decoder/decoder.h"

namespace csdsim::host {

void AttentionProvider::speculate_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                                       const Tensor& q) {
  speculate(layer, sequences, decoder.to_host_float(q));
}

Tensor AttentionProvider::attend_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                                      const AttentionInputs& inputs) {
  std::vector<Half> out(inputs.q.rows * inputs.q.cols);
  attend(layer, sequences, decoder.to_host_float(inputs.q), decoder.keys_to_host(layer, inputs.k),
         decoder.values_to_host(layer, inputs.v), out);
  return decoder.from_host(out, inputs.q.cols);
}

void Backend::mask(Tensor&, std::span<const std::uint8_t>) {
  throw InternalError("a backend without Operator::mask was asked to mask");
}

void Backend::fatrelu(Tensor&, const Tensor&, float) {
  throw InternalError("a backend without Operator::fatrelu was asked for FATReLU");
}

std::unique_ptr<MethodAttention> Backend::make_attention(const ModelConfig& config, ConfiguredMethod method,
                                                         QueryPrecision precision) {
  return std::make_unique<HostAttention>(config, std::move(method.method), precision);
}

HostAttention::HostAttention(const ModelConfig& config, std::unique_ptr<AttentionMethod> method,
                             QueryPrecision precision)
    : config_(config), method_(std::move(method)), precision_(precision), cache_(config, method_->key_layout()) {}

void HostAttention::store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
                          std::span<const Half> v) {
  std::size_t first = 0;
  for (const SequenceSlice& slice : slices) {
    const std::size_t count = std::size_t{slice.tokens} * config_.kv_width();
    if (first + count > k.size() || k.size() != v.size()) throw InternalError("host attention: rows are missing");
    cache_.append(slice.sequence, layer, k.subspan(first, count), v.subspan(first, count));
    first += count;
  }
}

void HostAttention::free_sequence(SequenceId sequence) {
  cache_.free(sequence);
  method_->forget(sequence);
}

// Queries in the precision that attention is to see.
std::vector<float> HostAttention::as_attended(std::span<const float> q) const {
  std::vector<float> query(q.begin(), q.end());
  if (precision_ == QueryPrecision::f16) {
    std::vector<Half> wire(q.size());
    simd::narrow(q.data(), wire.data(), q.size());
    simd::widen(wire.data(), query.data(), q.size());
  }
  return query;
}

std::vector<KvView> HostAttention::views(SequenceId sequence, LayerId layer) const {
  std::vector<KvView> heads;
  for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
    heads.push_back(cache_.view(sequence, layer, KvHead{head}));
  }
  return heads;
}

void HostAttention::learn(LayerId layer, std::span<const SequenceSlice> slices, std::span<const float> q) {
  if (!method_->learns_from_prompt()) return;
  const std::vector<float> query = as_attended(q);
  std::size_t first = 0;
  for (const SequenceSlice& slice : slices) {
    const std::size_t count = std::size_t{slice.tokens} * config_.q_width();
    if (first + count > q.size()) throw InternalError("host attention: rows are missing");
    method_->learn({slice.sequence, layer, config_.group_size(), std::span(query).subspan(first, count),
                    views(slice.sequence, layer)});
    first += count;
  }
}

void HostAttention::speculate(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q) {
  const std::vector<float> query = as_attended(q);
  for (std::size_t row = 0; row < sequences.size(); ++row) {
    method_->speculate(sequences[row], layer, std::span(query).subspan(row * config_.q_width(), config_.q_width()));
  }
}

void HostAttention::attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q,
                           std::span<const Half> k, std::span<const Half> v, std::span<Half> out) {
  const std::size_t q_row = config_.q_width(), kv_row = config_.kv_width();
  const std::size_t rows = sequences.size(), group = std::size_t{config_.group_size()} * config_.head_dim;
  if (q.size() != rows * q_row || out.size() != q.size() || k.size() != rows * kv_row || v.size() != k.size()) {
    throw InternalError("host attention: one row a sequence is needed");
  }
  const std::vector<float> query = as_attended(q);
  std::vector<float> wide(q_row);
  std::vector<HeadSelection> selections(observer_ ? config_.kv_heads : 0);
  for (std::size_t row = 0; row < rows; ++row) {
    cache_.append(sequences[row], layer, k.subspan(row * kv_row, kv_row), v.subspan(row * kv_row, kv_row));
    const std::vector<KvView> heads = views(sequences[row], layer);
    const LayerStep step{sequences[row], layer, config_.group_size(), std::span(query).subspan(row * q_row, q_row),
                         heads};
    method_->attend_layer(step, wide, selections);
    simd::narrow(wide.data(), out.data() + row * q_row, q_row);
    for (std::uint32_t head = 0; head < selections.size(); ++head) {
      const auto mass = attention_mass(step.q.subspan(head * group, group), heads[head], selections[head].tokens);
      observer_({sequences[row], layer, KvHead{head}, static_cast<std::uint32_t>(heads[head].tokens), mass,
                 selections[head]});
    }
  }
}

}  // namespace csdsim::host
