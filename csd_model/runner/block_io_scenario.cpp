#include <fmt/format.h>

#include "base/error.h"
#include "csd_model/runner/assemble.h"
#include "csd_model/runner/block_io.h"
#include "csd_model/runner/block_result.h"
#include "csd_model/runner/kinds.h"
#include "csd_model/workload/synthetic.h"

namespace csd_model {

using namespace csdsim;

namespace {

workload::SyntheticConfig synthetic_config(const scenario::Scenario& s, Bytes capacity) {
  const auto& work = std::get<scenario::BlockIoWorkload>(s.workload);
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
  config.block = s.platform.device.nvme.block_size;
  config.working_set =
      Bytes{static_cast<std::uint64_t>(static_cast<double>(capacity.value) * work.working_set.value())};
  config.streams = work.streams;
  if (const auto* open = std::get_if<scenario::OpenArrival>(&work.arrival))
    config.arrivals = {.mean = open->interarrival,
                       .exponential = open->distribution == scenario::Interarrival::exponential};
  config.seed = s.seed;
  return config;
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

std::string_view origin_of(Fill fill) {
  return fill == Fill::none ? "the drive was new before the first request"
                            : "the drive was filled instantly before the first request";
}

BlockIoProgress progress_of(const RunOptions& options) {
  return [&options](std::string_view what, std::uint64_t done, std::uint64_t total) {
    if (options.progress) options.progress(what, done, total);
  };
}

}  // namespace

RunResult run_block_io_scenario(const scenario::Scenario& s, const RunOptions& options) {
  if (options.trace) throw UserError("--trace: block_io runs have no operations to trace");
  const WallClock clock;
  const auto& work = std::get<scenario::BlockIoWorkload>(s.workload);
  BlockIoSetup setup;
  setup.platform = platform_config(s);
  setup.source = [&s](Bytes capacity) {
    return std::make_unique<workload::SyntheticRequests>(synthetic_config(s, capacity));
  };
  if (const auto* closed = std::get_if<scenario::ClosedArrival>(&work.arrival)) {
    setup.queue_depth = work.queue_depth;
    setup.think_time = closed->think_time;
  } else {
    setup.queue_depth.reset();
  }
  setup.streams = work.streams;
  setup.warmup = work.warmup_requests;
  if (work.duration)
    setup.duration = work.duration;
  else
    setup.requests = work.requests;
  setup.queues = static_cast<std::uint16_t>(work.queues.value_or(s.platform.device.nvme.queues));
  setup.queue_by_stream = work.queue_assignment == scenario::QueueAssignment::stream;
  setup.fill = fill_of(work.fill());
  setup.seed = s.seed;
  setup.lose_completion = work.lose_completion.value_or(0);
  return block_result(s, run_block_io(setup, progress_of(options)), clock, origin_of(setup.fill));
}

}  // namespace csd_model
