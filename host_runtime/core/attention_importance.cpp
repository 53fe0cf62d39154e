#include "host_runtime/core/attention_importance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {
namespace {

// At most d * 127 * 127: an int32 holds it up to d = 133,000.
std::int32_t product(const std::int8_t* a, const std::int8_t* b, std::size_t n) {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::int32_t{a[i]} * std::int32_t{b[i]};
  return sum;
}

}  // namespace

float quantise(std::span<const float> x, int largest, std::span<std::int8_t> out) {
  float magnitude = 0;
  for (const float value : x) magnitude = std::max(magnitude, std::abs(value));
  const float scale = magnitude / static_cast<float>(largest);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float steps = scale > 0 ? std::nearbyint(x[i] / scale) : 0.0f;
    const auto bound = static_cast<float>(largest);
    out[i] = static_cast<std::int8_t>(std::clamp(steps, -bound, bound));
  }
  return scale;
}

ImportanceAttention::ImportanceAttention(const ImportanceOptions& options, std::string_view name)
    : options_(options), name_(name) {
  if (options.bits != 8 && options.bits != 4) throw UserError("importance scores: keys have 8 or 4 bits");
  if (options.tokens.is_zero()) throw UserError("importance scores: k (tokens) is 0, at least 1 is needed");
}

void ImportanceAttention::attend_layer(const LayerStep& step, std::span<float> out,
                                       std::span<HeadSelection> selections) {
  const std::size_t heads = step.heads.size(), tokens = step.heads[0].tokens, d = step.heads[0].head_dim;
  const std::size_t size = step.group * d;
  const std::uint32_t count = options_.tokens.at(tokens);
  const bool all = count >= tokens, per_head = options_.aggregate == ScoreAggregate::per_head;
  std::vector<std::vector<float>> scores(per_head ? heads : 1);
  std::vector<float> key(d);
  std::vector<std::int8_t> query(d);
  for (std::size_t head = 0; head < heads && !all; ++head) {
    State& state = states_.at(step.sequence, step.layer, head);
    for (std::size_t j = state.scales.size(); j < tokens; ++j) {
      simd::widen(step.heads[head].keys.data() + j * d, key.data(), d);
      state.keys.resize((j + 1) * d);
      state.scales.push_back(quantise(key, options_.bits == 8 ? 127 : 7, std::span(state.keys).subspan(j * d)));
    }
    const bool largest = options_.aggregate == ScoreAggregate::max_raw;
    std::vector<float>& imp = scores[per_head ? head : 0];
    if (imp.empty()) imp.assign(tokens - 1, largest ? -std::numeric_limits<float>::infinity() : 0.0f);
    for (std::size_t g = 0; g < step.group; ++g) {
      const float scale = quantise(step.q.subspan(head * size + g * d, d), 127, query);
      for (std::size_t j = 0; j < imp.size(); ++j) {
        const float score =
            scale * state.scales[j] * static_cast<float>(product(query.data(), state.keys.data() + j * d, d));
        imp[j] = largest ? std::max(imp[j], score) : imp[j] + score;
      }
    }
  }
  for (std::size_t head = 0; head < heads; ++head) {
    std::vector<std::uint32_t> chosen;
    if (all) {
      chosen = all_indices(tokens);
    } else {
      chosen = top_indices(scores[per_head ? head : 0], count - 1);
      chosen.push_back(static_cast<std::uint32_t>(tokens - 1));
    }
    attend_tokens(step.q.subspan(head * size, size), step.heads[head], chosen, out.subspan(head * size, size));
    const std::uint64_t elements = 2 * chosen.size() * d + (all ? 0 : tokens * d * options_.bits / 16);
    if (!selections.empty()) describe_selection(chosen, elements, &selections[head]);
  }
}

}  // namespace csdsim::host
