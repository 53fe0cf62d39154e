// config.json of checkpoints.
#include <string>
#include <vector>

#include "host_runtime/checkpoint/config_json.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_config_json {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("config_json", [](std::string_view input) {
  std::vector<std::string> notes;
  host::read_config(fuzz::as_file(input, "config.json"), &notes);
});

}  // namespace

}  // namespace fuzz_config_json
