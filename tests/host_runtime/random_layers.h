// One layer of a sequence with random K, V and q, and decode steps over it.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "host_runtime/core/attention/attention_provider.h"

namespace csdsim::test {

struct LayerShape {
  std::uint32_t kv_heads = 2, group = 1, head_dim = 32, layers = 1;

  host::ModelConfig config() const {
    host::ModelConfig c;
    c.layers = layers;
    c.kv_heads = kv_heads;
    c.heads = kv_heads * group;
    c.head_dim = head_dim;
    return c;
  }
};

/// Rows of a prompt or of a step: q [rows][heads][d], k and v [rows][kv_heads][d].
struct Rows {
  std::vector<float> q;
  std::vector<Half> k, v;
};

class RandomLayers {
 public:
  RandomLayers(LayerShape shape, unsigned seed) : shape_(shape), rng_(seed) {
    for (std::uint32_t i = 0; i < shape.head_dim; ++i) drift_.push_back(number());
  }

  /// Queries share a direction with some keys, so that attention is uneven.
  Rows rows(std::size_t count) {
    const host::ModelConfig c = shape_.config();
    Rows r;
    for (std::size_t i = 0; i < count * c.q_width(); ++i) {
      r.q.push_back(half_to_float(float_to_half(number() + drift_[i % shape_.head_dim])));
    }
    for (std::size_t t = 0; t < count; ++t) {
      const float along = number() * 0.5f;
      for (std::uint32_t i = 0; i < c.kv_width(); ++i) {
        r.k.push_back(float_to_half(number() * 0.7f + along * drift_[i % shape_.head_dim]));
        r.v.push_back(float_to_half(number()));
      }
    }
    return r;
  }

  std::mt19937& rng() { return rng_; }

 private:
  float number() { return (static_cast<float>(rng_() % 20001) - 10000.0f) / 8000.0f; }

  LayerShape shape_;
  std::mt19937 rng_;
  std::vector<float> drift_;
};

/// One sequence in a HostAttention, layer 0, fed row by row.
struct Decoding {
  host::HostAttention attention;
  std::vector<host::HeadSelection> selections;  ///< selections of the last step, by KV head

  Decoding(const LayerShape& shape, std::unique_ptr<host::AttentionMethod> method)
      : attention(shape.config(), std::move(method)), selections(shape.kv_heads) {
    attention.create_sequence(SequenceId{0});
    attention.set_observer([this](const host::HeadObservation& o) { selections[o.head.value] = o.selection; });
  }

  void prompt(const Rows& r, std::uint32_t tokens, LayerId layer = LayerId{0}) {
    const host::SequenceSlice slice{SequenceId{0}, tokens};
    attention.store(layer, {&slice, 1}, r.k, r.v);
    if (attention.learns_from_prompt()) attention.learn(layer, {&slice, 1}, r.q);
  }

  std::vector<Half> step(const Rows& r, LayerId layer = LayerId{0}) {
    std::vector<Half> out(r.q.size());
    const SequenceId sequence{0};
    attention.attend(layer, {&sequence, 1}, r.q, r.k, r.v, out);
    return out;
  }

  std::vector<std::uint32_t> tokens(std::size_t head = 0) const {
    std::vector<std::uint32_t> result;
    for (const TokenIndex t : selections.at(head).tokens) result.push_back(t.value);
    return result;
  }
};

}  // namespace csdsim::test
