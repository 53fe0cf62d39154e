#include "host_runtime/core/attention_importance.h"

#include <algorithm>
#include <cmath>
#include <iterator>
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

/// Share of `of` that is in `chosen`; both ascend.
float share_within(std::span<const std::uint32_t> chosen, std::span<const std::uint32_t> of) {
  std::vector<std::uint32_t> both;
  std::set_intersection(chosen.begin(), chosen.end(), of.begin(), of.end(), std::back_inserter(both));
  return static_cast<float>(both.size()) / static_cast<float>(of.size());
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
  if (options.bits != 16 && options.bits != 8 && options.bits != 4)
    throw UserError("importance scores: keys have 16, 8 or 4 bits");
  if (options.tokens.is_zero()) throw UserError("importance scores: k (tokens) is 0, at least 1 is needed");
}

const ImportanceAttention::State& ImportanceAttention::quantised(const LayerStep& step, std::size_t head) {
  const KvView& kv = step.heads[head];
  const std::size_t d = kv.head_dim;
  State& state = states_.at(step.sequence, step.layer, head);
  std::vector<float> key(d);
  for (std::size_t j = state.scales.size(); j < kv.tokens; ++j) {
    simd::widen(kv.keys.data() + j * d, key.data(), d);
    state.keys.resize((j + 1) * d);
    state.scales.push_back(quantise(key, options_.bits == 8 ? 127 : 7, std::span(state.keys).subspan(j * d)));
  }
  return state;
}

ImportanceAttention::Scores ImportanceAttention::scores(const LayerStep& step, std::uint32_t bits) {
  const std::size_t heads = step.heads.size(), d = step.heads[0].head_dim;
  const bool per_head = options_.aggregate == ScoreAggregate::per_head;
  const bool largest = options_.aggregate == ScoreAggregate::max_raw;
  Scores lists(per_head ? heads : 1,
               std::vector<float>(step.heads[0].tokens - 1, largest ? -std::numeric_limits<float>::infinity() : 0.0f));
  std::vector<std::int8_t> query(d);
  for (std::size_t head = 0; head < heads; ++head) {
    const State* state = bits == 16 ? nullptr : &quantised(step, head);
    std::vector<float>& imp = lists[per_head ? head : 0];
    for (std::size_t g = 0; g < step.group; ++g) {
      const std::span<const float> q = step.q.subspan((head * step.group + g) * d, d);
      const float scale = state == nullptr ? 1 : quantise(q, 127, query);
      for (std::size_t j = 0; j < imp.size(); ++j) {
        const float score =
            state == nullptr
                ? simd::dot(q.data(), step.heads[head].keys.data() + j * d, d)
                : scale * state->scales[j] * static_cast<float>(product(query.data(), state->keys.data() + j * d, d));
        imp[j] = largest ? std::max(imp[j], score) : imp[j] + score;
      }
    }
  }
  return lists;
}

void ImportanceAttention::attend_layer(const LayerStep& step, std::span<float> out,
                                       std::span<HeadSelection> selections) {
  const std::size_t heads = step.heads.size(), tokens = step.heads[0].tokens, d = step.heads[0].head_dim;
  const std::size_t size = step.group * d;
  const std::uint32_t count = options_.tokens.at(tokens);
  const bool all = count >= tokens, observed = !selections.empty() && options_.bits != 16;
  const Scores imp = all ? Scores{} : scores(step, options_.bits);
  const Scores exact = all || !observed ? Scores{} : scores(step, 16);
  for (std::size_t head = 0; head < heads; ++head) {
    const std::size_t list = imp.size() == 1 ? 0 : head;
    std::vector<std::uint32_t> chosen = all ? all_indices(tokens) : top_indices(imp[list], count - 1);
    std::optional<float> recall;
    if (!exact.empty() && count > 1) recall = share_within(chosen, top_indices(exact[list], count - 1));
    if (!all) chosen.push_back(static_cast<std::uint32_t>(tokens - 1));
    attend_tokens(step.q.subspan(head * size, size), step.heads[head], chosen, out.subspan(head * size, size));
    if (selections.empty()) continue;
    describe_selection(chosen, 2 * chosen.size() * d + (all ? 0 : tokens * d * options_.bits / 16), &selections[head]);
    selections[head].recall = recall;
  }
}

}  // namespace csdsim::host
