// Reference results for tests of attention methods.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "host_runtime/core/attention/attention_methods.h"
#include "tests/host_runtime/naive_attention.h"
#include "tests/host_runtime/random_layers.h"

namespace csdsim::test {

inline LayerShape shape_of(unsigned seed) {
  return {.kv_heads = 1 + seed % 3, .group = seed % 4 == 0 ? 4U : 1U, .head_dim = seed % 2 ? 32U : 64U, .layers = 4};
}

// The sum over the group of raw logits of every token, in double.
inline std::vector<double> raw_logits(std::span<const float> q, const host::KvView& kv) {
  std::vector<double> logits(kv.tokens, 0.0);
  for (std::size_t j = 0; j < kv.tokens; ++j) {
    for (std::size_t i = 0; i < q.size(); ++i) logits[j] += q[i] * key(kv, j, i % kv.head_dim);
  }
  return logits;
}

// `count` best of [0, tokens - 1) and the last token.
inline std::vector<std::uint32_t> best_and_current(const std::vector<double>& keys, std::size_t count) {
  const std::vector<float> earlier(keys.begin(), keys.end() - 1);
  std::vector<std::uint32_t> best = host::top_indices(earlier, count - 1);
  best.push_back(static_cast<std::uint32_t>(keys.size() - 1));
  return best;
}

inline void check_output(const std::vector<Half>& out, const Rows& r, const Decoding& d, const LayerShape& shape) {
  const std::size_t size = shape.group * shape.head_dim;
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    const host::KvView kv = d.attention.cache().view(SequenceId{0}, LayerId{0}, KvHead{head});
    for (std::uint32_t g = 0; g < shape.group; ++g) {
      const std::size_t at = head * size + g * shape.head_dim;
      const auto expected = attend_to(r.q.data() + at, kv, d.tokens(head));
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        REQUIRE(std::abs(half_to_float(out[at + i]) - expected[i]) < 2e-3);
      }
    }
  }
}

}  // namespace csdsim::test
