#include <fmt/format.h>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/block_io/block_io.h"
#include "experiment/block_io/block_result.h"
#include "experiment/block_io/block_setup.h"
#include "experiment/kinds.h"
#include "experiment/requests/synthetic.h"
#include "experiment/requests/trace_requests.h"

namespace csdsim::experiment {

namespace {

Bytes share_of(Bytes capacity, Ratio share) {
  return Bytes{static_cast<std::uint64_t>(static_cast<double>(capacity.value) * share.value())};
}

Fill fill_of(scenario::Fill fill) {
  switch (fill) {
    case scenario::Fill::none:
      return Fill::none;
    case scenario::Fill::sequential:
      return Fill::sequential;
    case scenario::Fill::random:
      return Fill::random;
  }
  throw InternalError("unknown fill");
}

std::string_view origin_of(const BlockIoSetup& setup) {
  if (setup.fill == Fill::none) return "the drive was new before the first request";
  return setup.overwrites > 0 ? "the drive was filled and overwritten instantly before the first request"
                              : "the drive was filled instantly before the first request";
}

BlockIoProgress progress_of(const RunOptions& options) {
  return [&options](std::string_view what, std::uint64_t done, std::uint64_t total) {
    if (options.progress) options.progress(what, done, total);
  };
}

void refuse_operation_trace(const RunOptions& options, std::string_view kind) {
  if (options.trace) throw UserError(fmt::format("--trace: {} runs have no operations to trace", kind));
}

/// What both kinds of workload say in the same words.
template <class Workload>
BlockIoSetup common_setup(const scenario::Scenario& s, const Workload& work) {
  BlockIoSetup setup;
  setup.platform = platform_params(s);
  setup.warmup = work.warmup_requests;
  setup.queues = static_cast<std::uint16_t>(work.queues.value_or(s.platform.device.nvme.queues));
  setup.queue_by_stream = work.queue_assignment == scenario::QueueAssignment::stream;
  setup.fill = fill_of(work.fill());
  setup.overwrites = work.precondition.overwrites.value();
  setup.seed = s.seed;
  setup.lose_completion = work.lose_completion.value_or(0);
  return setup;
}

}  // namespace

workload::SyntheticConfig synthetic_config(const scenario::BlockIoWorkload& work, Bytes block, Bytes capacity,
                                           std::uint64_t seed) {
  workload::SyntheticConfig config;
  config.placement = work.placement() == scenario::Placement::sequential ? workload::Placement::sequential
                     : work.placement() == scenario::Placement::zipf     ? workload::Placement::zipf
                                                                         : workload::Placement::random;
  config.reads = work.reads().value();
  config.trims = work.trim_fraction.value();
  config.zipf_exponent = work.exponent();
  config.sizes = work.sizes();
  config.weights = work.request_weights;
  config.alignment = work.alignment;
  config.block = block;
  config.working_set = share_of(capacity, work.working_set);
  config.streams = work.streams;
  if (const auto* open = std::get_if<scenario::OpenArrival>(&work.arrival))
    config.arrivals = {.mean = open->interarrival,
                       .exponential = open->distribution == scenario::Interarrival::exponential};
  config.seed = seed;
  return config;
}

RunResult run_block_io_scenario(const scenario::Scenario& s, const RunOptions& options) {
  refuse_operation_trace(options, s.workload_kind());
  const WallClock clock;
  const auto& work = std::get<scenario::BlockIoWorkload>(s.workload);
  BlockIoSetup setup = common_setup(s, work);
  setup.source = [&](Bytes capacity) {
    return std::make_unique<workload::SyntheticRequests>(
        synthetic_config(work, s.platform.device.nvme.block_size, capacity, s.seed));
  };
  if (const auto* closed = std::get_if<scenario::ClosedArrival>(&work.arrival)) {
    setup.queue_depth = work.queue_depth;
    setup.think_time = closed->think_time;
  } else {
    setup.queue_depth.reset();
  }
  setup.streams = work.streams;
  if (work.duration)
    setup.duration = work.duration;
  else
    setup.requests = work.requests;
  return block_result(s, run_block_io(setup, progress_of(options)), clock, origin_of(setup));
}

RunResult run_trace_scenario(const scenario::Scenario& s, const RunOptions& options) {
  refuse_operation_trace(options, s.workload_kind());
  const WallClock clock;
  const auto& work = std::get<scenario::TraceWorkload>(s.workload);
  BlockIoSetup setup = common_setup(s, work);
  workload::TraceConfig trace;
  trace.format = work.format == scenario::TraceFormat::fio ? workload::TraceFormat::fio : workload::TraceFormat::msr;
  trace.file = work.file->path.string();
  trace.beyond = work.beyond == scenario::Beyond::wrap ? workload::Misfit::adapt : workload::Misfit::refuse;
  trace.unaligned = work.unaligned == scenario::Unaligned::extend ? workload::Misfit::adapt : workload::Misfit::refuse;
  trace.block = s.platform.device.nvme.block_size;
  if (const auto* fast = std::get_if<scenario::FastTiming>(&work.timing)) {
    setup.queue_depth = fast->queue_depth;
  } else {
    setup.queue_depth.reset();
    trace.speed = std::get<scenario::RecordedTiming>(work.timing).speed;
  }
  if (work.requests) setup.requests = *work.requests;
  workload::TraceCounts counts;
  setup.source = [&](Bytes capacity) {
    const std::uint64_t block = trace.block.value;
    trace.span = Bytes{share_of(capacity, work.working_set).value / block * block};
    if (trace.span.value == 0) throw UserError("workload.working_set: does not hold one logical block");
    return std::make_unique<workload::TraceRequests>(trace, counts);
  };
  RunResult result = block_result(s, run_block_io(setup, progress_of(options)), clock, origin_of(setup));
  result.document["breakdown"]["trace"] = {{"records", counts.records},
                                           {"wrapped", counts.wrapped},
                                           {"extended", counts.extended},
                                           {"backwards", counts.backwards}};
  return result;
}

}  // namespace csdsim::experiment
