#include "host_runtime/core/attention/attention_importance.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {
namespace {

/// Share of `of` that is in `chosen`; both ascend.
float share_within(std::span<const std::uint32_t> chosen, std::span<const std::uint32_t> of) {
  std::vector<std::uint32_t> both;
  std::set_intersection(chosen.begin(), chosen.end(), of.begin(), of.end(), std::back_inserter(both));
  return static_cast<float>(both.size()) / static_cast<float>(of.size());
}

ScorePrecision precision_of(std::uint32_t bits) {
  return bits == 16 ? ScorePrecision::fp16 : bits == 8 ? ScorePrecision::int8 : ScorePrecision::int4;
}

}  // namespace

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
    state.scales.push_back(
        quantise(key, largest_key_step(precision_of(options_.bits)), std::span(state.keys).subspan(j * d)));
  }
  return state;
}

ImportanceAttention::Scores ImportanceAttention::scores(const LayerStep& step, std::span<const float> q,
                                                        std::uint32_t bits) {
  const std::size_t heads = step.heads.size(), size = step.group * step.heads[0].head_dim;
  const std::size_t cached = step.heads[0].tokens - 1;
  const bool per_head = options_.aggregate == ScoreAggregate::per_head;
  Scores lists(per_head ? heads : 1, std::vector<float>(cached));
  for (std::vector<float>& list : lists) begin_scores(options_.aggregate, list);
  std::vector<float> of_queries(step.group * cached);
  for (std::size_t head = 0; head < heads; ++head) {
    const ScoringQueries queries(precision_of(bits), q.subspan(head * size, size), step.group);
    if (bits == 16) {
      queries.score(step.heads[head].keys.data(), cached, of_queries.data(), cached);
    } else {
      const State& state = quantised(step, head);
      queries.score(state.keys.data(), state.scales.data(), cached, of_queries.data(), cached);
    }
    for (std::size_t g = 0; g < step.group; ++g)
      add_scores(options_.aggregate, std::span(of_queries).subspan(g * cached, cached), lists[per_head ? head : 0]);
  }
  return lists;
}

std::span<const float> ImportanceAttention::choosing(const LayerStep& step) {
  if (!options_.ahead || step.layer.value == 0) return step.q;
  const std::vector<float>& ahead = speculated_.at(step.sequence, step.layer, 0);
  if (ahead.size() != step.q.size()) throw InternalError("importance scores: nobody has speculated the queries");
  return ahead;
}

void ImportanceAttention::attend_layer(const LayerStep& step, std::span<float> out,
                                       std::span<HeadSelection> selections) {
  const std::size_t heads = step.heads.size(), tokens = step.heads[0].tokens, d = step.heads[0].head_dim;
  const std::size_t size = step.group * d;
  const std::uint32_t count = options_.tokens.at(tokens);
  const bool all = count >= tokens, observed = !selections.empty() && (options_.bits != 16 || options_.ahead);
  const Scores imp = all ? Scores{} : scores(step, choosing(step), options_.bits);
  const Scores exact = all || !observed ? Scores{} : scores(step, step.q, 16);
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
