// Whole runs of traces: the traces of the project, and what the settings do to them.
#include <catch2/catch.hpp>

#include "base/config/diagnostics.h"
#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "tests/support/temporary_file.h"

namespace test_trace_runs {

using namespace csdsim;
using nlohmann::ordered_json;
using Sets = std::vector<std::string>;

namespace {

const std::filesystem::path kScenarios = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios";
const std::string kMsr = "trace_msr.yaml", kFio = "trace_fio.yaml";

scenario::RunResult run(const std::string& file, const Sets& sets = {}) {
  return experiment::run_scenario(experiment::load_scenario(kScenarios / file, sets).base.scenario);
}

/// Metrics and what happened to the records.
ordered_json figures(const std::string& file, const Sets& sets = {}) {
  const scenario::RunResult result = run(file, sets);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return {{"metrics", result.document["metrics"]}, {"breakdown", result.document["breakdown"]}};
}

std::string failure(const std::string& file, const Sets& sets) {
  try {
    run(file, sets);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a recorded MSR trace takes as long as it was recorded, and the half at twice the speed") {
  const ordered_json once = figures(kMsr), twice = figures(kMsr, {"workload.timing.speed=2"});
  CHECK(once["breakdown"]["trace"]["records"] == 600);
  CHECK(once["metrics"]["requests_completed"] == 600);
  CHECK(once["breakdown"]["requests"]["read"]["requests"] == 201);
  CHECK(once["breakdown"]["requests"]["write"]["requests"] == 399);
  const double seconds = once["metrics"]["simulated_s"];
  CHECK(seconds > 0.5);
  CHECK(seconds < 0.55);
  CHECK(twice["metrics"]["simulated_s"].get<double>() == Approx(seconds / 2).epsilon(0.01));
}

TEST_CASE("as fast as possible, a trace takes what the drive takes, deeper queues less") {
  const auto seconds = [](const std::string& depth) {
    return figures(kMsr, {"workload.timing={kind: fast, queue_depth: " + depth + "}"})["metrics"]["simulated_s"]
        .get<double>();
  };
  const double one = seconds("1"), many = seconds("16");
  CHECK(many < one / 3);
  CHECK(figures(kMsr, {"workload.timing={kind: fast, queue_depth: 7}"})["metrics"]["requests_in_flight_peak"] == 7);
}

TEST_CASE("an iolog brings flushes and TRIMs to the drive") {
  const ordered_json f = figures(kFio);
  CHECK(f["breakdown"]["requests"]["flush"]["requests"] == 64);
  CHECK(f["breakdown"]["requests"]["trim"]["requests"] == 5);
  CHECK(f["metrics"]["requests_completed"] == 395);
  // A flush waits for the buffered append before it.
  CHECK(f["metrics"]["flush_latency_p50_ns"].get<double>() > 600'000);
  const ordered_json v2 = figures(kFio, {"workload.file=traces/backup.v2.iolog"});
  CHECK(v2["metrics"]["requests_completed"] == 250);
  CHECK(v2["metrics"]["simulated_s"].get<double>() > 0.003);  // the last wait is for 30 ms, ten times as fast
}

TEST_CASE("every setting of a trace workload moves a figure") {
  struct Case {
    std::string file;
    Sets base;
    std::string change;
  };
  const Sets slow_host{"platform.host.io_overhead=100 us"};
  const Sets small{"workload.working_set=0.05"};
  for (const Case& c : std::vector<Case>{
           {kMsr, {}, "workload.timing.speed=3"},
           {kMsr, {}, "workload.timing={kind: fast}"},
           {kMsr, {"workload.timing={kind: fast, queue_depth: 8}"}, "workload.timing.queue_depth=9"},
           {kMsr, {}, "workload.requests=500"},
           {kMsr, {}, "workload.warmup_requests=100"},
           {kMsr, {}, "workload.working_set=0.05"},
           {kMsr, {}, "workload.streams=shared"},
           {kMsr, slow_host, "workload.queues=1"},
           {kMsr, {"platform.host.io_overhead=100 us", "workload.queues=2"}, "workload.queue_assignment=stream"},
           {kMsr, {}, "workload.precondition.fill=none"},
           {kFio, {}, "workload.file=traces/backup.v2.iolog"}}) {
    INFO(c.change);
    Sets changed = c.base;
    changed.push_back(c.change);
    CHECK(figures(c.file, c.base) != figures(c.file, changed));
  }
  CHECK(failure(kMsr, {"workload.format=fio"}).find("mail.msr.csv:1:1: error: expected 'fio version 2 iolog'") !=
        std::string::npos);
  CHECK(failure(kMsr, {"workload.unaligned=refuse"}).find("mail.msr.csv:1:") != std::string::npos);
  CHECK(failure(kMsr, {"workload.working_set=0.05", "workload.beyond=refuse"}).find("lie beyond the drive") !=
        std::string::npos);
  CHECK(figures(kMsr, small)["breakdown"]["trace"]["wrapped"] > 100);
}

TEST_CASE("what follows the last request of interest is not read") {
  const ordered_json f = figures(kMsr, {"workload.requests=1", "workload.unaligned=refuse", "workload.format=msr",
                                        "platform.device.nvme.block_size=512 B"});
  CHECK(f["breakdown"]["trace"]["records"] == 1);
  const test::TemporaryFile empty("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n");
  CHECK(failure(kMsr, {"workload.file=" + empty.path.string()}) ==
        empty.path.string() + ": error: the trace has no requests");
  CHECK(failure(kMsr, {"workload.warmup_requests=600"}).find("no request was measured") != std::string::npos);
}

TEST_CASE("a lost completion fails the replay of a trace") {
  for (const std::string timing : {"{kind: recorded}", "{kind: fast, queue_depth: 4}"}) {
    const scenario::RunResult result = run(kMsr, {"workload.timing=" + timing, "workload.lose_completion=600"});
    CHECK(result.failure == "600 requests were issued and 599 completed");
  }
}

TEST_CASE("scenarios of traces are checked before they run") {
  const auto refused = [](const Sets& sets, const std::string& text) {
    const std::string error = failure(kMsr, sets);
    INFO(error);
    CHECK(error.find(text) != std::string::npos);
  };
  refused({"workload.file=none"}, "workload.file: name the trace");
  refused({"workload.file=traces/none.csv"}, "none.csv");
  refused({"workload.timing={kind: fast, speed: 2}"}, "belongs to kind recorded, not to fast");
  refused({"workload.timing={kind: fast, queue_depth: 100000}"}, "do not fit into 4 queues");
  refused({"workload.queues=9"}, "9 of the 4 queues");
  refused({"platform.device.count=2"}, "a trace workload addresses one");
  refused({"workload.pattern=random_read"}, "belongs to kind block_io, not to trace");
  refused({"simulation.data=carried"}, "a trace workload moves no data");
}

}  // namespace test_trace_runs
