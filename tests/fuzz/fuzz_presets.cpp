// Files of presets.
#include "scenario/presets.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_presets {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("presets", [](std::string_view input) { scenario::Presets().add("input", input); });

}  // namespace

}  // namespace fuzz_presets
