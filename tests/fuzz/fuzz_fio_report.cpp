// The JSON output of fio, which csdsim calibrate reads.
#include "experiment/calibration/fio_report.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_fio_report {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("fio_report",
                           [](std::string_view input) { experiment::read_fio(fuzz::as_file(input, "fio.json")); });

}  // namespace

}  // namespace fuzz_fio_report
