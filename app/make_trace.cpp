#include <fmt/format.h>

#include <algorithm>

#include "app/commands.h"
#include "app/options.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "host_runtime/core/serving/generate_trace.h"
#include "host_runtime/traces/read_trace.h"
#include "report/files.h"

namespace csdsim::app {
namespace {

const host::TraceKind& kind_named(const std::string& name) {
  const auto kinds = host::trace_kinds();
  const auto found = std::ranges::find(kinds, name, &host::TraceKind::name);
  if (found != kinds.end()) return *found;
  std::vector<std::string> known;
  for (const host::TraceKind& kind : kinds) known.emplace_back(kind.name);
  throw UserError(fmt::format("make-trace: there is no kind '{}'{}; known are {}", printable(name),
                              did_you_mean(name, known), join(known)));
}

template <class T>
void assign(T& value, const std::optional<T>& given) {
  if (given) value = *given;
}

void set_time(SimTime& value, const char* option, const std::optional<std::string>& given) {
  if (!given) return;
  try {
    value = parse_time(*given);
  } catch (const UserError& error) {
    throw UserError(fmt::format("make-trace: {}: {}", option, error.what()));
  }
}

host::TraceGeneration settings_of(const host::TraceKind& kind, const MakeTraceArguments& a) {
  host::TraceGeneration s = kind.defaults;
  s.requests = a.requests;
  s.seed = a.seed;
  s.block_tokens = a.block_tokens.value_or(a.format == "bailian" ? 16 : s.block_tokens);
  assign(s.input_tokens, a.input_tokens);
  assign(s.output_tokens, a.output_tokens);
  assign(s.prefixes, a.prefixes);
  assign(s.prefix_tokens, a.prefix_tokens);
  assign(s.turns, a.turns);
  assign(s.burst, a.burst);
  assign(s.clients, a.clients);
  assign(s.most_tokens, a.most_tokens);
  set_time(s.gap, "--gap", a.gap);
  set_time(s.delay, "--delay", a.delay);
  set_time(s.token_time, "--token-time", a.token_time);
  return s;
}

}  // namespace

int make_trace(const MakeTraceArguments& arguments) {
  const host::TraceKind& kind = kind_named(arguments.kind);
  const std::string text = host::write_serving_trace(kind.generate(settings_of(kind, arguments)), arguments.format);
  if (arguments.out)
    report::write_file(*arguments.out, text);
  else
    print_result(text);
  return 0;
}

void add_make_trace(CLI::App& cli, int& status) {
  const auto a = std::make_shared<MakeTraceArguments>();
  auto* command = cli.add_subcommand("make-trace",
                                     "Make requests of a serving system: a trace in one of the formats "
                                     "that csdsim reads");
  std::string kinds, formats;
  for (const host::TraceKind& kind : host::trace_kinds())
    kinds += fmt::format("{}{} ({})", kinds.empty() ? "" : "; ", kind.name, kind.description);
  for (const host::ServingTraceFormat& format : host::serving_trace_formats())
    if (format.written) formats += fmt::format("{}{}", formats.empty() ? "" : ", ", format.name);
  const auto option = [command](const char* names, auto& value, const std::string& text) {
    return command->add_option(names, value, text);
  };
  option("kind", a->kind, kinds)->required();
  option("-o,--out", a->out, "File to write (default: standard output)")->check(kNamed);
  option("--format", a->format, formats)->capture_default_str();
  option("--requests", a->requests, "Requests")->check(kPositive)->capture_default_str();
  option("--seed", a->seed, "Seed")->check(kWholeNumber)->capture_default_str();
  option("--block-tokens", a->block_tokens, "Tokens per KV block (default: 512; bailian: 16)");
  option("--input", a->input_tokens, "Mean of the new tokens of a prompt");
  option("--output", a->output_tokens, "Mean of the tokens of an answer");
  option("--prefix-tokens", a->prefix_tokens, "Tokens with which every session begins");
  option("--prefixes", a->prefixes, "How many such beginnings there are");
  option("--turns", a->turns, "chats, agents: mean requests of a session");
  option("--burst", a->burst, "bursts: mean requests that arrive together");
  option("--clients", a->clients, "closed-loop: clients");
  option("--gap", a->gap, "Mean time between requests: 500 ms");
  option("--delay", a->delay, "Mean time from an answer to the next request of its session: 20 s");
  option("--token-time", a->token_time,
         "Time per token of an answer, for arrivals of the requests that follow it (default: 20 ms)");
  option("--most-tokens", a->most_tokens, "Most tokens of a prompt and its answer (default: 131072)");
  command->callback([a, &status] { status = make_trace(*a); });
}

}  // namespace csdsim::app
