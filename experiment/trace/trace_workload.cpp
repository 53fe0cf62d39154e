#include "experiment/trace/trace_workload.h"

#include "experiment/block_io/check_block_workload.h"

namespace csdsim::experiment {

void describe(ParamVisitor& v, RecordedTiming& c) {
  v.param("speed", c.speed, {Ratio::of(1, 1'000'000), Ratio{1'000'000, 1}},
          "Replay speed relative to the recording: 2 halves the times between requests.", assumed("as recorded"));
}

void describe(ParamVisitor& v, FastTiming& c) {
  v.param("queue_depth", c.queue_depth, {1, 1'048'576}, "Requests in flight.", assumed("as for block_io"));
}

void TraceWorkload::describe(ParamVisitor& v) {
  v.optional("file", file, "none", "The trace file; required.", assumed("there is no usual trace"));
  v.param("format", format, "Format of the file.", assumed("the most used public block traces"));
  v.choice("timing", timing, "When requests are submitted.", assumed("the purpose of a trace"));
  v.param("beyond", beyond, "Treatment of requests beyond the working set.", assumed("traces are from other drives"));
  v.param("unaligned", unaligned, "Treatment of requests that are not whole logical blocks.",
          assumed("most traces count in 512-byte sectors"));
  v.optional("requests", requests, "all", {1, 1'000'000'000'000},
             "Number of measured requests; the rest of the file is not read.", assumed("the whole trace"));
  v.param("warmup_requests", warmup_requests, {0, 1'000'000'000'000},
          "First requests of the file; they are not part of the results.", assumed("the drive is filled instantly"));
  v.param("working_set", working_set, {Ratio::of(1, 1'000'000), Ratio{1, 1}},
          "Share of the usable capacity that requests may address.", assumed("the whole drive"));
  v.optional("queues", queues, "auto", {1, 1024}, "Number of I/O queues used; auto: all queues of the drive.",
             assumed("all"));
  v.param("queue_assignment", queue_assignment, "How requests are assigned to queues; each disk or file is one stream.",
          assumed("an even load"));
  v.section("precondition", precondition, "The content of the drive before the first request.");
  v.optional("lose_completion", lose_completion, "none", {1, 1'000'000'000'000},
             "Fault: the host loses the completion of this request, counted from 1; the run must fail.",
             assumed("nothing is lost"));
}

void TraceWorkload::check(scenario::Checker& c) {
  check_block_drive(c, kKind, queues);
  check_precondition(c, precondition);
  c.require(file.has_value(), {"workload.file", "workload.kind"}, "workload.file: name the trace");
  if (file) c.resolve(*file, "workload.file", "trace");
  if (const auto* fast = std::get_if<FastTiming>(&timing))
    check_queue_depth(c, fast->queue_depth, "workload.timing.queue_depth", queues);
}

void TraceWorkload::prune(nlohmann::ordered_json& config, const scenario::Scenario&) const { prune_attention(config); }

}  // namespace csdsim::experiment
