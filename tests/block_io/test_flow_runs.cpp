// Several flows of block commands at a time: what each gets of a drive follows from its depth, size and class.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_flow_runs {

using namespace csdsim;
using nlohmann::ordered_json;

namespace {

// The firmware takes 100,000 commands a second; flash and link could do more.
constexpr const char* kDrive = R"(csdsim: 1
platform:
  device:
    flash: {channels: 4, dies_per_channel: 8, planes_per_die: 2, blocks_per_plane: 32, pages_per_block: 32, page_size: 16 KiB}
    nvme: {queues: 2, firmware_time: 10 us}
    ftl: {mapping: {kind: page}}
workload: {kind: block_io, requests: 20000, warmup_requests: 2000, flows: {patterns: [random_read, random_read]}}
)";

ordered_json metrics(const std::vector<std::string>& sets) {
  const scenario::RunResult result =
      experiment::run_scenario(experiment::load_scenario_text(kDrive, "drive", ".", sets).base.scenario);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return result.document["metrics"];
}

double ratio(const ordered_json& m, const std::string& figure) {
  return m["flow1_" + figure].get<double>() / m["flow2_" + figure].get<double>();
}

}  // namespace

TEST_CASE("flows share what binds by their depths, and what they move by their sizes") {
  const ordered_json even = metrics({});
  CHECK(even["iops"].get<double>() == Approx(100'000).epsilon(0.01));
  CHECK(ratio(even, "iops") == Approx(1).epsilon(0.01));
  const ordered_json depths = metrics({"workload.flows.queue_depths=[48, 16]"});
  CHECK(ratio(depths, "iops") == Approx(3).epsilon(0.01));
  CHECK(ratio(depths, "latency_mean_ns") == Approx(1).epsilon(0.02));
  CHECK(depths["requests_in_flight_peak"] == 64);
  const ordered_json sizes = metrics({"workload.flows.request_sizes=[16 KiB, 4 KiB]"});
  CHECK(ratio(sizes, "bandwidth_bytes_per_s") == Approx(4 * ratio(sizes, "iops")));
  for (const ordered_json& m : {even, depths, sizes}) {
    const double sum = m["flow1_iops"].get<double>() + m["flow2_iops"].get<double>();
    CHECK(sum == Approx(m["iops"].get<double>()));
  }
}

TEST_CASE("a flow writes, reads or mixes as its own pattern says") {
  const ordered_json m =
      metrics({"workload.flows={patterns: [sequential_write, random_mixed], read_fractions: [0, 0.25]}"});
  const double writes = m["flow1_iops"].get<double>() + 0.75 * m["flow2_iops"].get<double>();
  const scenario::RunResult result = experiment::run_scenario(
      experiment::load_scenario_text(kDrive, "drive", ".",
                                     {"workload.flows={patterns: [sequential_write, random_mixed], read_fractions: [0, "
                                      "0.25]}"})
          .base.scenario);
  const double measured = result.document["breakdown"]["requests"]["write"]["requests"].get<double>();
  CHECK(measured / m["simulated_s"].get<double>() == Approx(writes).epsilon(0.02));
}

TEST_CASE("flows of an open loop come at their own rates, whatever the drive does with them") {
  const std::vector<std::string> open{"workload.arrival={kind: open, interarrival: 20 us}"};
  const ordered_json even = metrics(open);
  CHECK(even["flow1_iops"].get<double>() == Approx(50'000).epsilon(0.02));
  CHECK(even["flow2_iops"].get<double>() == Approx(50'000).epsilon(0.02));
  std::vector<std::string> rates{"workload.arrival.kind=open", "workload.flows.interarrivals=[16 us, 80 us]"};
  const ordered_json own = metrics(rates);
  CHECK(own["flow1_iops"].get<double>() == Approx(62'500).epsilon(0.02));
  CHECK(own["flow2_iops"].get<double>() == Approx(12'500).epsilon(0.03));
  // Equal distances, and a firmware that keeps up: no request waits for another of its flow.
  rates.push_back("workload.arrival.distribution=fixed");
  CHECK(metrics(rates)["flow1_iops"].get<double>() == Approx(62'500).epsilon(0.001));
}

TEST_CASE("queues with priorities get their weights of a controller that holds few commands") {
  const std::vector<std::string> deep{"platform.device.nvme.command_slots=4", "workload.queue_depth=256"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), deep.begin(), deep.end());
    return metrics(more);
  };
  CHECK(ratio(with({}), "iops") == Approx(1).epsilon(0.01));
  const ordered_json weighted = with({"platform.device.nvme.queue_priorities=[high, low]"});
  CHECK(ratio(weighted, "iops") == Approx(4).epsilon(0.01));
  const ordered_json equal =
      with({"platform.device.nvme.queue_priorities=[high, low]", "platform.device.nvme.priority_weights=[2, 2, 2]"});
  CHECK(ratio(equal, "iops") == Approx(1).epsilon(0.01));
  // An urgent flow that alone keeps the firmware busy leaves the other what it does between two of its requests.
  CHECK(ratio(with({"platform.device.nvme.queue_priorities=[urgent, low]"}), "iops") > 30);
}

TEST_CASE("flows whose writes say where they belong: sequential data beside random data are not moved") {
  // Units over all planes. Random data are overwritten four times as often as sequential ones.
  const std::vector<std::string> drive{
      "platform.device.ftl={reclaim_unit_blocks: 64, over_provisioning: 0.2, placement: {handles: 2}}",
      "platform.device.flash.blocks_per_plane=129",
      "platform.device.flash.pages_per_block=2",
      "platform.device.nvme={queues: 2, fdp: {}}",
      "workload.flows={patterns: [random_write, sequential_write], shares: [1, 4]}",
      "workload.requests=60000",
      "workload.warmup_requests=30000",
      "workload.request_size=16 KiB",
      "workload.working_set=0.95"};
  const auto amplification = [&](std::vector<std::string> more) {
    more.insert(more.begin(), drive.begin(), drive.end());
    return metrics(more)["write_amplification"].get<double>();
  };
  const double mixed = amplification({}), apart = amplification({"workload.flows.placements=[0, 1]"}),
               one = amplification({"workload.flows.placements=[1, 1]"});
  CHECK(mixed > 1.8);
  CHECK(apart < 1.2);
  CHECK(one == Approx(mixed).epsilon(0.05));
  // One handle is no handle.
  const auto whole = [&](std::vector<std::string> more) {
    more.insert(more.begin(), drive.begin(), drive.end());
    more.insert(more.end(), {"platform.device.ftl.placement.handles=1", "workload.requests=20000"});
    return metrics(more);
  };
  const ordered_json with = whole({"workload.flows.placements=[0, 0]"}), without = whole({});
  CHECK(with["write_amplification"] == without["write_amplification"]);
  CHECK(with["latency_mean_ns"] == without["latency_mean_ns"]);
  CHECK(with["iops"] == without["iops"]);
}

TEST_CASE("identifiers and handles that the drive has not got are located errors") {
  const auto refused = [](const std::vector<std::string>& sets, const std::string& key, const std::string& why) {
    INFO(key << ": " << why);
    try {
      experiment::load_scenario_text(kDrive, "drive", ".", sets);
      FAIL("accepted");
    } catch (const UserError& error) {
      CHECK_THAT(error.what(), Catch::Contains(key + ":") && Catch::Contains(why));
    }
  };
  const std::string placements = "workload.flows.placements", fdp = "platform.device.nvme.fdp";
  const std::string handles = "platform.device.ftl.placement.handles=2",
                    unit = "platform.device.ftl.reclaim_unit_blocks";
  refused({placements + "=[0, 0]"}, placements, "no Flexible Data Placement");
  refused({placements + "=[0, 0]", fdp + "={enabled: false}"}, placements, "or it is off");
  refused({placements + "=[0]", fdp + "={}"}, placements, "1 items for 2 patterns");
  refused({placements + "=[0, 1]", fdp + "={}"}, placements, "1 names no reclaim unit");
  refused({placements + "=[0, 70000]", handles, fdp + "={}"}, placements, "70000 names no reclaim unit");
  // 64 planes are 64 reclaim groups, in the six upper bits.
  CHECK_NOTHROW(
      experiment::load_scenario_text(kDrive, "drive", ".", {placements + "=[0, 64513]", handles, fdp + "={}"}));
  refused({placements + "=[0, 1]", handles, fdp + "={placement_handles: [1]}"}, placements, "placement handle below 1");
  refused({fdp + "={placement_handles: [2]}", handles}, fdp + ".placement_handles", "needs 3 handles, the drive has 2");
  refused({fdp + "={placement_handles: [1, 1]}", handles}, fdp + ".placement_handles", "twice");
  refused({fdp + "={}", "platform.device.ftl.allocation=static"}, fdp, "64 reclaim groups");
  refused({unit + "=3"}, unit, "do not divide");
  refused({unit + "=128"}, unit, "do not divide 64 planes with 31 blocks");
  refused({unit + "=64", "platform.device.ftl.spare_blocks=1"}, unit, "spare");
  refused({unit + "=64", "platform.device.flash.reliability={}"}, unit, "fail");
}

}  // namespace test_flow_runs
