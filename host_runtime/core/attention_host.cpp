#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention_provider.h"

namespace csdsim::host {

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

void HostAttention::attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q,
                           std::span<const Half> k, std::span<const Half> v, std::span<Half> out) {
  const std::size_t q_row = config_.q_width(), kv_row = config_.kv_width();
  const std::size_t rows = sequences.size(), group = std::size_t{config_.group_size()} * config_.head_dim;
  if (q.size() != rows * q_row || out.size() != q.size() || k.size() != rows * kv_row || v.size() != k.size()) {
    throw InternalError("host attention: one row a sequence is needed");
  }
  std::vector<float> query(q.begin(), q.end()), wide(group);
  if (precision_ == QueryPrecision::f16) {
    std::vector<Half> wire(q.size());
    simd::narrow(q.data(), wire.data(), q.size());
    simd::widen(wire.data(), query.data(), q.size());
  }
  HeadSelection selection;
  for (std::size_t row = 0; row < rows; ++row) {
    cache_.append(sequences[row], layer, k.subspan(row * kv_row, kv_row), v.subspan(row * kv_row, kv_row));
    for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
      const std::size_t at = row * q_row + head * group;
      method_->attend(std::span(query).subspan(at, group), cache_.view(sequences[row], layer, KvHead{head}), wide,
                      observer_ ? &selection : nullptr);
      simd::narrow(wide.data(), out.data() + at, group);
      if (observer_) observer_(sequences[row], layer, KvHead{head}, selection);
    }
  }
}

}  // namespace csdsim::host
