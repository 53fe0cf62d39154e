#include <fmt/format.h>

#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "experiment/assemble.h"
#include "experiment/block_io/block_io.h"
#include "experiment/block_io/block_result.h"
#include "experiment/block_io/common_setup.h"
#include "experiment/block_io/requests/flow_requests.h"
#include "report/run_trace.h"

namespace csdsim::experiment {

std::string_view fill_statement(const BlockIoSetup& setup) {
  if (setup.fill == Fill::none) return "the drive was new before the first request";
  return setup.overwrites > 0 ? "the drive was filled and overwritten instantly before the first request"
                              : "the drive was filled instantly before the first request";
}

BlockIoProgress progress_of(const scenario::RunOptions& options) {
  return [&options](std::string_view what, std::uint64_t done, std::uint64_t total) {
    if (options.progress) options.progress(what, done, total);
  };
}

BlockIoOutcome run_traced(const BlockIoSetup& setup, const scenario::RunOptions& options) {
  if (!options.trace) return run_block_io(setup, progress_of(options));
  report::RunTrace trace(*options.trace, options.trace_limit);
  BlockIoOutcome out = run_block_io(setup, progress_of(options), &trace);
  trace.close(options.notice);
  return out;
}

BlockIoSetup common_setup(const scenario::Scenario& s, const BlockRunConfig& config, Fill fill) {
  BlockIoSetup setup;
  setup.platform = platform_params(s);
  setup.warmup = config.warmup_requests;
  setup.queues = static_cast<std::uint16_t>(config.queues.value_or(s.platform.device.nvme.queues));
  setup.queue_by_stream = config.queue_assignment == QueueAssignment::stream;
  setup.fill = fill;
  setup.overwrites = config.precondition.overwrites.value();
  setup.seed = s.seed;
  setup.lose_completion = config.lose_completion.value_or(0);
  return setup;
}

workload::SyntheticConfig synthetic_config(const BlockIoWorkload& work, Bytes block, Bytes capacity,
                                           std::uint64_t seed) {
  workload::SyntheticConfig config;
  config.placement = work.placement();
  config.reads = work.reads().value();
  config.trims = work.trim_fraction.value();
  config.zipf_exponent = work.exponent();
  config.sizes = work.sizes();
  config.weights = work.request_weights;
  config.alignment = work.alignment;
  config.block = block;
  config.working_set = share_of(capacity, work.common.working_set);
  config.streams = work.streams;
  if (const auto* open = std::get_if<OpenArrival>(&work.arrival))
    config.arrivals = {.mean = open->interarrival, .exponential = open->distribution == Interarrival::exponential};
  config.seed = seed;
  return config;
}

namespace {

std::unique_ptr<workload::RequestSource> flow_requests(const BlockIoWorkload& work, Bytes block, Bytes capacity,
                                                       std::uint64_t seed) {
  std::vector<workload::FlowRequests::Flow> flows;
  const Bytes set = share_of(capacity, work.common.working_set);
  for (const BlockIoWorkload& flow : workloads_of_flows(work)) {
    const std::size_t i = flows.size();
    workload::SyntheticConfig config = synthetic_config(flow, block, capacity, counter_random(seed, i));
    config.working_set = part_of_flow(*work.flows, i, set);
    flows.push_back(
        {.config = config, .grain = Bytes{std::lcm(flow.request_size.value, flow.alignment.value_or(block).value)}});
    if (!work.flows->placements.empty()) flows.back().placement = static_cast<std::uint16_t>(work.flows->placements[i]);
  }
  return std::make_unique<workload::FlowRequests>(flows);
}

}  // namespace

BlockIoSetup BlockIoWorkload::setup(const scenario::Scenario& s) const {
  BlockIoSetup setup = common_setup(s, common, fill());
  setup.source = [this, &s](Bytes capacity) -> std::unique_ptr<workload::RequestSource> {
    if (flows) return flow_requests(*this, s.platform.device.nvme.block_size, capacity, s.seed);
    return std::make_unique<workload::SyntheticRequests>(
        synthetic_config(*this, s.platform.device.nvme.block_size, capacity, s.seed));
  };
  if (const auto* closed = std::get_if<ClosedArrival>(&arrival)) {
    setup.queue_depth = queue_depth;
    setup.think_time = closed->think_time;
  } else {
    setup.queue_depth.reset();
  }
  setup.streams = streams;
  if (flows) {
    setup.flows = flows->count();
    setup.queues = static_cast<std::uint16_t>(setup.flows);
    if (!open()) {
      for (const BlockIoWorkload& flow : workloads_of_flows(*this)) setup.flow_depths.push_back(flow.queue_depth);
      setup.queue_depth = std::accumulate(setup.flow_depths.begin(), setup.flow_depths.end(), 0U);
    }
    setup.queue_by_stream = true;
  }
  if (duration)
    setup.duration = duration;
  else
    setup.requests = requests;
  return setup;
}

scenario::RunResult BlockIoWorkload::run(const scenario::Scenario& s, const scenario::RunOptions& options) const {
  const WallClock clock;
  BlockIoSetup setup = this->setup(s);
  setup.platform.waveforms = options.waveforms;
  return block_result(s, run_traced(setup, options), clock, fill_statement(setup));
}

}  // namespace csdsim::experiment
