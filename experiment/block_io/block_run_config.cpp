#include "experiment/block_io/block_run_config.h"

namespace csdsim::experiment {

void describe(ParamVisitor& v, PreconditionConfig& c) {
  v.optional("fill", c.fill, "auto",
             "How the working set was written before the run; auto: sequentially for sequential patterns, in random "
             "order for all others.",
             assumed("the order in which the pattern itself would write"));
  v.param(
      "overwrites", c.overwrites, {Ratio{0, 1}, Ratio{100, 1}},
      "How often the working set was overwritten at random places after the fill; 3 to 5 times reach the steady state "
      "of random writes.",
      assumed("a drive that was written once"));
}

void describe(ParamVisitor& v, BlockRunConfig& c) {
  v.param("warmup_requests", c.warmup_requests, {0, 1'000'000'000'000},
          "Requests before the measured ones. requests_issued, requests_completed, requests_in_flight_peak and the "
          "figures of power cuts include them, and so does `stats`; other metrics do not.",
          assumed("the drive is filled instantly"));
  v.param("working_set", c.working_set, {Ratio::of(1, 1'000'000), Ratio{1, 1}},
          "Share of the exported capacity that requests may address.",
          assumed("block_io: as the comparison points with MQSim; trace: the whole drive"));
  v.optional("queues", c.queues, "auto", {1, 1024}, "I/O queues that are used; auto: all of the drive's.",
             assumed("all"));
  v.param("queue_assignment", c.queue_assignment, "Queue of a request. Each disk or file of a trace is a stream.",
          assumed("an even load"));
  v.section("precondition", c.precondition, "Content of the drive before the first request.");
  v.optional("lose_completion", c.lose_completion, "none", {1, 1'000'000'000'000},
             "Fault: the host loses the completion of this request, counted from 1; the run must fail.",
             assumed("nothing is lost"));
}

}  // namespace csdsim::experiment
