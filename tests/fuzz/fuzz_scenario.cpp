// Scenarios with their checks, and sweeps.
#include "experiment/experiments.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_scenario {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("scenario", [](std::string_view input) {
  // Other files are looked for, libraries are loaded: not those that an input happens to name.
  if (input.find("plugins") != input.npos || input.find("/dev") != input.npos) return;
  experiment::load_scenario_text(input, "input", "/nonexistent");
});

}  // namespace

}  // namespace fuzz_scenario
