// Traces of serving systems, a target for each format.
#include <cstdint>
#include <string>
#include <vector>

#include "host_runtime/traces/read_trace.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_serving_traces {

using namespace csdsim;

namespace {

/// `name`: FORMAT_trace.
fuzz::Target target_of(std::string_view name) {
  return {name, [format = std::string(name.substr(0, name.rfind('_')))](std::string_view input) {
            host::read_serving_trace(fuzz::as_file(input, "trace"),
                                     {.format = format, .tokenize = [](std::string_view text) {
                                        return std::vector<std::uint32_t>(text.size() / 4 + 1, 7);
                                      }});
          }};
}

const fuzz::Target kTargets[] = {target_of("agentic_trace"),  target_of("azure_trace"),   target_of("bailian_trace"),
                                 target_of("burstgpt_trace"), target_of("lengths_trace"), target_of("mooncake_trace"),
                                 target_of("sharegpt_trace"), target_of("weka_trace")};

}  // namespace

}  // namespace fuzz_serving_traces
