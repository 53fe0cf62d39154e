#include "host_runtime/core/eval/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/touched_blocks.h"
#include "host_runtime/core/eval/rounded_kv.h"

namespace csdsim::host {
namespace {

using Tokens = std::span<const TokenId>;

/// Bytes of what a method has read of a head, with K and V in a format.
double bytes_read(const HeadObservation& o, std::uint32_t head_dim, const RowQuantisation& kv) {
  const double row = static_cast<double>(kv.row(head_dim, sizeof(Half)).value);
  const auto elements = static_cast<double>(o.selection.elements);
  if (!kv.quantised()) return elements / head_dim * row;
  // Components of all tokens come with the scales of the groups that they are in.
  TouchedBlocks scales(kv.group);
  for (const std::uint32_t component : o.selection.components) scales.add(component, 1);
  const auto scored = static_cast<double>(o.selection.components.size());
  return (elements - scored * o.tokens) / head_dim * row +
         (scored * kv.bits / 8 + static_cast<double>(scales.count() * sizeof(Half))) * o.tokens;
}

// Sums over (window, step, layer, KV head) and, inside, query heads.
struct SelectionSums {
  double alpha = 0, mass = 0, kept = 0, traffic = 0, top_k_recall = 0;
  std::uint64_t query_heads = 0, heads = 0, compared = 0;

  void add(const HeadObservation& o, std::uint32_t head_dim, const RowQuantisation& kv) {
    const HeadSelection& selection = o.selection;
    for (const float m : o.mass) mass += m;
    for (const float a : selection.alpha.empty() ? o.mass : std::span(selection.alpha)) alpha += a;
    query_heads += o.mass.size();
    if (selection.recall) top_k_recall += *selection.recall, ++compared;
    kept += static_cast<double>(selection.tokens.size()) / o.tokens;
    traffic += bytes_read(o, head_dim, kv) / (2.0 * sizeof(Half) * o.tokens * head_dim);
    ++heads;
  }
};

/// Answers asked for and found in one window, over all distances.
struct Recalled {
  double asked = 0, found = 0;
};

// A setting while batches of windows pass.
struct Tally {
  double nll = 0;
  std::vector<double> window_nll;  ///< mean of each window
  std::vector<std::vector<double>> token_nll;
  std::vector<Recalled> recalled;  ///< by window
  std::uint64_t scored = 0, equal = 0;
  SelectionSums selections;
  std::vector<RecallPoint> recall;
};

/// Standard error of a share of what was asked for, which differs between windows (ratio estimator).
Spread recall_error(std::span<const Recalled> windows) {
  double asked = 0, found = 0;
  for (const Recalled& w : windows) asked += w.asked, found += w.found;
  if (asked == 0) return {};
  std::vector<double> terms;
  for (const Recalled& w : windows) {
    terms.push_back((w.found - found / asked * w.asked) * static_cast<double>(windows.size()) / asked);
  }
  return standard_error(terms);
}

class Evaluation {
 public:
  Evaluation(const Decoder& decoder, Tokens text, const std::vector<EvaluatedSetting>& settings,
             const EvaluationOptions& options, const EvaluationHooks& hooks)
      : decoder_(decoder),
        text_(text),
        settings_(settings),
        options_(options),
        hooks_(hooks),
        windows_(window_count(text.size(), options.windows)),
        tallies_(settings.size()) {
    const std::uint64_t longest =
        std::uint64_t{options.windows.prefill} +
        std::max(options.windows.decode, options.recall.distances.empty() ? 0 : options.recall.fact()) - 1;
    if (longest > decoder.config().longest_context()) {
      throw UserError(fmt::format("a window of {} tokens is longer than the model's {} positions", longest,
                                  decoder.config().longest_context()));
    }
    for (Tally& tally : tallies_) {
      for (const std::uint32_t distance : options.recall.distances) tally.recall.push_back({.distance = distance});
    }
    for (const EvaluatedSetting& setting : settings) {
      const RowQuantisation& kv = setting.kv;
      if (kv.quantised()) RoundedKv(*dense_attention(), kv, decoder.config().head_dim);  // refuses impossible groups
      std::string name = configure(setting).setting;
      if (kv.quantised())
        name += fmt::format("{}{}-bit K and V, groups of {}", name.empty() ? "" : ", ", kv.bits, kv.group);
      names_.push_back(std::move(name));
    }
    // Refuses impossible facts before anything is computed.
    if (!options.recall.distances.empty()) fact(0);
  }

  EvaluationResult run() {
    const std::uint32_t batch = std::max<std::uint32_t>(1, options_.batch);
    for (std::uint32_t first = 0; first < windows_; first += batch) {
      const std::uint32_t count = std::min(batch, windows_ - first);
      std::vector<Tokens> prompts;
      for (std::uint32_t w = first; w < first + count; ++w) prompts.push_back(filler(w));
      const Prefilled prefilled(decoder_, prompts);
      perplexity_batch(first, count, prefilled);
      if (!options_.recall.distances.empty()) recall_batch(first, count, prefilled);
    }
    EvaluationResult result;
    result.dense_greedy = std::move(dense_greedy_);
    result.dense_perplexity = std::exp(dense_nll_ / static_cast<double>(dense_scored_));
    result.dense_perplexity_spread = times(standard_error(dense_window_nll_), result.dense_perplexity);
    for (std::size_t i = 0; i < settings_.size(); ++i) result.rows.push_back(row(i));
    return result;
  }

 private:
  ConfiguredMethod configure(const EvaluatedSetting& setting) const {
    return configure_method(setting.method, setting.settings, decoder_.config().head_dim);
  }

  std::unique_ptr<MethodAttention> attention(ConfiguredMethod method, const RowQuantisation& kv = {}) const {
    if (options_.attention_on_backend && !kv.quantised()) {
      return decoder_.backend().make_attention(decoder_.config(), std::move(method), options_.precision);
    }
    return std::make_unique<HostAttention>(decoder_.config(), std::move(method.method), options_.precision);
  }
  std::unique_ptr<MethodAttention> dense_attention() const {
    return attention(configure_method("dense", {}, decoder_.config().head_dim));
  }

  /// force() by a setting. `provider` is its attention.
  std::vector<std::vector<Prediction>> force_setting(const EvaluatedSetting& setting, MethodAttention& provider,
                                                     const Prefilled& prefilled,
                                                     const std::vector<Tokens>& continuations) const {
    if (!setting.kv.quantised()) return force(decoder_, provider, prefilled, continuations);
    RoundedKv rounded(provider, setting.kv, decoder_.config().head_dim);
    return force(decoder_, rounded, prefilled, continuations);
  }

  Tokens window(std::uint32_t index) const {
    const std::size_t length = std::size_t{options_.windows.prefill} + options_.windows.decode;
    return text_.subspan(index * length, length);
  }

  Tokens filler(std::uint32_t index) const { return window(index).first(options_.windows.prefill); }

  std::vector<TokenId> fact(std::uint32_t index) const {
    const std::size_t length = std::size_t{options_.windows.prefill} + options_.windows.decode;
    return recall_fact(text_, index * length, options_.windows.prefill, options_.recall, index);
  }

  void progress() {
    if (!hooks_.progress) return;
    const std::uint32_t batches = (windows_ + std::max(1U, options_.batch) - 1) / std::max(1U, options_.batch);
    hooks_.progress(++done_, batches * settings_.size() * (1 + options_.recall.distances.size()));
  }

  void perplexity_batch(std::uint32_t first, std::uint32_t count, const Prefilled& prefilled) {
    std::vector<Tokens> continuations;
    for (std::uint32_t w = first; w < first + count; ++w) {
      continuations.push_back(window(w).subspan(options_.windows.prefill));
    }
    const auto reference = force(decoder_, *dense_attention(), prefilled, continuations);
    for (const auto& of_window : reference) {
      std::vector<TokenId>& greedy = dense_greedy_.emplace_back();
      double nll = 0;
      for (const Prediction& p : of_window) {
        dense_nll_ += p.nll;
        nll += p.nll;
        greedy.push_back(p.greedy);
      }
      dense_window_nll_.push_back(nll / static_cast<double>(of_window.size()));
      dense_scored_ += of_window.size();
    }
    for (std::size_t i = 0; i < settings_.size(); ++i) {
      Tally& tally = tallies_[i];
      const auto provider = attention(configure(settings_[i]), settings_[i].kv);
      provider->set_observer([&](const HeadObservation& o) {
        tally.selections.add(o, decoder_.config().head_dim, settings_[i].kv);
        if (hooks_.selected) {
          hooks_.selected(i, SequenceId{first + o.sequence.value}, o.layer, o.head, o.tokens, o.selection);
        }
      });
      const auto predictions = force_setting(settings_[i], *provider, prefilled, continuations);
      for (std::size_t s = 0; s < predictions.size(); ++s) {
        double nll = 0;
        std::vector<double>& of_tokens = tally.token_nll.emplace_back();
        for (std::size_t at = 0; at < predictions[s].size(); ++at) {
          tally.nll += predictions[s][at].nll;
          of_tokens.push_back(predictions[s][at].nll);
          nll += predictions[s][at].nll;
          tally.equal += predictions[s][at].greedy == reference[s][at].greedy;
          ++tally.scored;
        }
        tally.window_nll.push_back(nll / static_cast<double>(predictions[s].size()));
      }
      progress();
    }
  }

  void recall_batch(std::uint32_t first, std::uint32_t count, const Prefilled& unplanted) {
    std::vector<std::vector<TokenId>> facts;
    for (std::uint32_t w = first; w < first + count; ++w) facts.push_back(fact(w));
    const std::vector<Tokens> continuations(facts.begin(), facts.end());
    const auto guessed = force(decoder_, *dense_attention(), unplanted, continuations);
    for (std::size_t d = 0; d < options_.recall.distances.size(); ++d) {
      std::vector<std::vector<TokenId>> planted;
      for (std::uint32_t i = 0; i < count; ++i) {
        planted.push_back(plant(filler(first + i), facts[i], options_.recall.distances[d]));
      }
      const Prefilled prefilled(decoder_, std::vector<Tokens>(planted.begin(), planted.end()));
      for (std::size_t i = 0; i < settings_.size(); ++i) {
        const auto provider = attention(configure(settings_[i]), settings_[i].kv);
        const auto predictions = force_setting(settings_[i], *provider, prefilled, continuations);
        RecallPoint& point = tallies_[i].recall[d];
        tallies_[i].recalled.resize(first + count);
        for (std::size_t s = 0; s < predictions.size(); ++s) {
          Recalled& of_window = tallies_[i].recalled[first + s];
          for (std::size_t at = options_.recall.cue; at < facts[s].size(); ++at) {
            if (guessed[s][at - 1].greedy == facts[s][at]) continue;
            const bool found = predictions[s][at - 1].greedy == facts[s][at];
            ++point.asked;
            point.recalled += found;
            ++of_window.asked;
            of_window.found += found;
          }
        }
        progress();
      }
    }
  }

  EvaluationRow row(std::size_t i) const {
    const Tally& t = tallies_[i];
    const SelectionSums& s = t.selections;
    const auto heads = static_cast<double>(s.heads), query_heads = static_cast<double>(s.query_heads);
    const double perplexity = std::exp(t.nll / static_cast<double>(t.scored));
    std::vector<double> above_dense;
    for (std::size_t w = 0; w < t.window_nll.size(); ++w) above_dense.push_back(t.window_nll[w] - dense_window_nll_[w]);
    const double dense = std::exp(dense_nll_ / static_cast<double>(dense_scored_));
    return {.method = settings_[i].method,
            .setting = names_[i],
            .perplexity = perplexity,
            .perplexity_spread = times(standard_error(t.window_nll), perplexity),
            .ratio_spread = times(standard_error(above_dense), perplexity / dense),
            .nll = t.token_nll,
            .tokens_scored = t.scored,
            .greedy_equal = t.equal,
            .alpha_mean = s.alpha / query_heads,
            .mass_mean = s.mass / query_heads,
            .kept_mean = s.kept / heads,
            .traffic_mean = s.traffic / heads,
            .top_k_recall =
                s.compared == 0 ? std::nullopt : std::optional(s.top_k_recall / static_cast<double>(s.compared)),
            .recall = t.recall,
            .recall_spread = recall_error(t.recalled)};
  }

  const Decoder& decoder_;
  Tokens text_;
  const std::vector<EvaluatedSetting>& settings_;
  const EvaluationOptions& options_;
  const EvaluationHooks& hooks_;
  std::uint32_t windows_;
  std::vector<std::string> names_;
  std::vector<Tally> tallies_;
  double dense_nll_ = 0;
  std::vector<double> dense_window_nll_;
  std::vector<std::vector<TokenId>> dense_greedy_;
  std::uint64_t dense_scored_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

EvaluationResult evaluate(const Decoder& decoder, std::span<const TokenId> text,
                          const std::vector<EvaluatedSetting>& settings, const EvaluationOptions& options,
                          const EvaluationHooks& hooks) {
  return Evaluation(decoder, text, settings, options, hooks).run();
}

}  // namespace csdsim::host
