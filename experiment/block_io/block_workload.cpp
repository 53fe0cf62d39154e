#include "experiment/block_io/block_workload.h"

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
  v.param("pattern", c.pattern, "What is read and written where, in a namespace of blocks that was filled before.",
          assumed("a busy file system"));
  v.param("request_size", c.request_size, {Bytes{512}, Bytes::gib(1)}, "Bytes of a request: whole logical blocks.",
          assumed("the usual first question"));
  v.param("queue_depth", c.queue_depth, {1, 1'048'576},
          "Requests in flight, on the last of the host's I/O queues, which the generation leaves free.",
          assumed("a few threads"));
  v.optional("read_fraction", c.read_fraction, "auto", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of reads of a mixed pattern; auto: half.", assumed("what the pattern says"));
  v.param("working_set", c.working_set, {Ratio::of(1, 1'000'000), Ratio{1, 1}},
          "Share of the block namespace that requests address.", assumed("as for a drive without a KV cache"));
  v.param("capacity_share", c.capacity_share, {Ratio::of(1, 1000), Ratio::of(999, 1000)},
          "Share of the erase blocks of each plane that the block namespace has; the KV cache has the rest.",
          assumed("half and half"));
}

void describe(ParamVisitor& v, ClosedArrival& c) {
  v.param("think_time", c.think_time, {SimTime{}, SimTime::milliseconds(100'000)},
          "From a completion to the request that follows it.", assumed("the drive is what is measured"));
}

void describe(ParamVisitor& v, OpenArrival& c) {
  v.param("interarrival", c.interarrival, {SimTime::nanoseconds(1), SimTime::milliseconds(100'000)},
          "Mean time between requests: 10 us are 100,000 requests a second.", assumed("a moderate load"));
  v.param("distribution", c.distribution, "How the times between requests are spread.",
          assumed("many independent users"));
}

void BlockIoWorkload::describe(ParamVisitor& v) {
  v.param("pattern", pattern, "What is read and written where.", assumed("the usual first question"));
  v.param("request_size", request_size, {Bytes{512}, Bytes::gib(1)}, "Bytes of a request: whole logical blocks.",
          assumed("the usual first question"));
  v.list("request_sizes", request_sizes, {0, 64}, "Sizes that are drawn from, in place of request_size.",
         assumed("one size"));
  v.list("request_weights", request_weights, {0, 64}, "How often each of request_sizes is drawn; none: equally.",
         assumed("one size"));
  v.optional("alignment", alignment, "auto", {Bytes{512}, Bytes::gib(1)},
             "Requests start at multiples of it: whole logical blocks; auto: a random request at multiples of its own "
             "size, a sequential one where the last ended.",
             assumed("as most file systems and benchmarks"));
  v.param("queue_depth", queue_depth, {1, 1'048'576}, "Requests in flight.", assumed("the usual first question"));
  v.param("requests", requests, {1, 1'000'000'000'000}, "Requests in all, without those of the warm-up.",
          assumed("a steady state"));
  v.optional("duration", duration, "none", {SimTime::microseconds(1), SimTime::milliseconds(1'000'000'000)},
             "Simulated time in which requests are submitted, after the warm-up, in place of a number of requests.",
             assumed("a number of requests is usual"));
  v.optional("read_fraction", read_fraction, "auto", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of reads of a mixed pattern; auto is what the pattern says, half for mixed ones.",
             assumed("what the pattern says"));
  v.param("trim_fraction", trim_fraction, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of requests that deallocate what they address; the rest is reads and writes.",
          assumed("most benchmarks have none"));
  v.optional("zipf_exponent", zipf_exponent, "auto", {Ratio::of(1, 100), Ratio{10, 1}},
             "Exponent of zipf patterns: the place of rank k is addressed k^-exponent times as often as the first.",
             assumed("auto: 0.99, as in YCSB (Cooper et al., SoCC 2010)"));
  v.param("streams", streams, {1, 4096},
          "Independent streams with equal parts of the working set and of the requests in flight.",
          assumed("one user"));
  v.choice("arrival", arrival, "When requests are submitted.", assumed("the usual first question"));
  experiment::describe(v, common);
}

void prune_attention(nlohmann::ordered_json& config) {
  for (const char* const unused :
       {"model", "system", "simulation.selection", "simulation.sampling", "platform.device.energy.mac"})
    scenario::erase_path(config, unused);
}

void BlockIoWorkload::prune(nlohmann::ordered_json& config, const scenario::Scenario&) const {
  if (open()) scenario::erase_path(config, "workload.queue_depth");
  if (duration) scenario::erase_path(config, "workload.requests");
  if (!request_sizes.empty()) scenario::erase_path(config, "workload.request_size");
  prune_attention(config);
}

}  // namespace csdsim::experiment
