#include "experiment/evaluation/eval_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "experiment/evaluation/drive_eval.h"
#include "experiment/evaluation/recorded_selection.h"
#include "experiment/evaluation/recorded_tokens.h"
#include "experiment/memory/kv_cache.h"
#include "experiment/result.h"
#include "experiment/runner.h"
#include "host_runtime/checkpoint/checkpoint.h"

namespace csdsim::experiment {

using host::TokenId;
using nlohmann::ordered_json;

namespace {

std::string ratio_text(Ratio ratio) { return fmt::format("{}/{}", ratio.numerator, ratio.denominator); }

/// The ratio of `part` to `of`; null when `of` is 0.
ordered_json share(std::uint64_t part, std::uint64_t of) {
  return of == 0 ? ordered_json(nullptr) : ordered_json(static_cast<double>(part) / static_cast<double>(of));
}

ordered_json number_or_null(std::optional<double> value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json row_json(const EvalSetting& setting, const host::EvaluationRow& row) {
  ordered_json json;
  json["method"] = row.method;
  json["setting"] = row.setting;
  json["attention"] = setting.drive ? "drive" : "host";
  json["ratio"] = setting.ratio ? ordered_json(ratio_text(*setting.ratio)) : ordered_json(nullptr);
  const RowQuantisation& kv = setting.evaluated.kv;
  json["kv_bits"] = kv.bits;
  json["kv_group"] = kv.quantised() ? ordered_json(kv.group) : ordered_json(nullptr);
  json["perplexity"] = row.perplexity;
  json["perplexity_stderr"] = number_or_null(row.perplexity_spread);
  json["vs_dense_stderr"] = number_or_null(row.ratio_spread);
  json["tokens_scored"] = row.tokens_scored;
  json["alpha_mean"] = row.alpha_mean;
  json["mass_mean"] = row.mass_mean;
  json["kept_mean"] = row.kept_mean;
  json["traffic_mean"] = row.traffic_mean;
  json["greedy_agreement"] = static_cast<double>(row.greedy_equal) / static_cast<double>(row.tokens_scored);
  json["top_k_recall"] = number_or_null(row.top_k_recall);
  if (row.recall.empty()) return json;
  std::uint64_t asked = 0, recalled = 0;
  ordered_json by_distance = ordered_json::array();
  for (const host::RecallPoint& point : row.recall) {
    asked += point.asked;
    recalled += point.recalled;
    by_distance.push_back(
        {{"distance", point.distance}, {"recall", share(point.recalled, point.asked)}, {"asked", point.asked}});
  }
  json["recall_mean"] = share(recalled, asked);
  json["recall_stderr"] = number_or_null(row.recall_spread);
  json["recall"] = std::move(by_distance);
  return json;
}

/// Replaces perplexity and agreement of `row` by those of attention in the drive. Sets `failure` when the perplexity
/// differs from the host's by more than the rounding of what is merged. Returns the number of page operations.
std::uint64_t attend_in_drive(const EvalRequest& request, const EvalSetting& setting, const host::Decoder& decoder,
                              std::span<const TokenId> text, const host::EvaluationResult& host_result,
                              host::EvaluationRow& row, std::string& failure) {
  const host::PerplexityOptions& o = request.options.windows;
  const std::size_t length = std::size_t{o.prefill} + o.decode, windows = host_result.dense_greedy.size();
  const double on_host = row.perplexity;
  double nll = 0;
  std::uint64_t page_ops = 0;
  row.greedy_equal = 0;
  for (std::size_t first = 0; first < windows; first += request.options.batch) {
    std::vector<std::span<const TokenId>> batch;
    for (std::size_t w = first; w < std::min<std::size_t>(windows, first + request.options.batch); ++w) {
      batch.push_back(text.subspan(w * length, length));
    }
    const DriveForcing forced = force_in_drive(*setting.drive, decoder, batch, o.prefill);
    page_ops += forced.page_ops;
    if (!forced.failure.empty()) failure = forced.failure;
    for (std::size_t w = 0; w < batch.size(); ++w) {
      for (std::size_t at = 0; at < forced.predictions[w].size(); ++at) {
        nll += forced.predictions[w][at].nll;
        row.nll[first + w][at] = forced.predictions[w][at].nll;
        row.greedy_equal += forced.predictions[w][at].greedy == host_result.dense_greedy[first + w][at];
      }
    }
  }
  row.perplexity = std::exp(nll / static_cast<double>(row.tokens_scored));
  // Drives that divide the tokens round partial outputs to fp16 before they are merged. That changed the perplexity
  // over 10 tokens of opt-6m by 0.05 %; over more tokens it averages out.
  const double allowed = kv_division(*setting.drive).by_tokens() ? 1e-2 * on_host : 0;
  if (std::abs(row.perplexity - on_host) > allowed) {
    failure = fmt::format("{}: attention in the drive gives perplexity {}, on the host {}", row.method, row.perplexity,
                          on_host);
  }
  return page_ops;
}

ordered_json frame(const EvalRequest& request, std::size_t text_tokens, std::uint32_t windows) {
  const host::EvaluationOptions& o = request.options;
  ordered_json document;
  document["schema"] = kResultSchema;
  document["build"] = build_info();
  document["name"] = "eval";
  document["seed"] = o.recall.seed;
  document["eval"] = {{"model", request.model.string()}, {"text", request.text.string()}, {"text_tokens", text_tokens},
                      {"prefill", o.windows.prefill},    {"decode", o.windows.decode},    {"windows", windows}};
  if (request.fatrelu) document["eval"]["fatrelu"] = request.fatrelu->value();
  if (!o.recall.distances.empty()) {
    document["eval"]["recall"] = {
        {"distances", o.recall.distances}, {"cue", o.recall.cue}, {"answer", o.recall.answer}};
  }
  return document;
}

void add_nll(const EvalRequest& request, std::span<const TokenId> text, const host::EvaluationRow& row,
             ordered_json& all) {
  const host::PerplexityOptions& o = request.options.windows;
  const std::size_t length = std::size_t{o.prefill} + o.decode;
  for (std::size_t window = 0; window < row.nll.size(); ++window)
    for (std::size_t at = 0; at < row.nll[window].size(); ++at) {
      const std::size_t position = o.prefill + at + 1;
      all.push_back({{"method", row.method},
                     {"setting", row.setting},
                     {"window", window},
                     {"position", position},
                     {"token", text[window * length + position].value},
                     {"nll", row.nll[window][at]}});
    }
}

/// Records the only setting of a request.
class Recording {
 public:
  /// Takes the hook of selections. UserError if the setting cannot be recorded.
  Recording(const EvalRequest& request, const host::ModelConfig& config, std::size_t text_tokens,
            host::EvaluationHooks& hooks)
      : request_(request),
        config_(config),
        info_(method_of(request)),
        every_(request.record_every.value_or(kRecordEvery)),
        tokens_(request.options.windows.prefill, host::window_count(text_tokens, request.options.windows),
                config.layers, config.kv_heads, info_.list_per_layer) {
    hooks.selected = [this](std::size_t, SequenceId window, LayerId layer, KvHead head, std::uint32_t tokens,
                            const host::HeadSelection& selection) {
      if (!components())
        tokens_.add(window, layer, head, selection);
      else if ((tokens - request_.options.windows.prefill - 1) % every_ == 0)
        selections_.add(window, layer, head, tokens, selection);
    };
  }
  Recording(const Recording&) = delete;  // the hook points here
  Recording& operator=(const Recording&) = delete;

  ordered_json document(const std::string& setting) const {
    const std::string model = request_.model.string(), text = request_.text.string();
    if (components()) return selections_.document(config_.head_dim, setting, model, text);
    return token_document(tokens_.recording(), {model, text, std::string(info_.name), setting});
  }

 private:
  static constexpr std::uint32_t kRecordEvery = 16;

  static const host::MethodInfo& method_of(const EvalRequest& request) {
    if (request.settings.size() != 1)
      throw UserError("a recording takes one setting: give one --method and one budget");
    const host::MethodInfo& info = host::attention_method(request.settings[0].evaluated.method);
    if (info.budget == host::BudgetKind::none)
      throw UserError(fmt::format("a recording of {}: it attends to all tokens, choose another method", info.name));
    if (request.record_every && info.budget != host::BudgetKind::components_and_tokens)
      throw UserError("--record-every: the tokens of consecutive steps are recorded; only sparf may leave steps out");
    return info;
  }
  bool components() const { return info_.budget == host::BudgetKind::components_and_tokens; }

  const EvalRequest& request_;
  const host::ModelConfig& config_;
  const host::MethodInfo& info_;
  std::uint32_t every_;
  SelectionRecorder selections_;
  TokenRecorder tokens_;
};

}  // namespace

std::vector<Metric<DensePerplexity>> evaluation_metrics() {
  return {{{"dense_perplexity", "1", "Perplexity with dense attention."},
           [](const DensePerplexity& dense) { return dense.value; }},
          {{"dense_perplexity_stderr", "1", "Its standard error over the windows."},
           [](const DensePerplexity& dense) { return dense.error.value_or(std::nan("")); }},
          {{"unquantised_perplexity", "1", "With --weight-bits: perplexity with weights of 16 bits."},
           [](const DensePerplexity& dense) { return dense.unquantised; }},
          {{"dense_vs_unquantised", "1", "With --weight-bits: relative rise of the perplexity.",
            "dense_perplexity / unquantised_perplexity - 1"},
           [](const DensePerplexity& dense) -> std::optional<double> {
             if (!dense.unquantised) return std::nullopt;
             return dense.value / *dense.unquantised - 1;
           }}};
}

host::Checkpoint checkpoint_of(const EvalInput& input) {
  host::Checkpoint checkpoint = host::open_checkpoint(input.model);
  checkpoint.config.fatrelu = input.fatrelu;
  return checkpoint;
}

std::vector<TokenId> tokens_of(const EvalInput& input) {
  return input.tokens ? *input.tokens : host::open_tokenizer(input.model).encode(input.content);
}

EvalResult run_evaluation(const EvalRequest& request, const EvalProgress& progress) {
  const WallClock clock;
  const std::unique_ptr<host::Backend> backend = make_backend(request.processor);
  const host::Checkpoint checkpoint = checkpoint_of(request);
  const std::unique_ptr<host::Decoder> decoder =
      make_decoder(request.processor, checkpoint.config, *checkpoint.weights, *backend);
  const std::vector<TokenId> text = tokens_of(request);
  EvalResult result;
  result.document = frame(request, text.size(), host::window_count(text.size(), request.options.windows));

  std::vector<host::EvaluatedSetting> settings;
  for (const EvalSetting& setting : request.settings) settings.push_back(setting.evaluated);
  host::EvaluationHooks hooks;
  if (progress) hooks.progress = [&](std::size_t done, std::size_t total) { progress("batches", done, total); };
  std::optional<Recording> recording;
  if (request.record) recording.emplace(request, checkpoint.config, text.size(), hooks);
  host::EvaluationOptions options = request.options;
  // The results of the drive must equal those of the host's processor bit for bit.
  options.attention_on_backend = std::none_of(request.settings.begin(), request.settings.end(),
                                              [](const EvalSetting& s) { return s.drive.has_value(); });
  host::EvaluationResult evaluated = host::evaluate(*decoder, text, settings, options, hooks);

  if (recording) result.recorded = recording->document(evaluated.rows[0].setting);
  add_metrics(result.document["metrics"], evaluation_metrics(),
              DensePerplexity{evaluated.dense_perplexity, evaluated.dense_perplexity_spread});
  result.document["rows"] = ordered_json::array();
  std::uint64_t page_ops = 0;
  for (std::size_t i = 0; i < evaluated.rows.size(); ++i) {
    const EvalSetting& setting = request.settings[i];
    if (setting.drive) {
      if (progress) progress("settings in the drive", i, evaluated.rows.size());
      page_ops += attend_in_drive(request, setting, *decoder, text, evaluated, evaluated.rows[i], result.failure);
    }
    result.document["rows"].push_back(row_json(setting, evaluated.rows[i]));
    if (request.nll) add_nll(request, text, evaluated.rows[i], result.nll);
  }
  result.document["wall"] = wall_figures(clock, page_ops);
  if (page_ops == 0) result.document["wall"].erase("page_ops_per_wall_s");
  return result;
}

}  // namespace csdsim::experiment
