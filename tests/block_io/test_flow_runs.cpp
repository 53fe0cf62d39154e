// Several flows of block commands at a time: what each gets of a drive follows from its depth, size and class.
#include <catch2/catch.hpp>

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

}  // namespace test_flow_runs
