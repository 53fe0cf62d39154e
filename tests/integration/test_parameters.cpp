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

#include "base/error.h"
#include "parameter_probes.h"

using namespace csdsim;
using namespace parameter_probes;

namespace {

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
