#include "host_runtime/core/eval/neuron_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "host_runtime/core/attention/attention_methods.h"

namespace csdsim::host {
namespace {

using Tokens = std::span<const TokenId>;

/// The neurons of one layer and sequence that were predicted within the last `window` tokens.
class RecentNeurons {
 public:
  RecentNeurons(std::uint32_t neurons, std::uint32_t window) : window_(window), last_(neurons) {}

  void step(std::span<const std::uint32_t> predicted) {
    ++now_;
    for (const std::uint32_t neuron : predicted) last_[neuron] = now_;
  }
  bool contains(std::uint32_t neuron) const { return last_[neuron] > 0 && now_ - last_[neuron] < window_; }

 private:
  std::uint32_t window_;
  std::uint32_t now_ = 0;
  std::vector<std::uint32_t> last_;  ///< token of the last prediction, counted from 1; 0: none
};

void count_neurons(NeuronCounts& counts, std::span<const float> activations, std::span<const std::uint32_t> predicted,
                   const RecentNeurons& recent) {
  counts.neurons += activations.size();
  counts.predicted += predicted.size();
  auto next = predicted.begin();
  for (std::uint32_t neuron = 0; neuron < activations.size(); ++neuron) {
    const bool is_predicted = next != predicted.end() && *next == neuron;
    if (is_predicted) ++next;
    const bool active = recent.contains(neuron);
    counts.active += active;
    if (activations[neuron] == 0) continue;
    const double weight = std::abs(double{activations[neuron]});
    ++counts.firing;
    counts.weight += weight;
    counts.missed += !is_predicted;
    counts.missed_weight += is_predicted ? 0 : weight;
    counts.left_out += !active;
    counts.left_out_weight += active ? 0 : weight;
  }
}

/// Sums of a setting while batches of windows pass.
struct NeuronTally {
  std::vector<double> window_nll;  ///< mean of each window
  double nll = 0;
  std::uint64_t scored = 0, equal = 0;
};

using Predictions = std::vector<std::vector<Prediction>>;

void add(NeuronTally& tally, const Predictions& predictions, const Predictions& dense) {
  for (std::size_t s = 0; s < predictions.size(); ++s) {
    double nll = 0;
    for (std::size_t at = 0; at < predictions[s].size(); ++at) {
      nll += predictions[s][at].nll;
      tally.equal += predictions[s][at].greedy == dense[s][at].greedy;
      ++tally.scored;
    }
    tally.nll += nll;
    tally.window_nll.push_back(nll / static_cast<double>(predictions[s].size()));
  }
}

double tally_perplexity(const NeuronTally& tally) { return std::exp(tally.nll / static_cast<double>(tally.scored)); }

/// Makes the masks of one batch of windows of text, and counts.
class BatchChoice {
 public:
  BatchChoice(const Decoder& decoder, const NeuronSetting& setting, std::size_t sequences, NeuronRow& row)
      : decoder_(decoder), setting_(setting), row_(row) {
    recent_.assign(sequences * decoder.config().layers, RecentNeurons(decoder.config().ffn, setting.window));
  }

  /// `report` gets the predictions of each sequence of the batch.
  template <class Report>
  NeuronMasks masks(LayerId layer, std::span<const SequenceId> sequences, const Tensor& inputs, const Report& report) {
    const std::size_t ffn = decoder_.config().ffn;
    const ActiveNeurons predicted = setting_.predictor->predict(layer, inputs);
    const std::vector<float> activations = decoder_.to_host_float(decoder_.neuron_activations(layer, inputs));
    NeuronMasks masks{std::vector<std::uint8_t>(sequences.size() * ffn)};
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      RecentNeurons& recent = recent_[sequences[i].value * decoder_.config().layers + layer.value];
      recent.step(predicted[i]);
      count_neurons(row_.layers[layer.value], std::span(activations).subspan(i * ffn, ffn), predicted[i], recent);
      for (std::uint32_t neuron = 0; neuron < ffn; ++neuron) masks.kept[i * ffn + neuron] = recent.contains(neuron);
      report(sequences[i], predicted[i]);
    }
    return masks;
  }

 private:
  const Decoder& decoder_;
  const NeuronSetting& setting_;
  NeuronRow& row_;
  std::vector<RecentNeurons> recent_;  ///< [sequence][layer]
};

std::unique_ptr<AttentionProvider> dense_attention_of(const Decoder& decoder) {
  return decoder.backend().make_attention(decoder.config(), configure_method("dense", {}, decoder.config().head_dim),
                                          QueryPrecision::f16);
}

}  // namespace

NeuronCounts& NeuronCounts::operator+=(const NeuronCounts& other) {
  neurons += other.neurons;
  firing += other.firing;
  predicted += other.predicted;
  missed += other.missed;
  active += other.active;
  left_out += other.left_out;
  weight += other.weight;
  missed_weight += other.missed_weight;
  left_out_weight += other.left_out_weight;
  return *this;
}

NeuronCounts NeuronRow::all_layers() const {
  NeuronCounts sum;
  for (const NeuronCounts& layer : layers) sum += layer;
  return sum;
}

NeuronEvaluation evaluate_neurons(const Decoder& decoder, std::span<const TokenId> text,
                                  const std::vector<NeuronSetting>& settings, const PerplexityOptions& options,
                                  std::uint32_t batch, const NeuronHooks& hooks) {
  const std::uint32_t count = window_count(text.size(), options);
  const std::size_t length = std::size_t{options.prefill} + options.decode;
  if (length - 1 > decoder.config().longest_context()) {
    throw UserError(fmt::format("a window of {} tokens is longer than the model's {} positions", length - 1,
                                decoder.config().longest_context()));
  }
  for (const NeuronSetting& setting : settings)
    if (setting.window == 0) throw UserError("a window of 0 tokens keeps no neuron: at least 1");
  NeuronEvaluation result;
  result.rows.resize(settings.size());
  for (NeuronRow& row : result.rows) row.layers.resize(decoder.config().layers);
  NeuronTally dense;
  std::vector<NeuronTally> tallies(settings.size());
  std::size_t done = 0;
  const std::size_t batches = (count + batch - 1) / batch;
  for (std::uint32_t first = 0; first < count; first += batch) {
    std::vector<Tokens> prompts, continuations;
    for (std::uint32_t w = first; w < std::min(count, first + batch); ++w) {
      prompts.push_back(text.subspan(w * length, options.prefill));
      continuations.push_back(text.subspan(w * length + options.prefill, options.decode));
    }
    const Prefilled prefilled(decoder, prompts);
    const Predictions reference = force(decoder, *dense_attention_of(decoder), prefilled, continuations);
    add(dense, reference, reference);
    for (std::size_t i = 0; i < settings.size(); ++i) {
      BatchChoice choice(decoder, settings[i], prompts.size(), result.rows[i]);
      const auto choose = [&](LayerId layer, std::span<const SequenceId> sequences, const Tensor& inputs) {
        return choice.masks(layer, sequences, inputs, [&](SequenceId sequence, std::span<const std::uint32_t> neurons) {
          if (hooks.predicted) hooks.predicted(i, SequenceId{first + sequence.value}, layer, neurons);
        });
      };
      add(tallies[i], force(decoder, *dense_attention_of(decoder), prefilled, continuations, choose), reference);
      if (hooks.progress) hooks.progress(++done, batches * settings.size());
    }
  }
  result.dense_perplexity = tally_perplexity(dense);
  result.dense_perplexity_spread = times(standard_error(dense.window_nll), result.dense_perplexity);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    NeuronRow& row = result.rows[i];
    const NeuronTally& tally = tallies[i];
    row.perplexity = tally_perplexity(tally);
    row.perplexity_spread = times(standard_error(tally.window_nll), row.perplexity);
    std::vector<double> above;
    for (std::size_t w = 0; w < count; ++w) above.push_back(tally.window_nll[w] - dense.window_nll[w]);
    row.ratio_spread = times(standard_error(above), row.perplexity / result.dense_perplexity);
    row.tokens_scored = tally.scored;
    row.greedy_equal = tally.equal;
  }
  return result;
}

}  // namespace csdsim::host
