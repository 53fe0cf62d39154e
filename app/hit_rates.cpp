// csdsim hit-rates: hits of prompts over the capacity of a tier of KV blocks.
#include "experiment/serving/hit_rates.h"

#include <fmt/format.h>

#include <map>

#include "app/commands.h"
#include "app/figure.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "base/plugin.h"
#include "base/quantity.h"
#include "base/text.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/plugin/eviction_plugin.h"
#include "host_runtime/traces/read_trace.h"
#include "report/csv.h"

namespace csdsim::app {
namespace {

/// "1000" or "unlimited".
std::optional<std::uint64_t> capacity_of(const std::string& text) {
  if (text == "unlimited") return std::nullopt;
  try {
    if (const std::uint64_t blocks = parse_count(text); blocks > 0) return blocks;
  } catch (const UserError&) {
  }
  throw UserError(
      fmt::format("--capacity {}: a number of blocks from 1 on is needed, or 'unlimited'", printable(text)));
}

/// Loads libraries into the registry, and names their policies.
std::vector<experiment::CachePolicyChoice> eviction_choices(const std::vector<std::string>& texts,
                                                            host::EvictionRegistry& registry) {
  std::map<std::string, std::string> loaded;  // names by path
  std::vector<experiment::CachePolicyChoice> choices;
  for (const std::string& text : texts) {
    experiment::CachePolicyChoice choice = experiment::cache_policy_choice(text);
    if (names_library(choice.name)) {
      const std::string path = choice.name;
      if (!loaded.contains(path)) loaded[path] = host::load_eviction_plugin(path, registry);
      choice.name = loaded[path];
      choice.text = choice.name + choice.text.substr(path.size());
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

/// Traces of the same name are told apart by their paths.
std::vector<host::ServingTrace> read_traces(const HitRatesArguments& arguments) {
  host::ServingTraceOptions options;
  options.format = arguments.trace_format;
  options.block_tokens = arguments.trace_block_tokens;
  if (!arguments.quiet) options.on_note = [](const std::string& note) { print_message(note + "\n"); };
  std::optional<host::Tokenizer> tokenizer;
  if (arguments.tokenizer) {
    tokenizer.emplace(host::open_tokenizer(*arguments.tokenizer));
    options.tokenize = [&tokenizer](std::string_view text) {
      std::vector<std::uint32_t> tokens;
      for (const host::TokenId token : tokenizer->encode(text)) tokens.push_back(token.value);
      return tokens;
    };
  }
  std::map<std::string, int> names;
  std::vector<host::ServingTrace> traces;
  for (const std::filesystem::path& path : arguments.traces) {
    traces.push_back(host::read_serving_trace(path, options));
    ++names[traces.back().name];
  }
  for (std::size_t i = 0; i < traces.size(); ++i)
    if (names[traces[i].name] > 1) traces[i].name = arguments.traces[i].string();
  return traces;
}

}  // namespace

int hit_rates(const HitRatesArguments& arguments) {
  host::EvictionRegistry evictions = host::builtin_eviction_policies();
  experiment::HitRateOptions options{.evictions = eviction_choices(arguments.evictions, evictions),
                                     .admissions = {},
                                     .capacities = {},
                                     .block_tokens = arguments.block_tokens};
  for (const std::string& text : arguments.admissions)
    options.admissions.push_back(experiment::cache_policy_choice(text));
  for (const std::string& text : arguments.capacities) options.capacities.push_back(capacity_of(text));
  const std::vector<host::ServingTrace> traces = read_traces(arguments);
  report::Progress progress("hit-rates", arguments.quiet);
  const std::vector<experiment::HitRate> points =
      experiment::hit_rates(traces, options, evictions, host::builtin_admission_policies(),
                            [&](std::size_t done, std::size_t total) { progress.update("points", done, total); });
  if (arguments.plot) draw_figure(experiment::hit_rate_figure(points), *arguments.plot);
  print_result(arguments.format == Format::json  ? experiment::hit_rate_rows(points).dump(2) + "\n"
               : arguments.format == Format::csv ? report::csv_rows(experiment::hit_rate_rows(points))
                                                 : experiment::hit_rate_text(points));
  return 0;
}

}  // namespace csdsim::app
