// results.sqlite of sweeps, as compare, report and merge read it.
#include "launch/sweep_store.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_result_store {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("result_store", [](std::string_view input) {
  launch::stored_sweep(fuzz::as_file(input, "results.sqlite").parent_path());
});

}  // namespace

}  // namespace fuzz_result_store
