#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <sstream>

#include "app/commands.h"
#include "app/standard_output.h"
#include "app/token_file.h"
#include "base/error.h"
#include "base/param_codec.h"
#include "base/quantity.h"
#include "experiment/evaluation/neuron_run.h"
#include "report/csv.h"
#include "report/files.h"
#include "report/neuron_plot.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

/// Throws UserError for an option that is of attention methods.
void refuse_attention_options(const EvalArguments& a) {
  const auto refuse = [](bool given, const char* option) {
    if (given)
      throw UserError(
          fmt::format("eval: {} is of attention methods; with --predictor or --record-neurons attention is "
                      "dense",
                      option));
  };
  refuse(!a.methods.empty(), "--method");
  refuse(!a.ratios.empty(), "--ratio");
  refuse(a.ratio_mode != "tokens", "--ratio-mode");
  refuse(!a.kv_bits.empty(), "--kv-bits");
  refuse(!a.kv_groups.empty(), "--kv-group");
  refuse(a.r.has_value(), "--r");
  refuse(a.k.has_value(), "--k");
  refuse(a.local.has_value(), "--local");
  refuse(a.heavy.has_value(), "--heavy");
  refuse(a.recent.has_value(), "--recent");
  refuse(a.sinks.has_value(), "--sinks");
  refuse(!a.distances.empty(), "--distance");
  refuse(a.attention != "host", "--attention drive");
  refuse(a.scenario.has_value(), "--scenario");
  refuse(!a.overrides.empty(), "--set");
  refuse(a.record.has_value(), "--record");
}

/// "64" or, one per layer, "16:16:64".
std::vector<std::uint32_t> ranks_from(const std::string& text) {
  std::vector<std::uint32_t> ranks;
  std::istringstream parts(text);
  try {
    for (std::string part; std::getline(parts, part, ':');) ranks.push_back(Codec<std::uint32_t>::parse(part));
  } catch (const UserError& e) {
    throw UserError(fmt::format("eval: --rank {}: {}", text, e.what()));
  }
  return ranks;
}

RowQuantisation quantisation_of(const EvalArguments& a) {
  RowQuantisation quantisation{.bits = a.weight_bits};
  if (!a.weight_group) return quantisation;
  if (!quantisation.quantised()) throw UserError("eval: --weight-group: weights of 16 bits have no scale");
  if (*a.weight_group == 0) throw UserError("eval: --weight-group 0: at least 1");
  quantisation.group = *a.weight_group;
  return quantisation;
}

/// A rank as --rank takes it.
std::string rank_text(const ordered_json& rank) {
  if (rank.is_null()) return "-";
  return rank.is_array() ? fmt::format("{}", fmt::join(rank.get<std::vector<std::uint32_t>>(), ":")) : rank.dump();
}

std::string neuron_table(const ordered_json& document) {
  report::Table table({"predictor", "rank", "threshold", "window", "perplexity", "vs dense", "+-", "agreement",
                       "firing", "predicted", "per firing", "missed", "weighted", "false pos.", "active", "left out",
                       "active by layer"});
  const ordered_json& metrics = document["metrics"];
  const auto number = [](const ordered_json& value, int digits) {
    return value.is_null() ? std::string("-") : fmt::format("{:.{}f}", value.get<double>(), digits);
  };
  for (const ordered_json& row : document["rows"]) {
    std::vector<std::string> by_layer;
    for (const ordered_json& layer : row["layers"]) by_layer.push_back(number(layer["active_share"], 3));
    const ordered_json& spread = row["vs_dense_stderr"];
    table.add_row({row["predictor"], rank_text(row["rank"]), number(row["threshold"], 2), row["window"].dump(),
                   number(row["perplexity"], 4), fmt::format("{:+.2f} %", row["vs_dense"].get<double>() * 100),
                   spread.is_null() ? "-" : fmt::format("{:.2f} %", spread.get<double>() * 100),
                   number(row["greedy_agreement"], 3), number(row["firing_share"], 4),
                   number(row["predicted_share"], 4), number(row["predicted_per_firing"], 2),
                   number(row["false_negatives"], 4), number(row["false_negatives_weighted"], 4),
                   number(row["false_positives"], 4), number(row["active_share"], 4), number(row["left_out"], 4),
                   fmt::format("{}", fmt::join(by_layer, " "))});
  }
  if (!metrics.contains("unquantised_perplexity")) return table.to_text();
  return table.to_text() +
         fmt::format("dense with weights of {} bits: perplexity {:.4f}, {:+.2f} % against {:.4f} with 16 bits\n",
                     document["eval"]["weight_bits"].get<int>(), metrics["dense_perplexity"].get<double>(),
                     100 * metrics["dense_vs_unquantised"].get<double>(),
                     metrics["unquantised_perplexity"].get<double>());
}

/// One line per row, and in each the shares of all layers together.
std::string neuron_csv(const ordered_json& document) {
  ordered_json rows = document["rows"];
  for (ordered_json& row : rows) {
    row.erase("layers");
    if (row["rank"].is_array()) row["rank"] = rank_text(row["rank"]);
  }
  return report::csv_rows(rows);
}

}  // namespace

int eval_neurons(const EvalArguments& arguments) {
  refuse_attention_options(arguments);
  experiment::NeuronRequest request{eval_input(arguments)};
  if (arguments.predictor && *arguments.predictor != "oracle") request.predictor = *arguments.predictor;
  for (const std::string& text : arguments.thresholds) request.thresholds.push_back(parse_ratio(text));
  for (const std::string& text : arguments.ranks) request.ranks.push_back(ranks_from(text));
  request.quantisation = quantisation_of(arguments);
  request.window = arguments.window.value_or(1);
  request.windows = {arguments.prefill, arguments.decode, arguments.windows};
  request.record = arguments.record_neurons.has_value();
  if (arguments.out) report::make_directory(*arguments.out);
  experiment::EvalResult result;
  {
    report::Progress progress("eval", arguments.quiet);
    result = experiment::run_neuron_evaluation(
        request,
        [&](std::string_view what, std::uint64_t done, std::uint64_t total) { progress.update(what, done, total); });
  }
  if (arguments.out) {
    report::write_file(*arguments.out / "result.json", result.document.dump(2) + "\n");
    report::write_file(*arguments.out / "eval.csv", neuron_csv(result.document));
    if (request.predictor)
      report::write_file(*arguments.out / "eval.html",
                         report::chart_page("Predicted neurons", {report::neuron_chart(result.document)}));
  }
  if (arguments.record_neurons) report::write_file(*arguments.record_neurons, result.recorded.dump() + "\n");
  if (!(arguments.quiet && arguments.out)) {
    const std::string text = arguments.format == Format::json  ? result.document.dump(2) + "\n"
                             : arguments.format == Format::csv ? neuron_csv(result.document)
                                                               : neuron_table(result.document);
    print_result(text);
  }
  return 0;
}

}  // namespace csdsim::app
