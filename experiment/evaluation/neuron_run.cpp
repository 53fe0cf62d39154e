#include "experiment/evaluation/neuron_run.h"

#include <fmt/format.h>

#include "base/error.h"
#include "experiment/evaluation/recorded_neurons.h"
#include "experiment/result.h"
#include "experiment/runner.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/predictor_file.h"
#include "host_runtime/core/eval/neuron_evaluation.h"
#include "host_runtime/core/features/neurons/model/neuron_rows.h"

namespace csdsim::experiment {

using host::NeuronCounts;
using nlohmann::ordered_json;

namespace {

/// A setting and how it is written.
struct NamedSetting {
  host::NeuronSetting setting;
  ordered_json name;  ///< predictor, threshold, rank, window
};

std::vector<NamedSetting> neuron_settings(const NeuronRequest& request, const host::Decoder& decoder) {
  const auto name = [&](const char* predictor, ordered_json threshold, ordered_json rank) {
    return ordered_json{{"predictor", predictor},
                        {"threshold", std::move(threshold)},
                        {"rank", std::move(rank)},
                        {"window", request.window}};
  };
  if (!request.predictor) {
    if (!request.thresholds.empty() || !request.ranks.empty())
      throw UserError("eval: a threshold and a rank belong to a predictor's file; the oracle knows which neurons fire");
    return {{{std::make_shared<host::OraclePredictor>(decoder), request.window}, name("oracle", nullptr, nullptr)}};
  }
  const auto weights = host::open_predictor(*request.predictor, request.model, decoder.config());
  std::vector<Ratio> thresholds = request.thresholds;
  if (thresholds.empty()) thresholds = {{1, 2}};
  std::vector<std::vector<std::uint32_t>> ranks = request.ranks;
  if (ranks.empty()) ranks = {{weights->rank}};
  std::vector<NamedSetting> settings;
  for (const std::vector<std::uint32_t>& rank : ranks) {
    for (const Ratio threshold : thresholds) {
      auto predictor = std::make_shared<host::LowRankPredictor>(decoder, weights, threshold.value(), rank);
      const ordered_json written = rank.size() == 1 ? ordered_json(rank.front()) : ordered_json(rank);
      settings.push_back({{std::move(predictor), request.window}, name("low-rank", threshold.value(), written)});
    }
  }
  return settings;
}

/// The quotient; null when `of` is 0.
template <class Number>
ordered_json quotient(Number part, Number of) {
  return of == 0 ? ordered_json(nullptr) : ordered_json(static_cast<double>(part) / static_cast<double>(of));
}

ordered_json optional_number(std::optional<double> value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json shares_json(const NeuronCounts& c) {
  return {{"firing_share", quotient(c.firing, c.neurons)},
          {"predicted_share", quotient(c.predicted, c.neurons)},
          {"predicted_per_firing", quotient(c.predicted, c.firing)},
          {"false_negatives", quotient(c.missed, c.firing)},
          {"false_negatives_weighted", quotient(c.missed_weight, c.weight)},
          {"false_positives", quotient(c.predicted - (c.firing - c.missed), c.neurons - c.firing)},
          {"active_share", quotient(c.active, c.neurons)},
          {"left_out", quotient(c.left_out, c.firing)},
          {"left_out_weighted", quotient(c.left_out_weight, c.weight)}};
}

ordered_json neuron_row_json(const NamedSetting& setting, const host::NeuronRow& row, double dense) {
  ordered_json json = setting.name;
  json["perplexity"] = row.perplexity;
  json["perplexity_stderr"] = optional_number(row.perplexity_spread);
  json["vs_dense"] = row.perplexity / dense - 1;
  json["vs_dense_stderr"] = optional_number(row.ratio_spread);
  json["tokens_scored"] = row.tokens_scored;
  json["greedy_agreement"] = static_cast<double>(row.greedy_equal) / static_cast<double>(row.tokens_scored);
  json.update(shares_json(row.all_layers()));
  json["layers"] = ordered_json::array();
  for (const NeuronCounts& layer : row.layers) json["layers"].push_back(shares_json(layer));
  return json;
}

ordered_json neuron_frame(const NeuronRequest& request, std::size_t text_tokens) {
  const host::PerplexityOptions& windows = request.windows;
  ordered_json document{{"schema", kResultSchema}, {"build", build_info()}, {"name", "eval-neurons"}};
  document["eval"] = {{"model", request.model.string()},
                      {"text", request.text.string()},
                      {"text_tokens", text_tokens},
                      {"prefill", windows.prefill},
                      {"decode", windows.decode},
                      {"windows", host::window_count(text_tokens, windows)},
                      {"predictor", request.predictor ? request.predictor->string() : "oracle"},
                      {"weight_bits", request.quantisation.bits},
                      {"fatrelu", request.fatrelu ? ordered_json(request.fatrelu->value()) : ordered_json(nullptr)}};
  return document;
}

/// Takes the predictions of a run.
class NeuronRecorder {
 public:
  NeuronRecorder(const host::ModelConfig& config, std::uint32_t windows) {
    recording_.neurons = config.ffn;
    recording_.stretches.assign(windows, std::vector<std::vector<host::NeuronRecording::Active>>(config.layers));
  }
  void add(SequenceId window, LayerId layer, std::span<const std::uint32_t> neurons) {
    recording_.stretches[window.value][layer.value].emplace_back(neurons.begin(), neurons.end());
  }
  const host::NeuronRecording& recording() const { return recording_; }

 private:
  host::NeuronRecording recording_;
};

}  // namespace

EvalResult run_neuron_evaluation(const NeuronRequest& request, const EvalProgress& progress) {
  const WallClock clock;
  const host::Checkpoint checkpoint = checkpoint_of(request);
  if (!checkpoint.config.sparse_ffn()) {
    throw UserError(
        fmt::format("{}: all neurons of a {} network with SiLU take part; FATReLU (--fatrelu T) makes it sparse",
                    request.model.string(), host::name_of(checkpoint.config.architecture)));
  }
  const std::unique_ptr<host::Backend> backend = make_backend(request.processor);
  std::unique_ptr<host::Decoder> decoder = host::make_decoder(checkpoint.config, *checkpoint.weights, *backend);
  const std::vector<host::TokenId> text = tokens_of(request);
  EvalResult result;
  result.document = neuron_frame(request, text.size());

  std::optional<host::RoundedWeights> rounded;
  std::optional<double> unquantised;
  if (request.quantisation.quantised()) {
    unquantised = host::evaluate_neurons(*decoder, text, {}, request.windows, request.batch).dense_perplexity;
    rounded.emplace(checkpoint.config, *checkpoint.weights, request.quantisation);
    decoder = host::make_decoder(checkpoint.config, *rounded, *backend);
  }
  const std::vector<NamedSetting> named = neuron_settings(request, *decoder);
  if (request.record && named.size() != 1)
    throw UserError("a recording takes one setting: give one threshold and one rank");
  std::vector<host::NeuronSetting> settings;
  for (const NamedSetting& each : named) settings.push_back(each.setting);
  NeuronRecorder recorder(checkpoint.config, host::window_count(text.size(), request.windows));
  host::NeuronHooks hooks;
  if (progress) hooks.progress = [&](std::size_t done, std::size_t total) { progress("batches", done, total); };
  if (request.record) {
    hooks.predicted = [&](std::size_t, SequenceId window, LayerId layer, std::span<const std::uint32_t> neurons) {
      recorder.add(window, layer, neurons);
    };
  }
  const host::NeuronEvaluation evaluated =
      host::evaluate_neurons(*decoder, text, settings, request.windows, request.batch, hooks);

  if (request.record) {
    ordered_json origin{{"model", request.model.string()}, {"text", request.text.string()}};
    origin.update(named[0].name);
    origin.erase("window");
    origin["fatrelu"] = result.document["eval"]["fatrelu"];
    result.recorded = neuron_document(recorder.recording(), origin);
  }
  add_metrics(result.document["metrics"], evaluation_metrics(),
              DensePerplexity{evaluated.dense_perplexity, evaluated.dense_perplexity_spread, unquantised});
  result.document["rows"] = ordered_json::array();
  for (std::size_t i = 0; i < named.size(); ++i) {
    ordered_json& row =
        result.document["rows"].emplace_back(neuron_row_json(named[i], evaluated.rows[i], evaluated.dense_perplexity));
    if (unquantised) row["vs_unquantised"] = evaluated.rows[i].perplexity / *unquantised - 1;
  }
  result.document["wall"] = wall_figures(clock, 0);
  result.document["wall"].erase("page_ops_per_wall_s");
  return result;
}

}  // namespace csdsim::experiment
