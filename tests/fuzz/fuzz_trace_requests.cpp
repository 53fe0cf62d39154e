// Block traces, fitted to a drive.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "experiment/block_io/requests/trace_requests.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_trace_requests {

using namespace csdsim;

namespace {

using namespace experiment::workload;

/// The first byte says how requests are fitted.
const fuzz::Target kTarget("trace_requests", [](std::string_view input) {
  const unsigned how = input.empty() ? 0 : static_cast<unsigned char>(input.front());
  TraceConfig config;
  config.format = (how & 1) != 0 ? TraceFormat::fio : TraceFormat::msr;
  config.beyond = (how & 2) != 0 ? Misfit::refuse : Misfit::adapt;
  config.unaligned = (how & 4) != 0 ? Misfit::refuse : Misfit::adapt;
  config.separate = (how & 8) == 0;
  config.block = Bytes{4096};
  config.span = Bytes{std::uint64_t{1} << 20};
  config.file = fuzz::as_file(input.substr(std::min<std::size_t>(1, input.size())), "trace.txt").string();
  TraceCounts counts;
  TraceRequests requests(config, counts);
  while (const std::optional<BlockRequest> request = requests.next(0))
    fuzz::require(request->offset.value + request->length.value <= config.span.value, "a request beyond the drive");
});

}  // namespace

}  // namespace fuzz_trace_requests
