// Recordings of active neurons.
#include "experiment/evaluation/recorded_neurons.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_recorded_neurons {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("recorded_neurons", [](std::string_view input) {
  experiment::read_neurons(fuzz::as_file(input, "neurons.json"));
});

}  // namespace

}  // namespace fuzz_recorded_neurons
