// Headers of plugins, before anything of them is loaded.
#include <string>

#include "base/plugin.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_library {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("library", [](std::string_view input) { why_no_library(std::string(input)); });

}  // namespace

}  // namespace fuzz_library
