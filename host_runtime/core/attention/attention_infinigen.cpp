#include "host_runtime/core/attention/attention_infinigen.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {
namespace {

float product(const float* a, const float* b, std::size_t n) {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::vector<double> symmetric_eigenvectors(std::vector<double> a, std::size_t n) {
  std::vector<double> v(n * n, 0.0);
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) v[i * n + i] = 1;
  for (const double x : a) total += x * x;
  const auto rotate = [n](double* x, double* y, double c, double s) {
    for (std::size_t i = 0; i < n; ++i) {
      const double xi = x[i], yi = y[i];
      x[i] = c * xi - s * yi;
      y[i] = s * xi + c * yi;
    }
  };
  for (int sweep = 0; sweep < 30; ++sweep) {
    double off = 0;
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        const double apq = a[p * n + q];
        off += apq * apq;
        if (apq * apq <= 1e-32 * total) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
        const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        rotate(&a[p * n], &a[q * n], c, s);
        for (std::size_t i = 0; i < n; ++i) {
          const double x = a[i * n + p], y = a[i * n + q];
          a[i * n + p] = c * x - s * y;
          a[i * n + q] = s * x + c * y;
        }
        rotate(&v[p * n], &v[q * n], c, s);
      }
    }
    if (off <= 1e-24 * total) break;
  }
  return v;
}

InfinigenAttention::InfinigenAttention(const InfinigenOptions& options) : options_(options) {
  if (options.partial.numerator == 0 || options.partial > csdsim::Ratio{1, 1}) {
    throw UserError("infinigen: the share of columns that speculate must be above 0 and at most 1");
  }
  if (!(options.threshold > 0)) throw UserError("infinigen: the threshold must be above 0");
  if (options.tokens.is_zero()) throw UserError("infinigen: k (tokens) is 0, at least 1 is needed");
}

std::size_t infinigen_columns(const InfinigenOptions& options, std::size_t head_dim) {
  return std::max<std::size_t>(1, options.partial.floor_of(head_dim));
}

std::vector<float> infinigen_skew(const float* q, std::size_t stride, std::size_t tokens, std::size_t group,
                                  std::size_t d, std::size_t columns) {
  const std::size_t rows = tokens * group;
  const auto row = [&](std::size_t i) { return q + i / group * stride + i % group * d; };
  std::vector<double> gram(d * d, 0.0);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t x = 0; x < d; ++x) {
      for (std::size_t y = 0; y < d; ++y) gram[x * d + y] += double{row(i)[x]} * double{row(i)[y]};
    }
  }
  const std::vector<double> vectors = symmetric_eigenvectors(std::move(gram), d);
  const std::vector<float> skew(vectors.begin(), vectors.end());
  std::vector<float> magnitude(d, 0.0f);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t c = 0; c < d; ++c) magnitude[c] += std::abs(product(row(i), skew.data() + c * d, d));
  }
  std::vector<float> chosen;
  for (const std::uint32_t c : top_indices(magnitude, columns)) {
    chosen.insert(chosen.end(), skew.begin() + static_cast<std::ptrdiff_t>(c * d),
                  skew.begin() + static_cast<std::ptrdiff_t>((c + 1) * d));
  }
  return chosen;
}

void InfinigenAttention::learn(const LayerPrompt& prompt) {
  for (std::size_t head = 0; head < prompt.heads.size(); ++head) {
    const KvView& kv = prompt.heads[head];
    const std::size_t size = prompt.group * kv.head_dim;
    State& state = states_.at(prompt.sequence, prompt.layer, head);
    state.columns = infinigen_columns(options_, kv.head_dim);
    state.skew = infinigen_skew(prompt.q.data() + head * size, prompt.heads.size() * size, kv.tokens, prompt.group,
                                kv.head_dim, state.columns);
    state.keys.clear();
    extend(state, kv);
  }
}

void InfinigenAttention::extend(State& state, const KvView& kv) {
  const std::size_t d = kv.head_dim;
  for (std::size_t j = state.tokens(); j < kv.tokens; ++j) {
    for (std::size_t c = 0; c < state.columns; ++c) {
      state.keys.push_back(simd::dot(state.skew.data() + c * d, kv.keys.data() + j * d, d));
    }
  }
}

void InfinigenAttention::speculate(SequenceId sequence, LayerId layer, std::span<const float> q) {
  speculated_.at(sequence, layer, 0).assign(q.begin(), q.end());
}

bool InfinigenAttention::dense(SequenceId sequence, LayerId layer) {
  return layer.value < options_.dense_layers || states_.at(sequence, layer, 0).columns == 0 ||
         speculated_.at(sequence, layer, 0).empty();
}

std::vector<std::vector<std::uint32_t>> InfinigenAttention::choose(const LayerStep& step) {
  const std::size_t heads = step.heads.size(), tokens = step.heads[0].tokens, d = step.heads[0].head_dim;
  if (dense(step.sequence, step.layer)) return {heads, all_indices(tokens)};
  const std::size_t size = step.group * d, columns = states_.at(step.sequence, step.layer, 0).columns;
  const std::vector<float>& speculated = speculated_.at(step.sequence, step.layer, 0);
  std::vector<std::vector<float>> logits(heads);
  std::size_t within = 0;
  for (std::size_t head = 0; head < heads; ++head) {
    // The current key is not there yet when the layer before speculates.
    const State& state = states_.at(step.sequence, step.layer, head);
    std::vector<float> partial(columns, 0.0f);
    for (std::size_t g = 0; g < step.group; ++g) {
      for (std::size_t c = 0; c < columns; ++c) {
        partial[c] += product(speculated.data() + head * size + g * d, state.skew.data() + c * d, d);
      }
    }
    std::vector<float>& t = logits[head];
    t.resize(tokens - 1);
    if (state.tokens() < t.size()) throw InternalError("infinigen: partial keys are missing");
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    for (std::size_t j = 0; j < t.size(); ++j) {
      t[j] = scale * product(partial.data(), state.keys.data() + j * columns, columns);
    }
    const float least = simd::max_value(t.data(), t.size()) - options_.threshold;
    within += static_cast<std::size_t>(std::count_if(t.begin(), t.end(), [&](float x) { return x > least; }));
  }
  const std::size_t fetched = std::min<std::size_t>(within / heads, options_.tokens.at(tokens) - 1);
  std::vector<std::vector<std::uint32_t>> chosen;
  for (const std::vector<float>& t : logits) {
    chosen.push_back(top_indices(t, fetched));
    chosen.back().push_back(static_cast<std::uint32_t>(tokens - 1));
  }
  return chosen;
}

void InfinigenAttention::attend_layer(const LayerStep& step, std::span<float> out,
                                      std::span<HeadSelection> selections) {
  const std::size_t tokens = step.heads[0].tokens, d = step.heads[0].head_dim, size = step.group * d;
  const bool all = dense(step.sequence, step.layer);
  const std::vector<std::vector<std::uint32_t>> chosen = choose(step);
  for (std::size_t head = 0; head < chosen.size(); ++head) {
    State& state = states_.at(step.sequence, step.layer, head);
    if (!all) extend(state, step.heads[head]);
    attend_tokens(step.q.subspan(head * size, size), step.heads[head], chosen[head], out.subspan(head * size, size));
    const std::uint64_t elements = 2 * chosen[head].size() * d + (all ? 0 : tokens * state.columns);
    if (!selections.empty()) describe_selection(chosen[head], elements, &selections[head]);
  }
}

void InfinigenAttention::forget(SequenceId sequence) {
  states_.forget(sequence);
  speculated_.forget(sequence);
}

}  // namespace csdsim::host
