#include "experiment/block_io/block_run_config.h"

namespace csdsim::experiment {

void describe(ParamVisitor& v, PreconditionConfig& c) {
  v.optional("fill", c.fill, "auto",
             "How the working set was written before the run; auto: sequentially for sequential patterns, in random "
             "order for all others.",
             assumed("as the pattern would have left it"));
  v.param("overwrites", c.overwrites, {Ratio{0, 1}, Ratio{100, 1}},
          "How often the working set was overwritten after that, at random places; 3 to 5 reach the steady state of "
          "random writes.",
          assumed("a drive that was written once"));
}

void describe(ParamVisitor& v, BlockRunConfig& c) {
  v.param("warmup_requests", c.warmup_requests, {0, 1'000'000'000'000},
          "Requests before those that are measured: they are in no figure.", assumed("the drive is filled instantly"));
  v.param("working_set", c.working_set, {Ratio::of(1, 1'000'000), Ratio{1, 1}},
          "Share of the usable capacity that requests may address.",
          assumed("block_io: as the comparison points with MQSim; trace: the whole drive"));
  v.optional("queues", c.queues, "auto", {1, 1024}, "I/O queues that are used; auto: all that the drive has.",
             assumed("all"));
  v.param("queue_assignment", c.queue_assignment, "Which queue a request takes; a disk or file of a trace is a stream.",
          assumed("an even load"));
  v.section("precondition", c.precondition, "What the drive holds before the first request.");
  v.optional("lose_completion", c.lose_completion, "none", {1, 1'000'000'000'000},
             "Fault: the host loses the completion of this request, counted from 1; the run must fail.",
             assumed("nothing is lost"));
}

}  // namespace csdsim::experiment
