// Traces of serving systems in the format lengths.
#include <cstdint>
#include <vector>

#include "host_runtime/traces/read_trace.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_lengths_trace {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("lengths_trace", [](std::string_view input) {
  host::read_serving_trace(fuzz::as_file(input, "trace"), {.format = "csv", .tokenize = [](std::string_view text) {
                                                             return std::vector<std::uint32_t>(text.size() / 4 + 1, 7);
                                                           }});
});

}  // namespace

}  // namespace fuzz_lengths_trace
