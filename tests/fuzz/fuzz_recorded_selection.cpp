// Recordings of selected components and tokens.
#include "experiment/evaluation/recorded_selection.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_recorded_selection {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("recorded_selection", [](std::string_view input) {
  experiment::read_selection(fuzz::as_file(input, "selection.json"));
});

}  // namespace

}  // namespace fuzz_recorded_selection
