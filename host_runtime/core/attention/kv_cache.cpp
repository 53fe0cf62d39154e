#include "host_runtime/core/attention/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {

HostKvCache::HostKvCache(const ModelConfig& config, KeyLayout layout)
    : layers_(config.layers), kv_heads_(config.kv_heads), head_dim_(config.head_dim), layout_(layout) {}

void HostKvCache::create(SequenceId sequence) {
  std::vector<Head> heads(layers_ * kv_heads_);
  for (Head& head : heads) head.value_mean.assign(head_dim_, 0.0f);
  if (!sequences_.emplace(sequence, std::move(heads)).second) {
    throw InternalError(fmt::format("KV cache: sequence {} exists already", sequence.value));
  }
}

void HostKvCache::free(SequenceId sequence) {
  if (sequences_.erase(sequence) == 0) throw InternalError(fmt::format("KV cache: no sequence {}", sequence.value));
}

const HostKvCache::Head& HostKvCache::head(SequenceId sequence, LayerId layer, KvHead head) const {
  const auto it = sequences_.find(sequence);
  if (it == sequences_.end() || layer.value >= layers_ || head.value >= kv_heads_) {
    throw InternalError(
        fmt::format("KV cache: no head {} of layer {} of sequence {}", head.value, layer.value, sequence.value));
  }
  return it->second[layer.value * kv_heads_ + head.value];
}

std::size_t HostKvCache::tokens(SequenceId sequence, LayerId layer) const {
  return head(sequence, layer, KvHead{0}).keys.size() / head_dim_;
}

KvView HostKvCache::view(SequenceId sequence, LayerId layer, KvHead kv_head) const {
  const Head& h = head(sequence, layer, kv_head);
  return {h.keys.size() / head_dim_, head_dim_, h.keys, h.values, h.component_keys, h.component_capacity, h.value_mean};
}

void HostKvCache::append(SequenceId sequence, LayerId layer, std::span<const Half> k, std::span<const Half> v) {
  const std::size_t row = kv_heads_ * head_dim_;
  if (k.size() != v.size() || k.size() % row != 0) throw InternalError("KV cache: k and v are not whole tokens");
  head(sequence, layer, KvHead{0});  // throws if there is none
  std::vector<Head>& heads = sequences_.at(sequence);
  std::vector<float> wide(head_dim_);
  for (std::size_t i = 0; i < kv_heads_; ++i) {
    Head& h = heads[layer.value * kv_heads_ + i];
    for (std::size_t at = i * head_dim_; at < k.size(); at += row) {
      h.keys.insert(h.keys.end(), k.data() + at, k.data() + at + head_dim_);
      h.values.insert(h.values.end(), v.data() + at, v.data() + at + head_dim_);
      const std::size_t tokens = h.keys.size() / head_dim_;
      add_to_mean(h, v.data() + at, tokens, wide);
      if (layout_ == KeyLayout::token_and_component_major) append_components(h, k.data() + at, tokens - 1);
    }
  }
}

void HostKvCache::truncate(SequenceId sequence, LayerId layer, std::size_t tokens) {
  const std::size_t held = this->tokens(sequence, layer);
  if (tokens > held) throw InternalError(fmt::format("KV cache: {} tokens are to stay of {}", tokens, held));
  if (tokens == held) return;
  std::vector<float> wide(head_dim_);
  for (std::size_t i = 0; i < kv_heads_; ++i) {
    Head& h = sequences_.at(sequence)[layer.value * kv_heads_ + i];
    h.keys.resize(tokens * head_dim_);
    h.values.resize(tokens * head_dim_);
    std::ranges::fill(h.value_mean, 0.0f);
    for (std::size_t token = 0; token < tokens; ++token) add_to_mean(h, &h.values[token * head_dim_], token + 1, wide);
  }
}

/// The value of the newest of `tokens` tokens joins the mean; `wide` has room for one.
void HostKvCache::add_to_mean(Head& h, const Half* value, std::size_t tokens, std::span<float> wide) {
  simd::widen(value, wide.data(), wide.size());
  for (std::size_t c = 0; c < wide.size(); ++c)
    h.value_mean[c] += (wide[c] - h.value_mean[c]) / static_cast<float>(tokens);
}

void HostKvCache::append_components(Head& h, const Half* key, std::size_t token) const {
  if (token == h.component_capacity) {
    const std::size_t capacity = std::max<std::size_t>(64, 2 * token);
    std::vector<Half> grown(head_dim_ * capacity);
    for (std::size_t c = 0; c < head_dim_; ++c) {
      std::copy_n(h.component_keys.data() + c * h.component_capacity, token, grown.data() + c * capacity);
    }
    h.component_keys = std::move(grown);
    h.component_capacity = capacity;
  }
  for (std::size_t c = 0; c < head_dim_; ++c) h.component_keys[c * h.component_capacity + token] = key[c];
}

}  // namespace csdsim::host
