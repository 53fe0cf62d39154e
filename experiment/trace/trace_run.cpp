#include <fmt/format.h>

#include "base/error.h"
#include "experiment/block_io/block_result.h"
#include "experiment/block_io/common_setup.h"
#include "experiment/trace/trace_workload.h"

namespace csdsim::experiment {

scenario::RunResult TraceWorkload::run(const scenario::Scenario& s, const scenario::RunOptions& options) const {
  const WallClock clock;
  const TraceWorkload& work = *this;
  BlockIoSetup setup = common_setup(s, work.common, work.fill());
  setup.platform.waveforms = options.waveforms;
  workload::TraceConfig trace;
  trace.format = work.format;
  trace.file = work.file->path.string();
  trace.beyond = work.beyond == Beyond::wrap ? workload::Misfit::adapt : workload::Misfit::refuse;
  trace.unaligned = work.unaligned == Unaligned::extend ? workload::Misfit::adapt : workload::Misfit::refuse;
  trace.separate = work.streams == Streams::separate;
  trace.placement = s.platform.device.nvme.fdp && s.platform.device.nvme.fdp->enabled;
  trace.block = s.platform.device.nvme.block_size;
  if (const auto* fast = std::get_if<FastTiming>(&work.timing)) {
    setup.queue_depth = fast->queue_depth;
  } else {
    setup.queue_depth.reset();
    setup.measure_from_start = true;  // a trace may begin with a pause
    trace.speed = std::get<RecordedTiming>(work.timing).speed;
  }
  if (work.requests) setup.requests = *work.requests;
  workload::TraceCounts counts;
  setup.source = [&](Bytes capacity) {
    const std::uint64_t block = trace.block.value;
    trace.span = Bytes{share_of(capacity, work.common.working_set).value / block * block};
    if (trace.span.value == 0) throw UserError("workload.working_set: does not hold one logical block");
    return std::make_unique<workload::TraceRequests>(trace, counts);
  };
  const BlockIoOutcome outcome = run_traced(setup, options);
  if (counts.records == 0) throw UserError(fmt::format("{}: error: the trace has no requests", trace.file));
  scenario::RunResult result = block_result(s, outcome, clock, fill_statement(setup));
  result.document["breakdown"]["trace"] = {{"records", counts.records},         {"wrapped", counts.wrapped},
                                           {"extended", counts.extended},       {"rounded_trims", counts.rounded_trims},
                                           {"empty_trims", counts.empty_trims}, {"backwards", counts.backwards}};
  if (!counts.torn_note.empty()) result.meaning += "\n" + counts.torn_note;
  return result;
}

}  // namespace csdsim::experiment
