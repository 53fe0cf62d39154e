#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "app/commands.h"
#include "app/standard_output.h"
#include "app/token_file.h"
#include "base/error.h"
#include "base/quantity.h"
#include "experiment/checkpoint/processor.h"
#include "experiment/checkpoint/streamed_generation.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "host_runtime/checkpoint/checkpoint_folder.h"
#include "host_runtime/core/systems/systems.h"
#include "report/files.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

/// The drive that is used when no scenario is given. It holds one sequence of a small model.
constexpr std::string_view kGenerateScenario = R"(csdsim: 1
name: generate
model: {path: .}
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}
  device: {preset: instcsd-zynq7045}
workload: {kind: generation, batch: 1, input_tokens: 1, output_tokens: 64}
simulation: {data: carried}
)";

/// The budget of the options, as parameters of the system. Throws UserError when the system has no such parameter.
std::vector<std::pair<std::string, std::string>> budget_of(const host::OffloadSystem& system,
                                                           const GenerateArguments& a) {
  if (!a.ratio && !a.r && !a.k && !a.local) return {};
  host::MethodSettings settings{.r = a.r, .k = a.k, .local = a.local};
  if (a.ratio) settings.ratio = parse_ratio(*a.ratio);
  auto parameters = system.traits().method.parameters(settings);
  if (parameters.empty())
    throw UserError("generate: --ratio, --r, --k and --local belong to a sparse method, --method sparf for one");
  // Keep only what the user asked for: ratio_mode, and a ratio that was not given, come from the scenario.
  std::erase_if(parameters, [&](const auto& p) { return p.first == "ratio_mode" || (p.first == "ratio" && !a.ratio); });
  return parameters;
}

/// True if the run is one on the streams of a GPU: a named system that can, and a backend that has them. Without both,
/// a system runs in simulated time, and attention on the host says what the user wants instead.
bool on_streams(const host::OffloadSystem& system, const GenerateArguments& a) {
  const bool can = a.system && experiment::runs_on_streams(system), cpu = a.backend == "cpu";
  if (can && cpu && a.attention == "host")
    throw UserError(
        fmt::format("generate: --system {} with --attention host runs on the streams of a GPU, which --backend cpu "
                    "does not have: take "
                    "--backend cuda, or leave out --attention host to simulate the system",
                    *a.system));
  if (a.rates != "measured" && (!can || cpu))
    throw UserError(
        "generate: --rates belongs to a system that runs on the streams of a GPU, --system kvpr --backend cuda for "
        "one");
  return can && !cpu;
}

/// Refuses a system whose K and V are in host memory where they would be on the GPU.
void check_place(const scenario::Scenario& s, const GenerateArguments& a) {
  if (!a.system || a.attention != "host" || a.backend == "cpu") return;
  if (s.system->needs({.model = s.model.shape(), .workload = experiment::generation_of(s).lengths()}).kv ==
      host::Place::host())
    throw UserError(
        fmt::format("generate: --system {} keeps K and V in host memory, and does so in simulated time only: leave out "
                    "--attention host, or take a system that runs on the streams of a GPU, --system kvpr for one",
                    *a.system));
}

}  // namespace

int generate(const GenerateArguments& arguments) {
  if (!arguments.prompt && !arguments.tokens) throw UserError("generate: give --prompt TEXT or --tokens FILE");
  host::require_checkpoint(arguments.model);
  const host::SystemKinds& systems = experiment::builtin_registries()->systems;
  const std::string system =
      arguments.system.value_or(std::string(host::drive_system_of(systems, arguments.method.value_or("dense"))));
  const std::unique_ptr<host::OffloadSystem> asked = systems.make(system);
  const auto budget = budget_of(*asked, arguments);
  const bool streams = on_streams(*asked, arguments);
  if (arguments.logprobs && !arguments.out)
    throw UserError("generate: --logprobs writes to result.json: give --out DIR");
  if (arguments.out) report::make_directory(*arguments.out);
  const bool on_host = arguments.attention == "host" && !streams;
  scenario::RunOptions options;
  if (arguments.tokens) options.prompt_tokens = read_prompts_of_ids(*arguments.tokens);

  std::vector<std::string> sets = arguments.overrides;
  // A value given by --set wins over the value of an option or its default.
  const auto set = [&](const std::string& path, const std::string& value) {
    const auto same = [&](const std::string& given) { return given.starts_with(path + "="); };
    if (std::none_of(arguments.overrides.begin(), arguments.overrides.end(), same)) sets.push_back(path + "=" + value);
  };
  set("model.path", std::filesystem::absolute(arguments.model).string());
  set("seed", std::to_string(arguments.seed));
  set("simulation.data", "carried");
  set("workload.output_tokens", std::to_string(arguments.max_new_tokens));
  set("workload.temperature", fmt::format("{}", arguments.temperature));
  if (arguments.top_k) set("workload.top_k", std::to_string(*arguments.top_k));
  if (arguments.top_p) set("workload.top_p", fmt::format("{}", *arguments.top_p));
  if (arguments.fatrelu) set("model.fatrelu", *arguments.fatrelu);
  if (options.prompt_tokens.size() > 1) set("workload.batch", std::to_string(options.prompt_tokens.size()));
  set("system.kind", system);
  for (const auto& [name, value] : budget) set("system." + name, value);
  const scenario::Loaded loaded = arguments.scenario
                                      ? experiment::load_scenario(*arguments.scenario, sets, on_host)
                                      : experiment::load_scenario_text(kGenerateScenario, "built-in scenario",
                                                                       std::filesystem::current_path(), sets, on_host);

  if (!arguments.quiet)
    for (const std::string& note : loaded.base.notes) print_message(fmt::format("{}\n", note));
  if (!streams) check_place(loaded.base.scenario, arguments);

  options.processor = experiment::processor_named(arguments.backend);
  options.prompt_text = arguments.prompt;
  options.stop_at_eos = arguments.stop_at_eos;
  options.logprobs = arguments.logprobs;
  options.logits = arguments.logits;
  scenario::RunResult result;
  {
    report::Progress progress("generate", arguments.quiet);
    options.progress = [&](std::string_view what, std::uint64_t done, std::uint64_t total) {
      progress.update(what, done, total);
    };
    if (streams)
      result = experiment::generate_on_streams(
          loaded.base.scenario, options,
          arguments.rates == "platform" ? experiment::RateSource::platform : experiment::RateSource::measured);
    else
      result = experiment::run_scenario(loaded.base.scenario, options);
  }
  const nlohmann::ordered_json tokens = result.document["tokens"], text = result.document.value("text", tokens);
  // Lists of one prompt are that prompt's.
  for (const char* const key : {"prompt_tokens", "tokens", "text", "logprobs"})
    if (tokens.size() == 1 && result.document.contains(key))
      result.document[key] = nlohmann::ordered_json(result.document[key].at(0));
  if (arguments.out) report::write_file(*arguments.out / "result.json", result.document.dump(2) + "\n");
  // Without a tokenizer there is no text.
  for (const nlohmann::ordered_json& of_prompt : text)
    print_result(
        fmt::format("{}\n", of_prompt.is_string()
                                ? of_prompt.get<std::string>()
                                : fmt::format("{}", fmt::join(of_prompt.get<std::vector<std::uint32_t>>(), " "))));
  if (!arguments.quiet) print_message(fmt::format("\n{}\n", result.meaning));
  if (result.failure.empty()) return 0;
  print_message(fmt::format("generate: FAILED: {}\n", result.failure));
  return 1;
}

}  // namespace csdsim::app
