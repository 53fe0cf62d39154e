// Block traces of MSR Cambridge.
#include <optional>

#include "experiment/block_io/requests/trace_reader.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_msr_trace {

using namespace csdsim;

namespace {

using namespace experiment::workload;

const fuzz::Target kTarget("msr_trace", [](std::string_view input) {
  const auto reader = open_trace(TraceFormat::msr, fuzz::as_file(input, "trace.csv").string());
  while (const std::optional<TraceRecord> record = reader->next())
    fuzz::require(record->kind == RequestKind::flush || record->length.value > 0, "a request without bytes");
});

}  // namespace

}  // namespace fuzz_msr_trace
