// Recordings of important tokens.
#include "experiment/evaluation/recorded_tokens.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_recorded_tokens {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("recorded_tokens", [](std::string_view input) {
  experiment::read_tokens(fuzz::as_file(input, "tokens.json"));
});

}  // namespace

}  // namespace fuzz_recorded_tokens
