// Definitions of papers for csdsim reproduce.
#include <string>

#include "reproduction/papers.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_reproduction {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("reproduction", [](std::string_view input) {
  reproduction::read_definition(std::string(input), "input", "input");
});

}  // namespace

}  // namespace fuzz_reproduction
