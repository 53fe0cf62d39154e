// K and V of every sequence in host memory, fp16, token-major per (sequence, layer, KV head).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/fp16.h"
#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// K and V of one (sequence, layer, KV head); valid until the next append() or free() of its sequence.
struct KvView {
  std::size_t tokens = 0;
  std::size_t head_dim = 0;
  std::span<const Half> keys;    ///< [tokens][head_dim]
  std::span<const Half> values;  ///< [tokens][head_dim]
  /// Component i of all keys is component_keys[i * component_stride .. + tokens); empty without the second layout.
  std::span<const Half> component_keys;
  std::size_t component_stride = 0;
  /// Mean of all values, updated token by token in fp32: mean += (v - mean) / tokens.
  std::span<const float> value_mean;
};

/// Which layouts of K are kept: SparQ reads some components of all keys and all components of some keys.
enum class KeyLayout : std::uint8_t { token_major, token_and_component_major };

class HostKvCache {
 public:
  HostKvCache(const ModelConfig& config, KeyLayout layout);

  /// InternalError if the sequence exists already, or (everywhere else) does not exist.
  void create(SequenceId sequence);
  void free(SequenceId sequence);

  bool has(SequenceId sequence) const { return sequences_.count(sequence) > 0; }

  /// Appends any number of tokens to a layer; k and v are [tokens][kv_heads][head_dim].
  void append(SequenceId sequence, LayerId layer, std::span<const Half> k, std::span<const Half> v);

  /// Removes the newest tokens of a layer, so that `tokens` are left. InternalError if there are fewer.
  void truncate(SequenceId sequence, LayerId layer, std::size_t tokens);

  std::size_t tokens(SequenceId sequence, LayerId layer) const;
  KvView view(SequenceId sequence, LayerId layer, KvHead head) const;

 private:
  struct Head {
    std::vector<Half> keys;
    std::vector<Half> values;
    std::vector<Half> component_keys;  // [head_dim][component_capacity]
    std::size_t component_capacity = 0;
    std::vector<float> value_mean;
  };

  const Head& head(SequenceId sequence, LayerId layer, KvHead head) const;
  static void add_to_mean(Head& head, const Half* value, std::size_t tokens, std::span<float> wide);
  void append_components(Head& head, const Half* key, std::size_t token) const;

  std::size_t layers_, kv_heads_, head_dim_;
  KeyLayout layout_;
  std::map<SequenceId, std::vector<Head>> sequences_;  // heads layer by layer
};

}  // namespace csdsim::host
