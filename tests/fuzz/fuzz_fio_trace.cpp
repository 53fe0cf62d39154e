// Block traces of fio, versions 2 and 3.
#include <optional>

#include "experiment/block_io/requests/trace_reader.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_fio_trace {

using namespace csdsim;

namespace {

using namespace experiment::workload;

const fuzz::Target kTarget("fio_trace", [](std::string_view input) {
  const auto reader = open_trace(TraceFormat::fio, fuzz::as_file(input, "trace.log").string());
  while (const std::optional<TraceRecord> record = reader->next())
    fuzz::require(record->kind == RequestKind::flush || record->length.value > 0, "a request without bytes");
});

}  // namespace

}  // namespace fuzz_fio_trace
