// Tokens of tests, and what may differ between two ways to compute them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/decoder/generation.h"
#include "tests/gpu/harness.h"

namespace gpu_test {

using csdsim::host::TokenId;

inline std::vector<TokenId> some_tokens(std::size_t count, std::uint32_t vocab, std::uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(TokenId{random.below(vocab)});
  return tokens;
}

/// Greedy tokens of both must be equal. Where they part, the logits of both candidates, as `decoder` computes them,
/// must lie within `bound` of the largest.
inline void expect_near_ties(const csdsim::host::Decoder& decoder, const std::vector<std::vector<TokenId>>& prompts,
                             const std::vector<std::vector<TokenId>>& found,
                             const std::vector<std::vector<TokenId>>& expected, float bound) {
  using namespace csdsim::host;
  EXPECT(found.size() == expected.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT(found[i].size() == expected[i].size());
    std::size_t same = 0;
    while (same < found[i].size() && found[i][same] == expected[i][same]) ++same;
    if (same == found[i].size()) continue;
    std::vector<TokenId> context = prompts[i];
    context.insert(context.end(), expected[i].begin(), expected[i].begin() + static_cast<long>(same));
    HostAttention attention(decoder.config(), make_method("dense", {}));
    const SequenceSlice slice{csdsim::SequenceId{0}, static_cast<std::uint32_t>(context.size())};
    attention.create_sequence(slice.sequence);
    const std::uint32_t last = slice.tokens - 1;
    const std::vector<float> logits = decoder.logits(prefill(decoder, attention, {&slice, 1}, context), {&last, 1});
    const float top = *std::max_element(logits.begin(), logits.end());
    EXPECT(top - logits[found[i][same].value] <= bound * std::abs(top));
  }
}

}  // namespace gpu_test
