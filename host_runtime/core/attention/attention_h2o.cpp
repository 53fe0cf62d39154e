#include "host_runtime/core/attention/attention_h2o.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {
namespace {

// Adds to weight[j] the causal softmax weights that the prompt's queries of one KV group give token j. q points at the
// group's first element of the first token, `stride` apart.
void add_prompt_weights(const float* q, std::size_t stride, std::size_t group, const KvView& kv,
                        std::vector<float>& weight) {
  const std::size_t d = kv.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<float> scores(kv.tokens);
  for (std::size_t t = 0; t < kv.tokens; ++t) {
    for (std::size_t g = 0; g < group; ++g) {
      simd::gemv_rows(q + t * stride + g * d, kv.keys.data(), t + 1, d, scores.data());
      for (std::size_t j = 0; j <= t; ++j) scores[j] *= scale;
      const float sum = simd::exp_shifted(scores.data(), t + 1, simd::max_value(scores.data(), t + 1));
      for (std::size_t j = 0; j <= t; ++j) weight[j] += scores[j] / sum;
    }
  }
}

}  // namespace

H2oAttention::H2oAttention(const H2oOptions& options, std::string_view name) : options_(options), name_(name) {
  if (options.capacity.is_zero()) throw UserError("h2o: no token is kept, heavy + recent must be at least 1");
}

// Among equal weights the older token goes: newer ones have had fewer queries to collect from.
void H2oAttention::evict(State& state, std::size_t tokens) const {
  const std::uint32_t capacity = options_.capacity.at(tokens);
  if (state.kept.size() <= capacity) return;
  const std::uint32_t recent = std::min(options_.recent.value_or(capacity - capacity / 2), capacity);
  const auto oldest_recent = static_cast<std::uint32_t>(tokens - recent);
  const auto old = static_cast<std::size_t>(std::lower_bound(state.kept.begin(), state.kept.end(), oldest_recent) -
                                            state.kept.begin());
  const std::size_t heavy = capacity - std::min<std::size_t>(capacity, state.kept.size() - old);
  // The heaviest of the old tokens; counted from the newest, so that of equals the newer one stays.
  std::vector<float> reversed(state.weight.rend() - static_cast<std::ptrdiff_t>(old), state.weight.rend());
  if (options_.rank == H2oRank::mean) {
    // A token has been seen by its own query and by all after it.
    for (std::size_t i = 0; i < old; ++i) reversed[i] /= static_cast<float>(tokens - state.kept[old - 1 - i]);
  }
  std::vector<std::uint32_t> stay;
  for (const std::uint32_t i : top_indices(reversed, heavy)) stay.push_back(static_cast<std::uint32_t>(old - 1 - i));
  std::reverse(stay.begin(), stay.end());
  for (std::size_t i = old; i < state.kept.size(); ++i) stay.push_back(static_cast<std::uint32_t>(i));
  for (std::size_t i = 0; i < stay.size(); ++i) {
    state.kept[i] = state.kept[stay[i]];
    state.weight[i] = state.weight[stay[i]];
  }
  state.kept.resize(stay.size());
  state.weight.resize(stay.size());
}

void H2oAttention::learn(const LayerPrompt& prompt) {
  for (std::size_t head = 0; head < prompt.heads.size(); ++head) {
    const KvView& kv = prompt.heads[head];
    const std::size_t size = prompt.group * kv.head_dim;
    State& state = states_.at(prompt.sequence, prompt.layer, head);
    state = {all_indices(kv.tokens), std::vector<float>(kv.tokens, 0.0f), kv.tokens};
    if (options_.rank != H2oRank::decoded) {
      add_prompt_weights(prompt.q.data() + head * size, prompt.heads.size() * size, prompt.group, kv, state.weight);
    }
    evict(state, kv.tokens);
  }
}

H2oAttention::State& H2oAttention::extended(const LayerStep& step, std::size_t head) {
  State& state = states_.at(step.sequence, step.layer, head);
  for (; state.seen < step.heads[head].tokens; ++state.seen) {
    state.kept.push_back(static_cast<std::uint32_t>(state.seen));
    state.weight.push_back(0);
  }
  return state;
}

std::vector<std::vector<std::uint32_t>> H2oAttention::choose(const LayerStep& step) {
  std::vector<std::vector<std::uint32_t>> chosen;
  for (std::size_t head = 0; head < step.heads.size(); ++head) chosen.push_back(extended(step, head).kept);
  return chosen;
}

void H2oAttention::attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) {
  std::vector<float> weights;
  for (std::size_t head = 0; head < step.heads.size(); ++head) {
    const KvView& kv = step.heads[head];
    const std::size_t size = step.group * kv.head_dim;
    State& state = extended(step, head);
    attend_tokens(step.q.subspan(head * size, size), kv, state.kept, out.subspan(head * size, size), &weights);
    const std::size_t kept = state.kept.size();
    for (std::size_t i = 0; i < weights.size(); ++i) state.weight[i % kept] += weights[i];
    if (!selections.empty()) describe_selection(state.kept, 2 * kept * kv.head_dim, &selections[head]);
    evict(state, kv.tokens);
  }
}

}  // namespace csdsim::host
