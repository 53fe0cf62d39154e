#include "host_runtime/core/attention/attention_chunks.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {
namespace {

struct Chunk {
  std::size_t level = 0;
  std::size_t index = 0;
  std::uint32_t tokens = 0;
  ChunkBounds bounds;
};

// The bound that `count` tokens reach: of the chunks in descending order, that of the chunk in which the count is met.
// -inf if there are fewer tokens.
float reached(std::vector<std::pair<float, std::uint32_t>>& bounds, std::uint64_t count) {
  std::sort(bounds.begin(), bounds.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [bound, tokens] : bounds) {
    if (count <= tokens) return bound;
    count -= tokens;
  }
  return -std::numeric_limits<float>::infinity();
}

}  // namespace

ChunkBounds chunk_bounds(std::span<const float> q, const float* least, const float* largest, std::size_t d) {
  ChunkBounds bounds;
  for (std::size_t g = 0; g < q.size() / d; ++g) {
    float lower = 0, upper = 0;
    for (std::size_t i = 0; i < d; ++i) {
      const float a = q[g * d + i] * least[i], b = q[g * d + i] * largest[i];
      lower += std::min(a, b);
      upper += std::max(a, b);
    }
    bounds.lower += lower;
    bounds.upper += upper;
  }
  return bounds;
}

ChunkAttention::ChunkAttention(const ChunkOptions& options) : options_(options) {
  if (options.tokens.is_zero()) throw UserError("leoam: k (tokens) is 0, at least 1 is needed");
  if (!std::has_single_bit(options.chunk) || !std::has_single_bit(options.leaf) || options.leaf > options.chunk) {
    throw UserError("leoam: the chunk and its smallest part must be powers of two, the part at most the chunk");
  }
}

void ChunkAttention::extend(State& state, const KvView& kv) const {
  const std::size_t d = kv.head_dim;
  if (state.levels.empty()) state.levels.resize(std::bit_width(options_.chunk / options_.leaf));
  std::vector<float> key(d);
  for (; state.tokens < kv.tokens; ++state.tokens) {
    simd::widen(kv.keys.data() + state.tokens * d, key.data(), d);
    for (std::size_t level = 0; level < state.levels.size(); ++level) {
      std::vector<float>& abstracts = state.levels[level];
      if (state.tokens % (std::size_t{options_.leaf} << level) == 0) {
        abstracts.insert(abstracts.end(), key.begin(), key.end());
        abstracts.insert(abstracts.end(), key.begin(), key.end());
      }
      float* least = abstracts.data() + abstracts.size() - 2 * d;
      for (std::size_t i = 0; i < d; ++i) {
        least[i] = std::min(least[i], key[i]);
        least[d + i] = std::max(least[d + i], key[i]);
      }
    }
  }
}

std::vector<std::uint32_t> ChunkAttention::choose(const State& state, std::span<const float> q, const KvView& kv,
                                                  std::uint64_t& examined) const {
  const std::size_t d = kv.head_dim;
  // The current token is in, the others share the rest of the budget.
  const auto earlier = static_cast<std::uint32_t>(kv.tokens - 1);
  const std::uint32_t wanted = options_.tokens.at(kv.tokens) - 1;
  const auto make = [&](std::size_t level, std::size_t index) {
    const std::size_t size = std::size_t{options_.leaf} << level;
    const auto tokens = static_cast<std::uint32_t>(std::min(size, earlier - index * size));
    const float* abstract = state.levels[level].data() + index * 2 * d;
    ++examined;
    return Chunk{level, index, tokens, chunk_bounds(q, abstract, abstract + d, d)};
  };
  std::vector<Chunk> chunks;
  const std::size_t top = state.levels.size() - 1;
  for (std::size_t i = 0; i * options_.chunk < earlier; ++i) chunks.push_back(make(top, i));
  for (bool split = true; split;) {
    split = false;
    std::vector<std::pair<float, std::uint32_t>> lower, upper;
    for (const Chunk& c : chunks) {
      lower.emplace_back(c.bounds.lower, c.tokens);
      upper.emplace_back(c.bounds.upper, c.tokens);
    }
    const float needed = reached(lower, wanted), safe = reached(upper, std::uint64_t{wanted} + 1);
    std::vector<Chunk> next;
    for (const Chunk& c : chunks) {
      if (c.bounds.upper < needed) continue;
      const std::size_t half = std::size_t{options_.leaf} << (c.level == 0 ? 0 : c.level - 1);
      if (c.level == 0 || c.bounds.lower > safe) {
        next.push_back(c);
        continue;
      }
      split = true;
      next.push_back(make(c.level - 1, 2 * c.index));
      if ((2 * c.index + 1) * half < earlier) next.push_back(make(c.level - 1, 2 * c.index + 1));
    }
    chunks = std::move(next);
  }
  const auto first = [&](const Chunk& c) { return c.index * (std::size_t{options_.leaf} << c.level); };
  std::sort(chunks.begin(), chunks.end(), [&](const Chunk& a, const Chunk& b) {
    return a.bounds.upper != b.bounds.upper ? a.bounds.upper > b.bounds.upper : first(a) < first(b);
  });
  std::vector<std::uint32_t> chosen{earlier};
  for (const Chunk& c : chunks) {
    const auto left = static_cast<std::uint32_t>(wanted + 1 - chosen.size());
    const std::uint32_t taken = std::min(left, c.tokens);
    for (std::uint32_t i = c.tokens - taken; i < c.tokens; ++i) {
      chosen.push_back(static_cast<std::uint32_t>(first(c) + i));
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<std::uint32_t> ChunkAttention::chosen(const LayerStep& step, std::size_t head, std::uint64_t& examined) {
  const KvView& kv = step.heads[head];
  State& state = states_.at(step.sequence, step.layer, head);
  extend(state, kv);
  if (options_.tokens.at(kv.tokens) >= kv.tokens) return all_indices(kv.tokens);
  const std::size_t size = step.group * kv.head_dim;
  return choose(state, step.q.subspan(head * size, size), kv, examined);
}

std::vector<std::vector<std::uint32_t>> ChunkAttention::choose(const LayerStep& step) {
  std::vector<std::vector<std::uint32_t>> all;
  std::uint64_t examined = 0;
  for (std::size_t head = 0; head < step.heads.size(); ++head) all.push_back(chosen(step, head, examined));
  return all;
}

void ChunkAttention::learn(const LayerPrompt& prompt) {
  for (std::size_t head = 0; head < prompt.heads.size(); ++head)
    extend(states_.at(prompt.sequence, prompt.layer, head), prompt.heads[head]);
}

void ChunkAttention::attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) {
  for (std::size_t head = 0; head < step.heads.size(); ++head) {
    const KvView& kv = step.heads[head];
    const std::size_t size = step.group * kv.head_dim;
    std::uint64_t examined = 0;
    const std::vector<std::uint32_t> attended = chosen(step, head, examined);
    attend_tokens(step.q.subspan(head * size, size), kv, attended, out.subspan(head * size, size));
    const std::uint64_t elements = 2 * kv.head_dim * (examined + attended.size());
    if (!selections.empty()) describe_selection(attended, elements, &selections[head]);
  }
}

}  // namespace csdsim::host
