// Whole runs of block workloads: what the settings of a scenario do to the figures.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/config/diagnostics.h"
#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_block_runs {

using namespace csdsim;
using nlohmann::ordered_json;
using Sets = std::vector<std::string>;

namespace {

constexpr const char* kDrive = R"(csdsim: 1
platform:
  device:
    flash: {channels: 2, dies_per_channel: 4, planes_per_die: 1, blocks_per_plane: 32, pages_per_block: 32,
            page_size: 4 KiB, bus_arbitration: data_first}
    link: {bandwidth: 7.876 GB/s}
    ftl: {mapping: {kind: page}, over_provisioning: 0.15}
workload: {kind: block_io, queue_depth: 16, requests: 600}
)";

scenario::RunResult run(const Sets& sets) {
  return experiment::run_scenario(experiment::load_scenario_text(kDrive, "drive", ".", sets).base.scenario);
}

ordered_json metrics(const Sets& sets) {
  const scenario::RunResult result = run(sets);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return result.document["metrics"];
}

Sets with(Sets sets, const std::string& more) {
  sets.push_back(more);
  return sets;
}

std::string errors(const Sets& sets) {
  try {
    experiment::load_scenario_text(kDrive, "drive", ".", sets);
  } catch (const config::ConfigError& e) {
    std::string all;
    for (const std::string& message : e.messages()) all += message + "\n";
    return all;
  }
  return "";
}

}  // namespace

TEST_CASE("every setting of a block workload moves a figure") {
  struct Case {
    Sets base;
    std::string change;
  };
  const Sets slow_host{"platform.host.io_overhead=4 us"};
  const Sets open{"workload={kind: block_io, requests: 600, arrival: {kind: open, interarrival: 8 us}}"};
  const Sets mixed{"workload.pattern=random_mixed"};
  const Sets zipf{"workload.pattern=zipf_mixed"};
  const Sets sizes{"workload={kind: block_io, request_sizes: [4 KiB, 32 KiB], requests: 600}"};
  const std::vector<Case> cases{
      {{}, "workload.pattern=random_write"},
      {{}, "workload.pattern=zipf_read"},
      {{}, "workload.pattern=sequential_read"},
      {{}, "workload.request_size=8 KiB"},
      {{}, "workload={kind: block_io, queue_depth: 16, requests: 600, request_sizes: [4 KiB, 8 KiB]}"},
      {sizes, "workload.request_weights=[3, 1]"},
      {{"workload.request_size=32 KiB"}, "workload.alignment=4 KiB"},
      {{}, "workload.queue_depth=8"},
      {{}, "workload.requests=500"},
      {{}, "workload={kind: block_io, queue_depth: 16, duration: 2 ms}"},
      {{}, "workload.warmup_requests=100"},
      {{}, "workload.working_set=0.01"},
      {mixed, "workload.read_fraction=0.9"},
      {mixed, "workload.trim_fraction=0.2"},
      {zipf, "workload.zipf_exponent=1.5"},
      {{}, "workload.streams=4"},
      {slow_host, "workload.queues=1"},
      {with(slow_host, "workload.streams=5"), "workload.queue_assignment=stream"},
      {{}, "workload.arrival.think_time=10 us"},
      {{}, "workload={kind: block_io, requests: 600, arrival: {kind: open}}"},
      {open, "workload.arrival.interarrival=9 us"},
      {open, "workload.arrival.distribution=fixed"},
      {{}, "workload.precondition.fill=none"},
      {{}, "workload.precondition.fill=sequential"},
      {{"workload.pattern=random_write", "workload.working_set=1"}, "workload.precondition.overwrites=2"},
      {{}, "seed=2"}};
  for (const Case& c : cases) {
    INFO(c.change);
    CHECK(metrics(c.base) != metrics(with(c.base, c.change)));
  }
}

TEST_CASE("the defaults of the settings are what the contract's keys alone mean") {
  const ordered_json plain = metrics({});
  for (const std::string same :
       {"workload.arrival.kind=closed", "workload.arrival.think_time=0 ns", "workload.streams=1",
        "workload.alignment=4 KiB", "workload.precondition.fill=random", "workload.warmup_requests=0",
        "workload.queues=4", "workload.read_fraction=1", "workload.request_weights=[]", "workload.trim_fraction=0"}) {
    INFO(same);
    CHECK(metrics({same}) == plain);
  }
}

TEST_CASE("a closed loop keeps its depth, and thinks as long as it is told") {
  const Sets one{"workload.queue_depth=1", "workload.requests=200"};
  const ordered_json busy = metrics(one), idle = metrics(with(one, "workload.arrival.think_time=1 ms"));
  CHECK(busy["requests_in_flight_peak"] == 1);
  CHECK(idle["latency_mean_ns"].get<double>() == Approx(busy["latency_mean_ns"].get<double>()).epsilon(0.001));
  // 199 thoughts lie between 200 requests.
  CHECK(idle["simulated_s"].get<double>() == Approx(busy["simulated_s"].get<double>() + 0.199).epsilon(1e-6));
  CHECK(metrics({})["requests_in_flight_peak"] == 16);
  CHECK(metrics({"workload.requests=5"})["requests_issued"] == 5);
}

TEST_CASE("an open loop delivers its rate while the drive keeps up, and queues when it does not") {
  const Sets slow{"workload={kind: block_io, requests: 2000, arrival: {kind: open, interarrival: 20 us}}"};
  const ordered_json light = metrics(slow);
  CHECK(light["iops"].get<double>() == Approx(50'000).epsilon(0.05));
  CHECK(light["latency_mean_ns"].get<double>() < 80'000);
  const ordered_json heavy = metrics(with(slow, "workload.arrival.interarrival=2 us"));
  CHECK(heavy["iops"].get<double>() < 200'000);
  CHECK(heavy["latency_max_ns"].get<double>() > 10 * light["latency_mean_ns"].get<double>());
  CHECK(heavy["requests_in_flight_peak"] > 500);
  // The mean number in flight is rate times latency (Little).
  const ordered_json clock = metrics(with(slow, "workload.arrival.distribution=fixed"));
  CHECK(clock["simulated_s"].get<double>() == Approx(0.02 * 1.999).epsilon(0.01));
}

TEST_CASE("the part of the drive that binds is named, with how busy it is") {
  const auto measured = [](const Sets& sets) { return run(sets).document["breakdown"]; };
  const Sets sequential{"workload.pattern=sequential_read", "workload.request_size=32 KiB", "workload.queue_depth=32"};
  // Eight planes read 655 MB/s: two channels of 200 MB/s bind, or a link of 300 MB/s.
  CHECK(measured(sequential)["measured"]["bound_by"] == "flash_arrays");
  const ordered_json flash = measured(with(sequential, "platform.device.flash.channel_bandwidth=200 MB/s"));
  CHECK(flash["measured"]["bound_by"] == "flash_channels");
  CHECK(flash["measured"]["utilization"]["flash_channels"].get<double>() ==
        Approx(flash["channel_utilization"].get<double>()).epsilon(1e-9));
  const ordered_json link = measured(with(sequential, "platform.device.link.bandwidth=300 MB/s"))["measured"];
  CHECK(link["bound_by"] == "link_to_host");
  CHECK(link["utilization"]["link_to_host"].get<double>() > 0.95);
  CHECK(link["utilization"]["link_to_host"].get<double>() <= 1);
  CHECK(link["waited_s"]["link_to_host"].get<double>() > flash["measured"]["waited_s"]["link_to_host"].get<double>());
  // One read at a time spends most of its time in the array; what came before the measured interval does not count.
  const ordered_json one =
      measured({"workload.queue_depth=1", "workload.warmup_requests=300", "workload.requests=300"});
  CHECK(one["measured"]["bound_by"] == "flash_arrays");
  const ordered_json& planes = one["measured"]["utilization"]["flash_arrays"];
  CHECK(planes.get<double>() * 8 == Approx(one["latency_stages"]["read"]["array"].get<double>() * 1e-9 * 300 /
                                           one["measured"]["seconds"].get<double>())
                                        .epsilon(0.01));
}

TEST_CASE("a duration ends the submission and not the requests in flight") {
  const ordered_json m = metrics({"workload={kind: block_io, queue_depth: 16, duration: 5 ms}"});
  CHECK(m["simulated_s"].get<double>() >= 0.005);
  CHECK(m["simulated_s"].get<double>() < 0.0054);
  CHECK(m["requests_issued"] == m["requests_completed"]);
  CHECK(m["requests_issued"] > 500);
}

TEST_CASE("warm-up requests are in no figure but the numbers and the peak of requests") {
  // Before the measured reads, writes leave the planes busy.
  const ordered_json m = metrics({"workload.warmup_requests=400", "workload.requests=300"});
  CHECK(m["requests_issued"] == 700);
  CHECK(m["requests_completed"] == 700);
  CHECK(m["page_ops"] >= 300);
  CHECK(m["page_ops"] <= 316);  // those in flight at the start may be done in the measured stretch
  for (const char* const pattern : {"random_read", "random_mixed"}) {
    const Sets warm{"workload.warmup_requests=400", "workload.requests=300",
                    std::string("workload.pattern=") + pattern};
    CHECK(metrics(with(warm, "platform.device.fidelity=at")) == metrics(warm));
  }
  const Sets overwrite{"workload.pattern=random_write", "workload.working_set=1", "workload.requests=3000"};
  const double from_full = metrics(overwrite)["write_amplification"];
  const double settled = metrics(with(overwrite, "workload.warmup_requests=6000"))["write_amplification"];
  CHECK(settled > from_full * 1.1);  // 1.14 to 1.25 over 20 seeds
  // Ageing comes to the same state without the requests.
  const double aged = metrics(with(overwrite, "workload.precondition.overwrites=4"))["write_amplification"];
  CHECK(aged == Approx(settled).epsilon(0.05));
}

TEST_CASE("reads, writes and TRIMs are told apart and add up") {
  const scenario::RunResult result = run({"workload.pattern=random_mixed", "workload.trim_fraction=0.25"});
  const ordered_json &m = result.document["metrics"], &kinds = result.document["breakdown"]["requests"];
  double sum = 0;
  std::uint64_t count = 0;
  for (const std::string kind : {"read", "write", "trim"}) {
    const std::uint64_t n = kinds[kind]["requests"];
    CHECK(n > 100);
    count += n;
    sum += static_cast<double>(n) * m[kind + "_latency_mean_ns"].get<double>();
    CHECK(m[kind + "_latency_p50_ns"] <= m[kind + "_latency_p99_ns"]);
    CHECK(m[kind + "_latency_p999_ns"] <= m[kind + "_latency_max_ns"]);
  }
  CHECK(count == 600);
  CHECK(sum / 600 == Approx(m["latency_mean_ns"].get<double>()).epsilon(1e-9));
  CHECK(m["read_latency_mean_ns"] < m["write_latency_mean_ns"]);
  CHECK(m["trim_latency_mean_ns"] < m["read_latency_mean_ns"]);
  CHECK(kinds["trim"]["bytes"] == 0);
  CHECK_FALSE(metrics({}).contains("write_latency_mean_ns"));
}

TEST_CASE("the stages of latency add up, and are what the drive's settings say") {
  const auto stages = [](const Sets& sets) {
    const scenario::RunResult result = run(sets);
    INFO(result.failure);
    REQUIRE(result.failure.empty());
    const ordered_json &all = result.document["breakdown"]["latency_stages"], &m = result.document["metrics"];
    for (const auto& [kind, means] : all.items()) {
      double sum = 0;
      for (const auto& [stage, mean] : means.items()) {
        CHECK(mean.get<double>() > 0);
        sum += mean.get<double>();
      }
      INFO(kind);
      CHECK(sum == Approx(m[kind + "_latency_mean_ns"].get<double>()).epsilon(1e-9));
    }
    return all;
  };
  const Sets alone{"workload.queue_depth=1", "workload.requests=100"};
  const ordered_json read = stages(alone)["read"];
  CHECK(read["array"] == Approx(50'000));
  CHECK(read["command"] == Approx(290));
  CHECK(read["transfer"] == Approx(30 + 4096 / 1.4).epsilon(1e-6));
  CHECK(read["link"] == Approx((4096 + 16) / 7.876).epsilon(0.01));
  for (const std::string idle : {"plane_wait", "bus_wait", "ecc", "firmware"}) CHECK_FALSE(read.contains(idle));
  const ordered_json slow =
      stages({"workload.queue_depth=1", "workload.requests=100", "platform.device.nvme.firmware_time=3 us",
              "platform.device.ftl.lookup_time=2 us", "platform.device.flash.ecc_latency=7 us",
              "platform.host.io_overhead=4 us"})["read"];
  CHECK(slow["firmware"] == Approx(5'000));
  CHECK(slow["ecc"] == Approx(7'000));
  CHECK(slow["queue"].get<double>() > 4'000);
  CHECK_FALSE(slow.contains("dram"));
  const ordered_json dram = stages(with(alone, "platform.device.dram.bandwidth=1 GB/s"))["read"];
  CHECK(dram["dram"].get<double>() > 4096);
  CHECK(dram["array"] == Approx(50'000));
  const Sets written{"workload.queue_depth=1", "workload.requests=100", "workload.pattern=random_write"};
  const ordered_json buffered = stages(with(written, "platform.device.dram.bandwidth=1 GB/s"))["write"];
  CHECK(buffered["dram"].get<double>() > 2 * 4096);  // in from the host, out to the flash
  CHECK_FALSE(buffered.contains("plane_wait"));
  const ordered_json write = stages(with(alone, "workload.pattern=random_write"))["write"];
  CHECK(write["array"] == Approx(600'000));
  // Many at a time wait for planes and for the bus; requests that were cut, TRIMs and collections add up as well.
  const ordered_json busy = stages({"workload.pattern=random_mixed", "workload.trim_fraction=0.1"});
  CHECK(busy["read"]["plane_wait"].get<double>() > 10'000);
  CHECK(busy["read"].contains("bus_wait"));
  CHECK(busy.contains("trim"));
  stages({"workload.request_size=64 KiB", "platform.device.nvme.mdts=16 KiB"});
  stages({"workload.pattern=random_write", "workload.working_set=1", "workload.precondition.overwrites=3"});
  stages(
      {"workload={kind: block_io, requests: 600, pattern: random_mixed, arrival: {kind: open, interarrival: 5 us}}"});
  stages({"platform.device.fidelity=at", "workload.pattern=random_mixed"});
}

TEST_CASE("both fidelities spend a request's time alike") {
  const Sets mixed{"workload.pattern=random_mixed"};
  const auto breakdown = [](const Sets& sets) { return run(sets).document["breakdown"]["latency_stages"]; };
  CHECK(breakdown(mixed) == breakdown(with(mixed, "platform.device.fidelity=at")));
}

TEST_CASE("the throughput over time holds every measured request") {
  const scenario::RunResult result = run({});
  REQUIRE(result.files.size() == 1);
  CHECK(result.files[0].name == "throughput.csv");
  std::istringstream csv(result.files[0].text);
  std::string line;
  std::getline(csv, line);
  std::uint64_t requests = 0;
  while (std::getline(csv, line)) {
    const std::size_t from = line.find(',', line.find(',') + 1) + 1;
    requests += std::stoull(line.substr(from));
  }
  CHECK(requests == 600);
}

TEST_CASE("a lost completion fails the run, whatever the loop") {
  for (const std::string arrival : {"closed", "open"}) {
    const scenario::RunResult result =
        run({"workload={kind: block_io, requests: 600, lose_completion: 300, arrival: {kind: " + arrival + "}}"});
    CHECK(result.failure == "600 requests were issued and 599 completed");
    CHECK(result.document["metrics"]["requests_completed"] == 599);
  }
}

TEST_CASE("a rate that the drive cannot serve for long ends with a message, not without memory") {
  CHECK_THROWS_WITH(run({"workload={kind: block_io, pattern: random_write, duration: 10000 ms, arrival: {kind: open, "
                         "interarrival: 1 us, "
                         "distribution: fixed}}"}),
                    Catch::Contains("the drive does not keep up"));
}

TEST_CASE("combinations that contradict each other are located errors") {
  const auto refused = [](const Sets& sets, const std::string& text) {
    const std::string all = errors(sets);
    INFO(all);
    CHECK(all.find(text) != std::string::npos);
    CHECK(all.find("error: ") != std::string::npos);
  };
  refused({"workload.read_fraction=0.5"}, "disagrees with pattern random_read; use random_mixed");
  refused({"workload.pattern=zipf_write", "workload.read_fraction=0.5"}, "use zipf_mixed");
  refused({"workload.trim_fraction=0.5"}, "trim_fraction: 0.5 disagrees with pattern random_read");
  refused({"workload.zipf_exponent=1"}, "workload.zipf_exponent: pattern random_read has none");
  refused({"workload.arrival.interarrival=1 us"}, "belongs to kind open, not to closed");
  refused({"workload={kind: block_io, arrival: {kind: open, think_time: 1 us}}"},
          "belongs to kind closed, not to open");
  refused({"workload={kind: block_io, queue_depth: 4, arrival: {kind: open}}"}, "workload.queue_depth is not used");
  refused({"workload={kind: block_io, requests: 4, duration: 1 ms}"}, "workload.requests is not used");
  refused({"workload={kind: block_io, request_size: 4 KiB, request_sizes: [4 KiB]}"}, "request_size is not used");
  refused({"workload.request_weights=[1]"}, "there are no request_sizes");
  refused({"workload={kind: block_io, request_sizes: [4 KiB, 8 KiB], request_weights: [1]}"}, "1 weights for 2");
  refused({"workload={kind: block_io, request_sizes: [4 KiB, 8 KiB], request_weights: [0, 0]}"}, "all of them are 0");
  refused({"workload={kind: block_io, request_sizes: [4 KiB, 6 KiB]}"}, "is not a multiple of the logical block");
  refused({"workload.alignment=6 KiB"}, "workload.alignment: 6 KiB is not a multiple");
  refused({"workload.queues=5"}, "5 of the 4 queues");
  refused({"workload.streams=17"}, "17 streams share 16 requests");
  refused({"workload.queue_assignment=stream"}, "3 of 4 queues are left without a stream");
  refused({"workload.precondition={fill: none, overwrites: 1}"}, "with fill: none there is nothing to overwrite");
  refused({"workload.precondition.fill=full"}, "none, sequential, random");
}

}  // namespace test_block_runs
