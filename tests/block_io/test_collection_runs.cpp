// The cost of collection for the writes of whole runs; the commands that a controller holds; held writes that are
// overwritten.
#include <catch2/catch.hpp>
#include <cstdio>

#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_collection_runs {

using namespace csdsim;
using nlohmann::ordered_json;
using Sets = std::vector<std::string>;

namespace {

constexpr const char* kDrive = R"(csdsim: 1
platform:
  device:
    flash: {channels: 2, dies_per_channel: 4, planes_per_die: 1, blocks_per_plane: 128, pages_per_block: 64, page_size: 4 KiB}
    link: {generation: 3, lanes: 4}
    ftl: {mapping: {kind: page}, over_provisioning: 0.2}
workload: {kind: block_io, pattern: random_write, working_set: 1, queue_depth: 64, requests: 12000,
           warmup_requests: 3000, precondition: {overwrites: 3}}
)";

ordered_json metrics(const Sets& sets) {
  const scenario::RunResult result =
      experiment::run_scenario(experiment::load_scenario_text(kDrive, "drive", ".", sets).base.scenario);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return result.document["metrics"];
}

Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

double number(const ordered_json& metrics, const char* name) { return metrics[name].get<double>(); }

/// Writes at 30 % of `capacity` per second.
Sets at_30_percent(double capacity) {
  return {"workload.arrival={kind: open, interarrival: " + std::to_string(static_cast<int>(1e9 / (0.3 * capacity))) +
          " ns}"};
}

}  // namespace

TEST_CASE("random writes at 30 % of the write capacity wait below 5 ms in 99 of 100 cases, with the defaults") {
  const Sets whole{"platform.device.ftl.gc.pace=blocks"};
  const ordered_json full = metrics({}), full_whole = metrics(whole);
  const Sets light = at_30_percent(number(full, "iops"));
  const ordered_json steps = metrics(light), blocks = metrics(with(light, whole));
  for (const auto& [name, m] :
       {std::pair{"full, steps", full}, {"full, blocks", full_whole}, {"30 %, steps", steps}, {"30 %, blocks", blocks}})
    std::printf("%s: %.0f IOPS, p50 %.3f ms, p99 %.3f ms, max %.3f ms, write amplification %.4f\n", name,
                number(m, "iops"), number(m, "latency_p50_ns") * 1e-6, number(m, "latency_p99_ns") * 1e-6,
                number(m, "latency_max_ns") * 1e-6, number(m, "write_amplification"));
  CHECK(number(steps, "latency_p99_ns") < 5e6);
  CHECK(number(blocks, "latency_p99_ns") > 20e6);
  CHECK(number(steps, "write_amplification") == Approx(number(blocks, "write_amplification")).epsilon(0.03));
  CHECK(number(full, "write_amplification") == Approx(number(full_whole, "write_amplification")).epsilon(0.03));
  CHECK(number(full, "iops") > 0.97 * number(full_whole, "iops"));
  // Nothing of it depends on the model of the flash.
  const Sets brief = with(light, {"workload.requests=3000"});
  CHECK(metrics(with(brief, {"platform.device.fidelity=at"})) == metrics(brief));
}

TEST_CASE("a controller that holds n commands serves a deep queue as one of depth n, and n more never bind") {
  const Sets reads{"workload.pattern=random_read", "workload.warmup_requests=500", "workload.requests=6000",
                   "workload.precondition.overwrites=0"};
  const auto iops = [&](const Sets& more) { return number(metrics(with(reads, more)), "iops"); };
  const double deep = iops({});
  for (const int slots : {4, 16}) {
    const std::string n = std::to_string(slots);
    const double held = iops({"platform.device.nvme.command_slots=" + n});
    CAPTURE(slots, deep, held);
    // The next command is fetched when one has left: a round trip over the link more for each.
    CHECK(held == Approx(iops({"workload.queue_depth=" + n})).epsilon(0.03));
    CHECK(held < 0.9 * deep);
  }
  CHECK(metrics(with(reads, {"platform.device.nvme.command_slots=64"})) == metrics(reads));
  CHECK(iops({"platform.device.nvme.command_slots=63"}) != deep);
}

TEST_CASE("writes to pages that the buffer holds take no program") {
  // Random writes to about 40 pages, of which 32 are held together, so slowly that their programs end meanwhile.
  const Sets hot{"workload.working_set=0.0008", "workload.requests=4000", "workload.precondition.overwrites=0",
                 "workload.arrival={kind: open, interarrival: 200 us}"};
  const Sets held_writes =
      with(hot, {"platform.device.write_buffer={capacity: 1 MiB, flush: {kind: threshold, fill: 1/8}}"});
  const ordered_json held = metrics(held_writes);
  const ordered_json immediate = metrics(with(hot, {"platform.device.write_buffer.capacity=1 MiB"}));
  CHECK(number(held, "page_ops") < 0.9 * number(immediate, "page_ops"));
  CHECK(number(immediate, "page_ops") >= 3990);
  CHECK(metrics(with(held_writes, {"platform.device.fidelity=at"})) == held);
}

}  // namespace test_collection_runs
