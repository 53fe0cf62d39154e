#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention/attention.h"

namespace csdsim::host {

void DenseAttention::attend(std::span<const float> q, const KvView& kv, std::span<float> out,
                            HeadSelection* selection) const {
  const std::size_t d = kv.head_dim;
  if (q.size() != out.size() || q.size() % d != 0) throw InternalError("dense attention: q and out must agree");
  const std::size_t group = q.size() / d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<float> scores(kv.tokens);
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t g = 0; g < group && kv.tokens > 0; ++g) {
    simd::gemv_rows(q.data() + g * d, kv.keys.data(), kv.tokens, d, scores.data());
    for (float& score : scores) score *= scale;
    const float sum = simd::exp_shifted(scores.data(), scores.size(), *std::max_element(scores.begin(), scores.end()));
    float* to = out.data() + g * d;
    simd::accumulate_rows(scores.data(), kv.values.data(), kv.tokens, d, to);
    for (std::size_t i = 0; i < d; ++i) to[i] /= sum;
  }
  if (selection == nullptr) return;
  describe_selection(all_indices(kv.tokens), 2 * kv.tokens * d, selection);
  selection->alpha.assign(group, 1.0f);
}

}  // namespace csdsim::host
