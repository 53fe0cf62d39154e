#include "experiment/block_io/block_workload.h"
#include "experiment/block_io/block_result.h"

#include <fmt/format.h>

#include <algorithm>

namespace csdsim::experiment {

Ratio BlockIoWorkload::reads() const {
  switch (pattern) {
    case Pattern::random_read:
    case Pattern::zipf_read:
    case Pattern::sequential_read:
      return {1, 1};
    case Pattern::random_write:
    case Pattern::zipf_write:
    case Pattern::sequential_write:
      return {0, 1};
    case Pattern::random_mixed:
    case Pattern::zipf_mixed:
    case Pattern::sequential_mixed:
      break;
  }
  return read_fraction.value_or(Ratio::of(1, 2));
}

bool BlockIoWorkload::mixed() const {
  return pattern == Pattern::random_mixed || pattern == Pattern::zipf_mixed || pattern == Pattern::sequential_mixed;
}

workload::Placement BlockIoWorkload::placement() const {
  if (pattern >= Pattern::sequential_read) return workload::Placement::sequential;
  return pattern >= Pattern::zipf_read ? workload::Placement::zipf : workload::Placement::random;
}

double BlockIoWorkload::exponent() const { return zipf_exponent.value_or(Ratio::of(99, 100)).value(); }

Fill BlockIoWorkload::fill() const {
  if (flows && !common.precondition.fill) {
    const auto sequential = [](Pattern p) { return p >= Pattern::sequential_read; };
    return std::ranges::all_of(flows->patterns, sequential) ? Fill::sequential : Fill::random;
  }
  return common.precondition.fill.value_or(placement() == workload::Placement::sequential ? Fill::sequential
                                                                                          : Fill::random);
}

std::vector<Bytes> BlockIoWorkload::sizes() const {
  return request_sizes.empty() ? std::vector{request_size} : request_sizes;
}

BlockIoWorkload BackgroundWorkload::block_io() const {
  BlockIoWorkload work;
  work.pattern = pattern;
  work.request_size = request_size;
  work.queue_depth = queue_depth;
  work.read_fraction = read_fraction;
  work.common.working_set = working_set;
  return work;
}

void describe(ParamVisitor& v, BackgroundWorkload& c) {
  v.param("pattern", c.pattern, "Access pattern on a block namespace that was filled before the run.",
          assumed("a busy file system"));
  v.param("request_size", c.request_size, {Bytes{512}, Bytes::gib(1)}, "Bytes of a request: whole logical blocks.",
          assumed("a common first benchmark"));
  v.param("queue_depth", c.queue_depth, {1, 1'048'576},
          "Requests in flight, on the last I/O queue of the host, which the generation does not use.",
          assumed("a few threads"));
  v.optional("read_fraction", c.read_fraction, "auto", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of reads of a mixed pattern; auto: half.", assumed("what the pattern says"));
  v.param("working_set", c.working_set, {Ratio::of(1, 1'000'000), Ratio{1, 1}},
          "Share of the block namespace that requests address.", assumed("as for a drive without a KV cache"));
  v.param("capacity_share", c.capacity_share, {Ratio::of(1, 1000), Ratio::of(999, 1000)},
          "Share of the erase blocks of each plane for the block namespace; the KV cache has the rest.",
          assumed("half and half"));
}

void describe(ParamVisitor& v, ClosedArrival& c) {
  v.param("think_time", c.think_time, {SimTime{}, SimTime::milliseconds(100'000)},
          "Time from a completion to the next request.", assumed("the drive alone is measured"));
}

void describe(ParamVisitor& v, OpenArrival& c) {
  v.param("interarrival", c.interarrival, {SimTime::nanoseconds(1), SimTime::milliseconds(100'000)},
          "Mean time between requests: 10 us are 100,000 requests per second.", assumed("a moderate load"));
  v.param("distribution", c.distribution, "Distribution of the times between requests.",
          assumed("many independent users"));
}

void BlockIoWorkload::describe(ParamVisitor& v) {
  v.param("pattern", pattern, "Access pattern.", assumed("a common first benchmark"));
  v.param("request_size", request_size, {Bytes{512}, Bytes::gib(1)}, "Bytes of a request: whole logical blocks.",
          assumed("a common first benchmark"));
  v.list("request_sizes", request_sizes, {0, 64}, "Request sizes to draw from, instead of request_size.",
         assumed("one size"));
  v.list("request_weights", request_weights, {0, 64}, "Relative frequencies of request_sizes; none: all equal.",
         assumed("one size"));
  v.optional("alignment", alignment, "auto", {Bytes{512}, Bytes::gib(1)},
             "Requests start at multiples of this; whole logical blocks. auto: random requests start at multiples of "
             "their size, sequential requests where the last one ended.",
             assumed("as most file systems and benchmarks"));
  v.param("queue_depth", queue_depth, {1, 1'048'576}, "Requests in flight.", assumed("a common first benchmark"));
  v.param("requests", requests, {1, 1'000'000'000'000}, "Number of measured requests, after the warm-up.",
          assumed("a steady state"));
  v.optional("duration", duration, "none", {SimTime::microseconds(1), SimTime::milliseconds(1'000'000'000)},
             "Simulated time in which requests are submitted, after the warm-up; replaces the number of requests.",
             assumed("a number of requests is usual"));
  v.optional("read_fraction", read_fraction, "auto", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of reads of a mixed pattern; auto: half. Other patterns define their share.",
             assumed("what the pattern says"));
  v.param("trim_fraction", trim_fraction, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of TRIM requests; the rest are reads and writes.", assumed("most benchmarks have none"));
  v.optional(
      "zipf_exponent", zipf_exponent, "auto", {Ratio::of(1, 100), Ratio{10, 1}},
      "Exponent of zipf patterns: the offset of rank k is accessed k^-exponent times as often as that of rank 1.",
      assumed("auto: 0.99, as in YCSB (Cooper et al., SoCC 2010)"));
  v.param("streams", streams, {1, 4096},
          "Independent streams with equal parts of the working set and of the requests in flight.",
          assumed("one user"));
  v.optional_section("flows", flows, "none", "Several flows at a time, in place of pattern: each in its own queue.",
                     assumed("one flow"));
  v.choice("arrival", arrival, "When requests are submitted.", assumed("the usual first question"));
  experiment::describe(v, common);
}

void prune_attention(nlohmann::ordered_json& config) {
  for (const char* const unused :
       {"model", "system", "simulation.selection", "simulation.sampling", "platform.device.energy.mac",
        "platform.gpu.count", "platform.gpu.link.peer_to_peer", "platform.root_complex", "platform.switch"})
    scenario::erase_path(config, unused);
}

void BlockIoWorkload::prune(nlohmann::ordered_json& config, const scenario::Scenario&) const {
  if (open()) scenario::erase_path(config, "workload.queue_depth");
  if (duration) scenario::erase_path(config, "workload.requests");
  if (!request_sizes.empty() || (flows && !flows->request_sizes.empty()))
    scenario::erase_path(config, "workload.request_size");
  if (flows) {
    if (!flows->queue_depths.empty()) scenario::erase_path(config, "workload.queue_depth");
    if (!flows->interarrivals.empty()) scenario::erase_path(config, "workload.arrival.interarrival");
    for (const char* const unused : {"pattern", "request_sizes", "request_weights", "read_fraction", "trim_fraction",
                                     "streams", "queues", "queue_assignment"})
      scenario::erase_path(config, fmt::format("workload.{}", unused));
  }
  prune_attention(config);
}

std::vector<MetricInfo> BlockIoWorkload::metrics(const scenario::Registries&) const { return block_metrics(); }

}  // namespace csdsim::experiment
