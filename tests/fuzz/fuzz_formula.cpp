// Conditions of sweeps, formulas of papers.
#include <string>

#include "base/formula.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_formula {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("formula", [](std::string_view input) {
  const Formula formula{std::string(input)};
  formula.evaluate([](const std::string& name) { return static_cast<double>(name.size()); });
});

}  // namespace

}  // namespace fuzz_formula
