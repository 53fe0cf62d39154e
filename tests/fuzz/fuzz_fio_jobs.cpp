// Job files of fio, which csdsim run takes.
#include "experiment/fio/fio_job.h"

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"

namespace fuzz_fio_jobs {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("fio_jobs", [](std::string_view input) {
  const experiment::FioScenario made = experiment::scenario_of_fio_jobs(input, "input.fio");
  fuzz::require(nlohmann::json::parse(made.text).contains("workload"), "a scenario without a workload");
});

}  // namespace

}  // namespace fuzz_fio_jobs
