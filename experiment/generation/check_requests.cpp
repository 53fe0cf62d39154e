#include "experiment/generation/check_requests.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "scenario/presets.h"

namespace csdsim::experiment {

namespace {

constexpr std::string_view kRequests = "workload.requests";

/// Reads the file. False after an error.
bool read_file(scenario::Checker& c, GenerationWorkload& work) {
  if (!c.resolve(*work.requests, kRequests, "file")) return false;
  try {
    work.trace = read_requests(work.requests->path.string(), work.first_requests);
  } catch (const UserError& e) {
    c.error_at(kRequests, fmt::format("workload.requests: {}", e.what()));
    return false;
  }
  for (const std::string& note : work.trace.notes) c.note_at(kRequests, note);
  if (work.trace.share_prefixes)
    c.note_at(kRequests,
              "workload.requests: the prefixes that its requests share are not used: each prompt is computed");
  if (work.interarrival) set_poisson_arrivals(work.trace, *work.interarrival, c.scenario().seed);
  return true;
}

void check_system(scenario::Checker& c, const GenerationWorkload& work) {
  const scenario::Scenario& s = c.scenario();
  c.require(s.system->traits().ends_sequences, {kRequests, "system.kind"},
            fmt::format("workload.requests: {} cannot end sequences at different steps", s.system.kind()));
  c.require(!work.served() || s.system->traits().serves_arrivals, {kRequests, "workload.interarrival", "system.kind"},
            fmt::format("workload.requests: {} with these parameters cannot take requests while others run",
                        s.system.kind()));
  for (const std::string& other : s.simulation.compare) {
    if (other == scenario::kHostComparison || other == s.system.kind()) continue;
    const auto system = s.system.kinds().make(other);
    c.require(system->traits().ends_sequences && (!work.served() || system->traits().serves_arrivals),
              {"simulation.compare", kRequests},
              fmt::format("simulation.compare: {} cannot run requests of their own lengths and arrivals", other));
  }
}

}  // namespace

bool check_requests(scenario::Checker& c, GenerationWorkload& work) {
  if (!work.requests) {
    for (const auto& [path, stated] : {std::pair{"workload.first_requests", work.first_requests.has_value()},
                                       std::pair{"workload.interarrival", work.interarrival.has_value()}})
      if (stated) c.error_at(path, fmt::format("{}: needs workload.requests: FILE", path));
    return true;
  }
  if (!c.readable({kRequests, "workload.first_requests", "workload.interarrival", "workload.batch"})) return false;
  c.require(!work.prompts, {kRequests, "workload.prompts"},
            "workload.requests: the prompts of workload.prompts have other lengths: give one of the two files");
  if (work.prompts || !read_file(c, work)) return false;
  c.refuse_unused("workload.input_tokens", kRequests, "the requests say how long their prompts are");
  c.refuse_unused("workload.output_tokens", kRequests, "the requests say how many tokens they generate");
  if (!work.served()) {
    c.refuse_unused("workload.batch", kRequests, "requests without arrivals are one batch");
    work.batch = static_cast<std::uint32_t>(work.trace.requests.size());
  }
  check_system(c, work);
  return true;
}

std::string longer_models(const host::ModelSpec& model, std::uint64_t tokens) {
  if (model.longest_context() < model.max_positions) return "";
  const scenario::Presets& presets = scenario::Presets::builtin();
  std::vector<std::string> ways{"model.max_positions"};
  for (const std::string& name : presets.names("model")) {
    const config::Node& values = *presets.find("model", name);
    const auto is = [&](std::string_view key, std::uint64_t value) {
      const config::Entry* entry = values.find(key);
      return entry != nullptr && entry->value.scalar == std::to_string(value);
    };
    const config::Entry* positions = values.find("max_positions");
    if (is("layers", model.layers) && is("heads", model.heads) && is("kv_heads", model.kv_heads) &&
        is("head_dim", model.head_dim) && is("hidden_size", model.width) && is("ffn_size", model.ffn) &&
        is("vocab_size", model.vocab) && positions != nullptr && std::stoull(positions->value.scalar) + 1 >= tokens)
      ways.push_back(name);
  }
  return fmt::format(": give {}", join(ways, ", or "));
}

void check_request_lengths(scenario::Checker& c, const GenerationWorkload& work) {
  const std::uint32_t positions = c.scenario().model.longest_context();
  for (const host::Request& request : work.trace.requests) {
    const std::uint64_t tokens = std::uint64_t{request.prompt} + request.output;
    if (tokens <= positions + std::uint64_t{1}) continue;  // the last one is not fed
    c.require(false, {kRequests, "model.max_positions"},
              fmt::format("workload.requests: {}:{}: {} tokens ({} in, {} out) exceed the {} positions of the model{}",
                          printable(work.requests->given, 200), request.line, tokens, request.prompt, request.output,
                          positions, longer_models(c.scenario().model, tokens)));
    return;
  }
}

}  // namespace csdsim::experiment
