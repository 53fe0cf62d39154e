// Every parameter does something: each is moved once, on a scenario in which it matters, and the result has to change.
// A parameter without a probe fails the test, so a new one comes with its probe.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/dump.h"
#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

using namespace csdsim;

namespace {

/// What moving a parameter does.
enum class Effect : std::uint8_t {
  changes,  ///< the result
  refused,  ///< the scenario is not accepted or does not run: the parameter is a limit
  same,     ///< nothing, by contract: only the way to the result differs
};

struct Probe {
  std::string_view parameter;  ///< path; "path (kind)" for those of one kind of a choice
  std::string_view base;
  std::string_view value;
  std::vector<std::string> with = {};  ///< further assignments, on both sides
  Effect effect = Effect::changes;
};

constexpr std::string_view kDevice = R"(
  device:
    flash: {channels: 2, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 32, pages_per_block: 32}
    dram: {capacity: 64 MiB}
)";

std::string scenario_text(std::string_view base) {
  if (base == "presets")
    return "csdsim: 1\nname: probe\nmodel: {preset: opt-1.3b}\n"
           "platform: {gpu: {preset: a6000}, host: {preset: xeon-5320}, device: {preset: instcsd-zynq7045}}\n"
           "workload: {kind: generation, input_tokens: 64, output_tokens: 6}\n"
           "simulation: {sampling: {layers: 2, steps: 2}}\n";
  std::string text =
      "csdsim: 1\nname: probe\nplatform:\n  gpu: {preset: a6000}\n  host: {preset: xeon-5320}" + std::string(kDevice);
  if (base == "block")
    return text +
           "    ftl: {mapping: {kind: page}}\n"
           "workload: {kind: block_io, pattern: random_mixed, requests: 3000, working_set: 0.9}\n";
  if (base == "flows")
    return text +
           "    ftl: {mapping: {kind: page}}\n"
           "workload: {kind: block_io, requests: 3000, working_set: 0.9, flows: {patterns: [random_read, "
           "random_write]}}\n";
  if (base == "policies")
    return "csdsim: 1\nname: probe\nplatform:" + std::string(kDevice) +
           "workload: {kind: ftl_policies, layers: 1, kv_heads: 4, head_dim: 64, sequences: 3, live: 2, least_tokens: "
           "70,"
           " most_tokens: 200, attend_every: 32}\n";
  if (base == "trace")
    return text +
           "    ftl: {mapping: {kind: page}}\n"
           "workload: {kind: trace, format: msr, file: scenarios/traces/mail.msr.csv, requests: 500}\n";
  if (base == "carried")
    return text +
           "model: {path: models/opt-6m}\n"
           "system: {kind: instinfer-sparf}\n"
           "workload: {kind: generation, batch: 2, input_tokens: 40, output_tokens: 4}\n"
           "simulation: {data: carried}\n";
  const std::string system = base == "dense" || base == "requests" ? "instinfer-dense" : "instinfer-sparf";
  return text +
         "model: {layers: 2, heads: 4, kv_heads: 2, head_dim: 64, hidden_size: 256, ffn_size: 512, vocab_size: 1000, "
         "max_positions: 2048}\n"
         "system: {kind: " +
         system + "}\n" +
         (base == "requests" ? "workload: {kind: generation, requests: scenarios/serving_requests.csv, "
                               "first_requests: 5, batch: 2}\n"
                             : "workload: {kind: generation, batch: 4, input_tokens: 300, "
                               "output_tokens: 6}\n");
}

/// What a run says, without the configuration that is echoed and the wall clock; the message where it is refused.
struct Answer {
  std::string text;
  bool refused = false;
};

Answer run(std::string_view base, const std::vector<std::string>& sets) {
  try {
    const auto loaded = experiment::load_scenario_text(scenario_text(base), "probe.yaml", CSDSIM_SOURCE_DIR, sets);
    scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
    for (const char* const echoed : {"scenario", "wall", "seed", "build", "name"}) result.document.erase(echoed);
    // Requests may fail, of flash that is worn or completions that are lost: that is a result.
    return {result.failure + result.document.dump(), false};
  } catch (const std::runtime_error& error) {
    return {error.what(), true};
  }
}

/// The names by which a probe may call a parameter: one a kind that has it.
std::vector<std::string> names_of(const config::ParamRow& row) {
  const std::string path = row.section.empty() ? row.name : row.section + "." + row.name;
  if (row.kinds.empty()) return {path};
  std::vector<std::string> names;
  for (const std::string& kind : row.kinds) names.push_back(path + " (" + kind + ")");
  return names;
}

const std::vector<Probe>& probes() {
  static const std::vector<Probe> all{
#include "parameter_probes.inc"
#include "parameter_probes_divided.inc"
#include "parameter_probes_flash.inc"
#include "parameter_probes_host.inc"
#include "parameter_probes_in_drive.inc"
  };
  return all;
}

}  // namespace

TEST_CASE("every parameter has a probe, and no probe is of a parameter that is gone") {
  std::set<std::string> parameters, probed;
  for (const Probe& probe : probes()) probed.emplace(probe.parameter);
  for (const config::ParamRow& row :
       config::ParamTable::of(scenario::Scenario(experiment::builtin_registries())).rows) {
    const std::vector<std::string> names = names_of(row);
    parameters.insert(names.begin(), names.end());
    INFO(names.front());
    CHECK(std::ranges::any_of(names, [&](const std::string& name) { return probed.contains(name); }));
  }
  for (const std::string& probe : probed) {
    INFO(probe);
    CHECK(parameters.contains(probe));
  }
}

TEST_CASE("moving a parameter moves a result") {
  std::map<std::pair<std::string_view, std::vector<std::string>>, Answer> before;
  for (const Probe& probe : probes()) {
    const auto [known, fresh] = before.try_emplace({probe.base, probe.with});
    if (fresh) known->second = run(probe.base, probe.with);
    const std::string_view path = probe.parameter.substr(0, probe.parameter.find(" ("));
    std::vector<std::string> sets = probe.with;
    sets.push_back(std::string(path) + "=" + std::string(probe.value));
    const Answer after = run(probe.base, sets);
    INFO(probe.parameter << " = " << probe.value << " on " << probe.base << ": " << (after.refused ? after.text : ""));
    INFO("before: " << (known->second.refused ? known->second.text : "ran"));
    CHECK_FALSE(known->second.refused);
    CHECK(after.refused == (probe.effect == Effect::refused));
    CHECK((after.text == known->second.text) == (probe.effect == Effect::same));
  }
}

TEST_CASE("how data travels does not change the tokens") {
  const auto outputs = [](const std::vector<std::string>& sets) {
    const auto loaded = experiment::load_scenario_text(scenario_text("carried"), "probe.yaml", CSDSIM_SOURCE_DIR, sets);
    const scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
    CHECK(result.failure.empty());
    return result.document["tokens"].dump() + result.document["stats"]["attention_digest"].dump();
  };
  const std::string plain = outputs({});
  CHECK(outputs({"platform.device.nvme.transfer=host"}) == plain);
  CHECK(outputs({"platform.device.nvme.granularity=head"}) == plain);
  CHECK(outputs({"platform.device.nvme.granularity=sequence", "platform.device.nvme.transfer=host"}) == plain);
  CHECK(outputs({"seed=2"}) != plain);
}
