#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/commands.h"
#include "app/standard_output.h"
#include "app/token_file.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "experiment/evaluation/eval_run.h"
#include "experiment/experiments.h"
#include "host_runtime/core/systems/systems.h"
#include "report/csv.h"
#include "report/eval_plot.h"
#include "report/files.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

/// The drives that run the attention when no scenario is given.
constexpr std::string_view kEvalScenario = R"(csdsim: 1
name: eval
model: {path: .}
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}
  device: {preset: instcsd-zynq7045}
workload: {kind: generation}
simulation: {data: carried}
)";

using host::BudgetKind;
using host::MethodInfo;
using host::MethodSettings;
using nlohmann::ordered_json;

std::vector<Ratio> ratios_of(const EvalArguments& arguments) {
  std::vector<Ratio> ratios;
  for (const std::string& text : arguments.ratios) ratios.push_back(parse_ratio(text));
  if (arguments.ratios.empty()) ratios = {{1, 2}, {1, 4}, {1, 8}, {1, 16}, {1, 32}};
  return ratios;
}

/// Throws UserError when an option of an exact budget is given but no chosen method takes it.
void refuse_unused(const EvalArguments& a, const std::vector<const MethodInfo*>& methods) {
  const auto takes = [&](std::initializer_list<BudgetKind> kinds) {
    return std::any_of(methods.begin(), methods.end(), [&](const MethodInfo* m) {
      return std::find(kinds.begin(), kinds.end(), m->budget) != kinds.end();
    });
  };
  const auto refuse = [&](bool given, const char* option, std::initializer_list<BudgetKind> kinds) {
    if (given && !takes(kinds)) throw UserError(fmt::format("eval: {} belongs to none of the methods", option));
  };
  refuse(a.r.has_value(), "--r", {BudgetKind::components_and_tokens});
  refuse(a.k.has_value(), "--k", {BudgetKind::components_and_tokens, BudgetKind::tokens});
  refuse(a.local.has_value(), "--local", {BudgetKind::components_and_tokens});
  refuse(a.heavy.has_value(), "--heavy", {BudgetKind::heavy_and_recent});
  refuse(a.recent.has_value(), "--recent", {BudgetKind::heavy_and_recent});
  refuse(a.window.has_value(), "--window", {BudgetKind::window_and_sinks});
  refuse(a.sinks.has_value(), "--sinks", {BudgetKind::window_and_sinks});
}

/// The formats of K and V that are asked for.
std::vector<RowQuantisation> kv_formats(const EvalArguments& a) {
  std::vector<RowQuantisation> formats;
  for (const std::uint32_t bits : a.kv_bits) {
    if (bits == 16) {
      formats.emplace_back();
      continue;
    }
    for (const std::uint32_t group : a.kv_groups) formats.push_back({.bits = bits, .group = group});
    if (a.kv_groups.empty()) formats.push_back({.bits = bits});
  }
  const bool quantised = std::ranges::any_of(formats, &RowQuantisation::quantised);
  if (!a.kv_groups.empty() && !quantised) throw UserError("eval: --kv-group: K and V of 16 bits have no scale");
  if (formats.empty()) formats.emplace_back();
  return formats;
}

/// One row per method and ratio, or one row per method where the options state the budget exactly. When methods are
/// chosen by default, traffic ratios at which choosing alone would exceed the budget are left out.
std::vector<experiment::EvalSetting> settings_of(const EvalArguments& a) {
  std::vector<const MethodInfo*> methods;
  for (const std::string& name : a.methods) methods.push_back(&host::attention_method(name));
  if (methods.empty() && !a.kv_bits.empty()) methods.push_back(&host::attention_method("dense"));
  if (methods.empty()) {
    for (const MethodInfo& info : host::attention_methods())
      if (info.in_drive || a.attention == "host") methods.push_back(&info);
  }
  refuse_unused(a, methods);
  MethodSettings settings;
  settings.meaning = a.ratio_mode == "traffic" ? host::RatioMeaning::traffic : host::RatioMeaning::tokens;
  settings.r = a.r;
  settings.k = a.k;
  settings.local = a.local;
  settings.heavy = a.heavy;
  settings.recent = a.recent;
  settings.window = a.window;
  settings.sinks = a.sinks;
  const std::vector<RowQuantisation> formats = kv_formats(a);
  std::vector<experiment::EvalSetting> all;
  const auto add = [&](const MethodInfo& info, std::optional<Ratio> ratio) {
    for (const RowQuantisation& kv : formats) all.push_back({{std::string(info.name), settings, kv}, ratio, {}});
  };
  bool by_ratio = false;
  for (const MethodInfo* info : methods) {
    if (host::is_exact(settings, info->budget)) {
      add(*info, {});
      continue;
    }
    by_ratio = true;
    for (const Ratio ratio : ratios_of(a)) {
      if (a.methods.empty() && settings.meaning == host::RatioMeaning::traffic && ratio <= info->choosing) continue;
      settings.ratio = ratio;
      add(*info, ratio);
    }
  }
  if (!by_ratio && !a.ratios.empty()) throw UserError("eval: --ratio: every method has an exact budget or needs none");
  return all;
}

/// Gives every setting a scenario in which the drive runs its method.
void place_in_drive(const EvalArguments& a, std::uint32_t batch, std::vector<experiment::EvalSetting>& settings) {
  const host::SystemKinds& systems = experiment::builtin_registries()->systems;
  for (experiment::EvalSetting& setting : settings) {
    const MethodInfo& info = host::attention_method(setting.evaluated.method);
    if (!info.in_drive) {
      std::vector<std::string> there;
      for (const MethodInfo& each : host::attention_methods())
        if (each.in_drive) there.emplace_back(each.name);
      throw UserError(fmt::format("eval: the drive's engine has no '{}'; it has: {}. Use --attention host", info.name,
                                  join(there)));
    }
    std::vector<std::string> sets = a.overrides;
    const auto set = [&](const std::string& path, const std::string& value) { sets.push_back(path + "=" + value); };
    set("model.path", std::filesystem::absolute(a.model).string());
    set("simulation.data", "carried");
    if (a.fatrelu) set("model.fatrelu", *a.fatrelu);
    set("workload.batch", std::to_string(batch));
    set("workload.input_tokens", std::to_string(a.prefill));
    set("workload.output_tokens", std::to_string(a.decode));
    const std::string_view system = host::drive_system_of(systems, info.name);
    set("system.kind", std::string(system));
    if (const RowQuantisation& kv = setting.evaluated.kv; kv.quantised()) {
      set("system.kv_bits", std::to_string(kv.bits));
      set("system.kv_group", std::to_string(kv.group));
    }
    if (info.budget != BudgetKind::none)
      for (const auto& [name, value] : systems.make(system)->traits().method.parameters(setting.evaluated.settings))
        set("system." + name, value);
    setting.drive = (a.scenario ? experiment::load_scenario(*a.scenario, sets)
                                : experiment::load_scenario_text(kEvalScenario, "built-in scenario",
                                                                 std::filesystem::current_path(), sets))
                        .base.scenario;
  }
}

std::string table_text(const ordered_json& document) {
  const ordered_json& rows = document["rows"];
  const bool recall = !rows.empty() && rows[0].contains("recall");
  const bool scores =
      std::any_of(rows.begin(), rows.end(), [](const ordered_json& row) { return !row["top_k_recall"].is_null(); });
  std::vector<std::string> header{"method",   "setting", "kept",      "traffic", "perplexity",
                                  "vs dense", "+-",      "agreement", "alpha",   "mass"};
  if (scores) header.push_back("as fp16");
  if (recall) {
    for (const ordered_json& point : rows[0]["recall"]) {
      header.push_back(fmt::format("recall@{}", point["distance"].get<std::uint32_t>()));
    }
  }
  const double dense = document["metrics"]["dense_perplexity"];
  report::Table table(header);
  const auto number = [](const ordered_json& row, const char* key, int digits) {
    return row[key].is_null() ? std::string("-") : fmt::format("{:.{}f}", row[key].get<double>(), digits);
  };
  for (const ordered_json& row : rows) {
    std::vector<std::string> cells{
        row["method"],
        row["setting"],
        number(row, "kept_mean", 3),
        number(row, "traffic_mean", 3),
        number(row, "perplexity", 4),
        fmt::format("{:+.2f} %", (row["perplexity"].get<double>() / dense - 1) * 100),
        row["vs_dense_stderr"].is_null() ? "-" : fmt::format("{:.2f} %", row["vs_dense_stderr"].get<double>() * 100),
        number(row, "greedy_agreement", 3),
        number(row, "alpha_mean", 3),
        number(row, "mass_mean", 3)};
    if (scores) cells.push_back(number(row, "top_k_recall", 3));
    if (recall) {
      for (const ordered_json& point : row["recall"]) cells.push_back(number(point, "recall", 3));
    }
    table.add_row(cells);
  }
  return table.to_text();
}

std::string csv_text(const ordered_json& document) {
  ordered_json rows = ordered_json::array();
  for (const ordered_json& row : document["rows"]) {
    ordered_json cells;
    for (const auto& [key, value] : row.items()) {
      if (key != "recall") {
        cells[key] = value;
        continue;
      }
      for (const ordered_json& point : value) {
        cells[fmt::format("recall_at_{}", point["distance"].get<std::uint32_t>())] = point["recall"];
      }
    }
    rows.push_back(cells);
  }
  return report::csv_rows(rows);
}

}  // namespace

experiment::EvalInput eval_input(const EvalArguments& arguments) {
  experiment::EvalInput input;
  input.model = arguments.model;
  if (arguments.tokens) {
    input.text = *arguments.tokens;
    input.tokens = read_token_ids(*arguments.tokens);
  } else {
    input.text = *arguments.text;
    input.content = read_text(*arguments.text);
  }
  if (arguments.fatrelu) input.fatrelu = parse_ratio(*arguments.fatrelu);
  input.processor = experiment::processor_named(arguments.backend);
  return input;
}

int eval(const EvalArguments& arguments) {
  if (!arguments.text && !arguments.tokens) throw UserError("eval: give --text FILE or --tokens FILE");
  if (arguments.predictor || arguments.record_neurons) return eval_neurons(arguments);
  if (!arguments.thresholds.empty() || !arguments.ranks.empty())
    throw UserError("eval: --threshold and --rank belong to --predictor FILE");
  if (arguments.weight_bits != 16 || arguments.weight_group)
    throw UserError("eval: --weight-bits and --weight-group belong to --predictor FILE or --predictor oracle");
  experiment::EvalRequest request{eval_input(arguments)};
  request.settings = settings_of(arguments);
  host::EvaluationOptions& options = request.options;
  options.windows = {arguments.prefill, arguments.decode, arguments.windows};
  options.recall.seed = arguments.seed;
  if (arguments.no_recall && !arguments.distances.empty())
    throw UserError("eval: --distance and --no-recall exclude one another");
  const bool in_drive = arguments.attention == "drive";
  if (in_drive && !arguments.distances.empty())
    throw UserError("eval: recall is measured on the host: leave --distance out, or use --attention host");
  if (!in_drive && (arguments.scenario || !arguments.overrides.empty()))
    throw UserError("eval: --scenario and --set say where the drive is: they need --attention drive");
  options.recall.distances = arguments.distances;
  if (!arguments.no_recall && !in_drive && arguments.distances.empty())
    for (const std::uint32_t distance : {arguments.prefill / 4, arguments.prefill / 2, arguments.prefill / 8 * 7})
      if (distance >= options.recall.fact()) options.recall.distances.push_back(distance);
  if (in_drive) place_in_drive(arguments, options.batch, request.settings);

  if (arguments.record_every && !arguments.record) throw UserError("eval: --record-every belongs to --record FILE");
  request.nll = arguments.nll.has_value();
  request.record = arguments.record.has_value();
  request.record_every = arguments.record_every;
  if (arguments.out) report::make_directory(*arguments.out);
  experiment::EvalResult result;
  {
    report::Progress progress("eval", arguments.quiet);
    result = experiment::run_evaluation(request, [&](std::string_view what, std::uint64_t done, std::uint64_t total) {
      progress.update(what, done, total);
    });
  }
  if (arguments.out) {
    report::write_file(*arguments.out / "result.json", result.document.dump(2) + "\n");
    report::write_file(*arguments.out / "eval.csv", csv_text(result.document));
    report::write_file(*arguments.out / "eval.html",
                       report::chart_page("Accuracy of attention methods", report::eval_charts(result.document)));
  }
  if (arguments.nll) report::write_file(*arguments.nll, report::csv_rows(result.nll));
  if (arguments.record) report::write_file(*arguments.record, result.recorded.dump() + "\n");
  if (!(arguments.quiet && arguments.out)) {
    const std::string text = arguments.format == Format::json  ? result.document.dump(2) + "\n"
                             : arguments.format == Format::csv ? csv_text(result.document)
                                                               : table_text(result.document);
    print_result(text);
  }
  if (result.failure.empty()) return 0;
  print_message(fmt::format("eval: FAILED: {}\n", result.failure));
  return 1;
}

}  // namespace csdsim::app
