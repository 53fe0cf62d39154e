#include "host_runtime/core/attention/attention_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::host {
namespace {

using csdsim::Ratio;

std::string share_text(Ratio share) {
  if (share == Ratio{1, 1}) return "S";
  return share.numerator == 1 ? fmt::format("S/{}", share.denominator)
                              : fmt::format("{}/{} S", share.numerator, share.denominator);
}

// What is left of the ratio for tokens when choosing them reads `choosing` of the dense elements.
Ratio tokens_share(const MethodInfo& info, const MethodSettings& s, Ratio choosing) {
  if (s.meaning == RatioMeaning::tokens) return s.ratio;
  const Ratio all = Ratio::of(s.ratio.numerator, s.ratio.denominator);
  if (all <= choosing) {
    throw UserError(fmt::format("{}: choosing tokens reads {}/{} of the dense elements: {}/{} leaves nothing to attend",
                                info.name, choosing.numerator, choosing.denominator, all.numerator, all.denominator));
  }
  return Ratio::of(all.numerator * choosing.denominator - choosing.numerator * all.denominator,
                   all.denominator * choosing.denominator);
}

using Configured = std::pair<MethodOptions, std::string>;

struct KeptTokens {
  TokenBudget budget;
  std::string text;
};

KeptTokens tokens_of(const MethodInfo& info, const MethodSettings& s, Ratio choosing) {
  if (s.k) return {*s.k, std::to_string(*s.k)};
  const Ratio share = tokens_share(info, s, choosing);
  return {share, share_text(share)};
}

Configured dense(const MethodInfo&, const MethodSettings&, std::uint32_t) { return {DenseOptions{}, "all"}; }

template <MeanValue mean>
Configured sparq(const MethodInfo& info, const MethodSettings& s, std::uint32_t head_dim) {
  const auto from_ratio = std::max<std::uint64_t>(1, s.ratio.round_of(head_dim));
  const std::uint32_t r = s.r.value_or(static_cast<std::uint32_t>(from_ratio));
  if (r < 1 || r > head_dim) {
    throw UserError(fmt::format("{}: r is {}, must be 1 to {} (the head dimension)", info.name, r, head_dim));
  }
  const KeptTokens tokens = tokens_of(info, s, Ratio::of(r, 2ULL * head_dim));
  if (s.local && s.k && *s.local > *s.k) {
    throw UserError(fmt::format("{}: {} local tokens do not fit into k = {}", info.name, *s.local, *s.k));
  }
  const SparqOptions options{.components = r, .tokens = tokens.budget, .local = s.local, .mean = mean};
  return {options, fmt::format("r {}, k {}, l {}", r, tokens.text, s.local ? std::to_string(*s.local) : "k/4")};
}

template <H2oRank rank>
Configured h2o(const MethodInfo& info, const MethodSettings& s, std::uint32_t) {
  if (s.heavy.has_value() != s.recent.has_value()) {
    throw UserError(fmt::format("{}: heavy and recent come together: give both, or a ratio", info.name));
  }
  if (s.heavy) {
    return {H2oOptions{.capacity = *s.heavy + *s.recent, .recent = *s.recent, .rank = rank},
            fmt::format("heavy {}, recent {}", *s.heavy, *s.recent)};
  }
  const Ratio share = tokens_share(info, s, {0, 1});
  return {H2oOptions{.capacity = share, .recent = {}, .rank = rank},
          fmt::format("heavy + recent {}", share_text(share))};
}

Configured local(const MethodInfo& info, const MethodSettings& s, std::uint32_t) {
  const std::uint32_t sinks = s.sinks.value_or(info.name == "streamingllm" ? 4 : 0);
  const Ratio share = tokens_share(info, s, {0, 1});
  if (s.window && *s.window == 0) throw UserError(fmt::format("{}: the window is 0 tokens", info.name));
  const TokenBudget tokens = s.window ? TokenBudget(*s.window + sinks) : TokenBudget(share);
  return {LocalOptions{.tokens = tokens, .sinks = sinks},
          s.window ? fmt::format("window {}, sinks {}", *s.window, sinks)
                   : fmt::format("window + sinks {}, sinks {}", share_text(share), sinks)};
}

Configured infinigen(const MethodInfo& info, const MethodSettings& s, std::uint32_t head_dim) {
  InfinigenOptions options;
  if (s.meaning == RatioMeaning::traffic && !s.k) options.partial = s.ratio;
  const std::uint64_t columns = std::max<std::uint64_t>(1, options.partial.floor_of(head_dim));
  const KeptTokens tokens = tokens_of(info, s, Ratio::of(columns, 2ULL * head_dim));
  options.tokens = tokens.budget;
  return {options, fmt::format("d' {}, k up to {}", columns, tokens.text)};
}

Configured leoam(const MethodInfo& info, const MethodSettings& s, std::uint32_t) {
  ChunkOptions options;
  if (s.meaning == RatioMeaning::traffic && !s.k) {
    // Chunks of one size, whose bounds take half of the traffic or less.
    const std::uint64_t least = (2 * s.ratio.denominator + s.ratio.numerator - 1) / s.ratio.numerator;
    options.chunk = options.leaf = static_cast<std::uint32_t>(std::bit_ceil(std::min<std::uint64_t>(least, 1U << 20)));
  }
  const KeptTokens tokens = tokens_of(info, s, Ratio::of(1, options.chunk));
  options.tokens = tokens.budget;
  return {options, fmt::format("chunks {} to {}, k {}", options.chunk, options.leaf, tokens.text)};
}

// All keys in 16, 8 or 4 bits, of the 32 that a component of K and V has.
constexpr Ratio kFp16Keys{1, 2}, kInt8Keys{1, 4}, kInt4Keys{1, 8};

template <std::uint32_t bits, ScoreAggregate aggregate, bool ahead = false>
Configured importance(const MethodInfo& info, const MethodSettings& s, std::uint32_t) {
  const KeptTokens tokens = tokens_of(info, s, info.choosing);
  return {ImportanceOptions{.tokens = tokens.budget, .bits = bits, .aggregate = aggregate, .ahead = ahead},
          fmt::format("k {}", tokens.text)};
}

/// The method on the host's processor.
struct Maker {
  std::string_view name;
  using Made = std::unique_ptr<AttentionMethod>;

  Made operator()(const DenseOptions&) const { return std::make_unique<DenseAttention>(); }
  Made operator()(const SparqOptions& o) const { return std::make_unique<SparqAttention>(o, name); }
  Made operator()(const H2oOptions& o) const { return std::make_unique<H2oAttention>(o, name); }
  Made operator()(const LocalOptions& o) const { return std::make_unique<LocalAttention>(o, name); }
  Made operator()(const InfinigenOptions& o) const { return std::make_unique<InfinigenAttention>(o); }
  Made operator()(const ChunkOptions& o) const { return std::make_unique<ChunkAttention>(o); }
  Made operator()(const ImportanceOptions& o) const { return std::make_unique<ImportanceAttention>(o, name); }
};

}  // namespace

const std::vector<MethodInfo>& attention_methods() {
  static const std::vector<MethodInfo> all{
      {"dense", "Every token is attended to.", BudgetKind::none, true, dense},
      {"sparq", "SparQ (arXiv 2312.04985): r components of q score all tokens, the k best are attended to.",
       BudgetKind::components_and_tokens, false, sparq<MeanValue::all>},
      {"sparf", "SparF (InstInfer): SparQ on flash pages; the same values, other traffic.",
       BudgetKind::components_and_tokens, true, sparq<MeanValue::all>},
      {"sparq-rest", "SparQ that puts the mean value of the tokens left out in their place, not that of all tokens.",
       BudgetKind::components_and_tokens, false, sparq<MeanValue::rest>},
      {"h2o", "H2O (arXiv 2306.14048): heavy hitters and recent tokens stay, the others are evicted.",
       BudgetKind::heavy_and_recent, false, h2o<H2oRank::sum>},
      {"h2o-mean", "H2O that ranks tokens by the mean weight of the queries that could see them, not by its sum.",
       BudgetKind::heavy_and_recent, false, h2o<H2oRank::mean>},
      {"h2o-decoded", "H2O that ranks tokens by the weight that queries after the prompt give them.",
       BudgetKind::heavy_and_recent, false, h2o<H2oRank::decoded>},
      {"local", "Sliding window: the newest tokens.", BudgetKind::window_and_sinks, false, local},
      {"streamingllm", "StreamingLLM (arXiv 2309.17453): the newest tokens and the first four.",
       BudgetKind::window_and_sinks, false, local},
      {"infinigen", "InfiniGen (arXiv 2406.19707): queries speculated a layer ahead choose by a few skewed columns.",
       BudgetKind::tokens, false, infinigen},
      {"leoam", "Chunk bounds in the manner of LeoAM (arXiv 2506.20187): chunks are bounded, split, dropped.",
       BudgetKind::tokens, false, leoam},
      {"fp16", "HillInfer's importance from fp16 keys, summed over the heads: one list of tokens per layer.",
       BudgetKind::tokens, false, importance<16, ScoreAggregate::sum_raw>, kFp16Keys, true},
      {"int8", "The same in INT8.", BudgetKind::tokens, false, importance<8, ScoreAggregate::sum_raw>, kInt8Keys, true},
      {"int4", "The same with INT4 keys.", BudgetKind::tokens, false, importance<4, ScoreAggregate::sum_raw>, kInt4Keys,
       true},
      {"fp16-max", "Importance from fp16 keys, the largest over the heads: one list of tokens per layer.",
       BudgetKind::tokens, false, importance<16, ScoreAggregate::max_raw>, kFp16Keys, true},
      {"int8-max", "The same in INT8.", BudgetKind::tokens, false, importance<8, ScoreAggregate::max_raw>, kInt8Keys,
       true},
      {"int4-max", "The same with INT4 keys.", BudgetKind::tokens, false, importance<4, ScoreAggregate::max_raw>,
       kInt4Keys, true},
      {"fp16-ahead", "fp16 by queries computed a layer ahead, as the prefetch of hillinfer does.", BudgetKind::tokens,
       false, importance<16, ScoreAggregate::sum_raw, true>, kFp16Keys, true},
      {"fp16-max-ahead", "fp16-max by queries computed a layer ahead, as the prefetch of hillinfer does.",
       BudgetKind::tokens, false, importance<16, ScoreAggregate::max_raw, true>, kFp16Keys, true},
      {"int8-ahead", "int8 by queries computed a layer ahead, as the prefetch of hillinfer does.", BudgetKind::tokens,
       false, importance<8, ScoreAggregate::sum_raw, true>, kInt8Keys, true},
      {"int8-max-ahead", "int8-max by queries computed a layer ahead, as the prefetch of hillinfer does.",
       BudgetKind::tokens, false, importance<8, ScoreAggregate::max_raw, true>, kInt8Keys, true},
      {"int4-ahead", "int4 by queries computed a layer ahead, as the prefetch of hillinfer does.", BudgetKind::tokens,
       false, importance<4, ScoreAggregate::sum_raw, true>, kInt4Keys, true},
      {"int4-max-ahead", "int4-max by queries computed a layer ahead, as the prefetch of hillinfer does.",
       BudgetKind::tokens, false, importance<4, ScoreAggregate::max_raw, true>, kInt4Keys, true},
      {"fp16-per-head", "Importance from fp16 keys with one list per KV head.", BudgetKind::tokens, false,
       importance<16, ScoreAggregate::per_head>, kFp16Keys},
      {"int8-per-head", "INT8 importance with one list per KV head.", BudgetKind::tokens, false,
       importance<8, ScoreAggregate::per_head>, kInt8Keys},
      {"int4-per-head", "INT4 importance with one list per KV head.", BudgetKind::tokens, false,
       importance<4, ScoreAggregate::per_head>, kInt4Keys},
      {"fp16-per-head-ahead", "fp16-per-head by queries computed a layer ahead, as the prefetch of hillinfer does.",
       BudgetKind::tokens, false, importance<16, ScoreAggregate::per_head, true>, kFp16Keys},
      {"int8-per-head-ahead", "int8-per-head by queries computed a layer ahead, as the prefetch of hillinfer does.",
       BudgetKind::tokens, false, importance<8, ScoreAggregate::per_head, true>, kInt8Keys},
      {"int4-per-head-ahead", "int4-per-head by queries computed a layer ahead, as the prefetch of hillinfer does.",
       BudgetKind::tokens, false, importance<4, ScoreAggregate::per_head, true>, kInt4Keys}};
  return all;
}

const MethodInfo& attention_method(std::string_view name) {
  std::vector<std::string> names;
  for (const MethodInfo& info : attention_methods()) {
    if (info.name == name) return info;
    names.emplace_back(info.name);
  }
  throw UserError(fmt::format("unknown attention method '{}'{}; exists: {}", printable(name), did_you_mean(name, names),
                              join(names)));
}

bool is_exact(const MethodSettings& s, BudgetKind kind) {
  switch (kind) {
    case BudgetKind::none:
      return true;
    case BudgetKind::components_and_tokens:
      return s.r && s.k;
    case BudgetKind::tokens:
      return s.k.has_value();
    case BudgetKind::heavy_and_recent:
      return s.heavy && s.recent;
    case BudgetKind::window_and_sinks:
      return s.window.has_value();
  }
  throw InternalError("unknown kind of budget");
}

std::unique_ptr<AttentionMethod> make_method(std::string_view name, const MethodOptions& options) {
  return std::visit(Maker{name}, options);
}

ConfiguredMethod configure_method(std::string_view name, const MethodSettings& settings, std::uint32_t head_dim) {
  const MethodInfo& info = attention_method(name);
  const Ratio ratio = settings.ratio;
  if (ratio.numerator == 0 || ratio.denominator == 0 || ratio > Ratio{1, 1}) {
    throw UserError(fmt::format("{}: ratio {}/{} is not in (0, 1]", name, ratio.numerator, ratio.denominator));
  }
  auto [options, setting] = info.configure(info, settings, head_dim);
  auto method = make_method(info.name, options);
  return {info.name, std::move(options), std::move(setting), std::move(method)};
}

}  // namespace csdsim::host
