#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "app/commands.h"
#include "app/token_file.h"
#include "base/error.h"
#include "experiment/runner.h"
#include "report/files.h"
#include "report/text.h"
#include "scenario/load.h"

namespace csdsim::app {
namespace {

/// The drive that prompts run through when no scenario says otherwise: big enough for one sequence of a small model.
constexpr std::string_view kDefaultScenario = R"(csdsim: 1
name: generate
model: {path: .}
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}
  device: {preset: instcsd-zynq7045}
system: {kind: instinfer-dense}
workload: {kind: generation, batch: 1, input_tokens: 1, output_tokens: 64}
simulation: {data: carried}
)";

}  // namespace

int generate(const GenerateArguments& arguments) {
  if (!arguments.prompt && !arguments.tokens) throw UserError("generate: give --prompt TEXT or --tokens FILE");
  const bool sparf = arguments.method == "sparf";
  if (!sparf && (arguments.ratio || arguments.r || arguments.k || arguments.local))
    throw UserError("generate: --ratio, --r, --k and --local belong to --method sparf");

  std::vector<std::string> sets = arguments.overrides;
  // What the user sets outright wins over what an option, or its default, stands for.
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
  set("system.kind", sparf ? "instinfer-sparf" : "instinfer-dense");
  if (sparf) {
    if (arguments.ratio) set("system.ratio", *arguments.ratio);
    if (arguments.r) set("system.r", std::to_string(*arguments.r));
    if (arguments.k) set("system.k", std::to_string(*arguments.k));
    if (arguments.local) set("system.l", std::to_string(*arguments.local));
  }
  const scenario::Loaded loaded =
      arguments.scenario
          ? scenario::load_scenario(*arguments.scenario, sets)
          : scenario::load_scenario_text(kDefaultScenario, "built-in scenario", std::filesystem::current_path(), sets);

  experiment::RunOptions options;
  options.attention_on_host = arguments.attention == "host";
  options.processor = experiment::processor_named(arguments.backend);
  if (arguments.prompt) {
    options.prompt_text = *arguments.prompt;
  } else {
    options.prompt_tokens = read_token_ids(*arguments.tokens);
  }
  experiment::RunResult result;
  {
    report::Progress progress("generate", arguments.quiet);
    options.progress = [&](std::string_view what, std::uint64_t done, std::uint64_t total) {
      progress.update(what, done, total);
    };
    result = experiment::run_scenario(loaded.base.scenario, options);
  }
  // One prompt: its tokens and text stand by themselves. Without a tokenizer there is no text.
  for (const char* const key : {"tokens", "text"})
    if (result.document.contains(key)) result.document[key] = nlohmann::ordered_json(result.document[key].at(0));
  if (arguments.out) report::write_file(*arguments.out / "result.json", result.document.dump(2) + "\n");
  if (result.document.contains("text")) {
    fmt::print("{}\n", result.document["text"].get<std::string>());
  } else {
    fmt::print("{}\n", fmt::join(result.document["tokens"].get<std::vector<std::uint32_t>>(), " "));
  }
  if (!arguments.quiet) std::fprintf(stderr, "\n%s\n", result.meaning.c_str());
  if (result.failure.empty()) return 0;
  std::fprintf(stderr, "generate: FAILED: %s\n", result.failure.c_str());
  return 1;
}

}  // namespace csdsim::app
