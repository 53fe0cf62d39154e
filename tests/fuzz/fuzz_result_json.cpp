// result.json of runs, as compare and report read it.
#include <nlohmann/json.hpp>

#include "report/result_document.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_result_json {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("result_json", [](std::string_view input) {
  report::check_result(report::parse_json(input, "input"), "input");
});

}  // namespace

}  // namespace fuzz_result_json
