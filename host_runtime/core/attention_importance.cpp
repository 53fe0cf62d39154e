#include "host_runtime/core/attention_importance.h"

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {
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
  const ScorePrecision precision = options_.bits == 8 ? ScorePrecision::int8 : ScorePrecision::int4;
  std::vector<std::vector<float>> scores(per_head ? heads : 1);
  std::vector<float> key(d), of_queries(step.group * (tokens - 1));
  for (std::size_t head = 0; head < heads && !all; ++head) {
    State& state = states_.at(step.sequence, step.layer, head);
    for (std::size_t j = state.scales.size(); j < tokens; ++j) {
      simd::widen(step.heads[head].keys.data() + j * d, key.data(), d);
      state.keys.resize((j + 1) * d);
      state.scales.push_back(quantise(key, largest_key_step(precision), std::span(state.keys).subspan(j * d)));
    }
    std::vector<float>& imp = scores[per_head ? head : 0];
    if (imp.empty()) {
      imp.resize(tokens - 1);
      begin_scores(options_.aggregate, imp);
    }
    const ScoringQueries queries(precision, step.q.subspan(head * size, size), step.group);
    queries.score(state.keys.data(), state.scales.data(), imp.size(), of_queries.data(), imp.size());
    for (std::size_t g = 0; g < step.group; ++g)
      add_scores(options_.aggregate, std::span(of_queries).subspan(g * imp.size(), imp.size()), imp);
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
