// Runs of block commands in which the power fails, and the oracle that checks them.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/config/diagnostics.h"
#include "base/error.h"
#include "base/rng.h"
#include "experiment/block_io/block_oracle.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_power_runs {

using namespace csdsim;
using experiment::BlockOracle;
using experiment::workload::BlockRequest;
using experiment::workload::RequestKind;
using nlohmann::ordered_json;
using Sets = std::vector<std::string>;

namespace {

const std::filesystem::path kScenario = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/power_cuts.yaml";
const std::string kPower = "platform.device.nvme.power", kProtection = "platform.device.power_loss.protection";

/// A drive that is filled and searched in moments.
Sets small(Sets more) {
  more.insert(more.begin(), {"platform.device.flash.pages_per_block=16", "platform.device.flash.channels=2"});
  return more;
}

ordered_json metrics(const Sets& sets) {
  const scenario::RunResult result = experiment::run_scenario(experiment::load_scenario(kScenario, sets).base.scenario);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return result.document["metrics"];
}

std::string refusal(const Sets& sets) {
  try {
    experiment::run_scenario(experiment::load_scenario(kScenario, sets).base.scenario);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

bool names(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("requests go on after cuts at random moments, and every block is what it may be") {
  const bool capacitors = GENERATE(false, true);
  const std::string buffer = GENERATE("1 MiB", "0 B");
  const std::uint64_t seed = GENERATE(1, 2, 3, 4);
  CAPTURE(capacitors, buffer, seed);
  Rng rng(seed, "cuts");
  std::string cuts = "[";
  std::uint64_t at = 3000;
  for (int i = 0; i < 6; ++i, at += 2001 + rng.below(30'000)) cuts += (i == 0 ? "" : ", ") + std::to_string(at) + " us";
  Sets sets{kPower + "={cuts: " + cuts + "], off_time: 2 ms}", "workload.duration=150 ms",
            "platform.device.write_buffer.capacity=" + buffer, "seed=" + std::to_string(seed)};
  if (buffer == "0 B") sets.push_back("workload.precondition.fill=none");
  if (capacitors) sets.push_back(kProtection + ".kind=capacitors");
  // Drives of four planes with reclaim units: a block of each plane, and two of each, with identifiers.
  if (seed == 2) sets.push_back("platform.device.ftl.reclaim_unit_blocks=4");
  if (seed == 3)
    sets.insert(sets.end(), {"platform.device.flash.blocks_per_plane=25", "platform.device.ftl.reclaim_unit_blocks=8",
                             "platform.device.ftl.over_provisioning=0.5", "platform.device.ftl.placement.handles=2",
                             "platform.device.nvme.fdp={}",
                             "workload.flows={patterns: [random_mixed, random_write], placements: [0, 1]}"});
  if (seed == 4) sets.push_back("platform.device.ftl.map={kind: cached, capacity: 4 KiB}");
  const ordered_json once = metrics(small(sets));
  CHECK(once["power_cuts"] == 6);
  CHECK(once["unsafe_shutdowns"] == 6);
  CHECK(once["requests_completed"] == once["requests_issued"]);
  const double many = seed == 3 ? 500 : 1000;  // large units spend more of the time on collection
  CHECK(once["requests_completed"].get<double>() > many);
  CHECK(once["commands_reissued"].get<double>() > 0);
  CHECK(once["torn_word_lines"].get<double>() > 0);
  CHECK(once["recovery_mean_ns"].get<double>() > 0);
  CHECK(once["promised_units_lost"] == 0);
  CHECK((once["units_lost"].get<double>() > 0) == !capacitors);
  CHECK((once["dump_bytes"].get<double>() > 0) == capacitors);
  CHECK(once["blocks_checked"].get<double>() > many);
  CHECK(metrics(small(sets))["latency_mean_ns"] == once["latency_mean_ns"]);
}

TEST_CASE("capacitors that are too weak lose what they promised, and the run says so") {
  const ordered_json m =
      metrics(small({kProtection + "={kind: capacitors, energy: 1400 uJ}", "workload.read_fraction=0",
                     kPower + "={cuts: [20 ms, 60 ms, 100 ms], off_time: 5 ms}"}));
  CHECK(m["promised_units_lost"].get<double>() > 0);
  CHECK(m["dump_energy_j"].get<double>() > 0);
  CHECK(m["dump_energy_j"].get<double>() <= 3 * 1400e-6);
  CHECK(m["units_lost"] == 0);
}

TEST_CASE("a generation whose drive loses its power has the tokens of an undisturbed one, beside blocks too") {
  const std::filesystem::path scenario = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/quickstart.yaml";
  const std::string system = GENERATE("instinfer-dense", "instinfer-sparf");
  const bool blocks = GENERATE(false, true);
  CAPTURE(system, blocks);
  const Sets common{"system.kind=" + system, kProtection + ".kind=capacitors", "workload.output_tokens=8",
                    "simulation.compare=[]", "platform.device.write_buffer.capacity=1 MiB"};
  const auto run = [&](const Sets& more) {
    Sets sets = common;
    sets.insert(sets.end(), more.begin(), more.end());
    scenario::RunResult result = experiment::run_scenario(experiment::load_scenario(scenario, sets).base.scenario);
    INFO(result.failure);
    REQUIRE(result.failure.empty());
    return result.document;
  };
  const std::string background =
      "workload.background={pattern: random_mixed, read_fraction: 0.3, queue_depth: 4, working_set: 0.5, "
      "capacity_share: 0.3}";
  const ordered_json undisturbed = run({});
  // Cuts in prefill and in the decode steps, which dumps and recoveries put off, and one during a recovery.
  const double end = undisturbed["metrics"]["simulated_s"].get<double>() * 1e6;
  std::string cuts;
  for (const double at : {0.1 * end, 0.3 * end, 0.3 * end + 40, 0.9 * end, 1.3 * end, 1.8 * end})
    cuts += (cuts.empty() ? "" : ", ") + std::to_string(static_cast<int>(at)) + " us";
  Sets sets{kPower + "={cuts: [" + cuts + "], off_time: 20 us}"};
  if (blocks) sets.push_back(background);
  const ordered_json cut = run(sets);
  CHECK(cut["tokens"] == undisturbed["tokens"]);
  const ordered_json& m = cut["metrics"];
  CHECK(m["power_cuts"] == 6);
  CHECK(m["commands_reissued"].get<double>() > 0);
  CHECK(m["recovery_mean_ns"].get<double>() > 0);
  CHECK(m["dump_bytes"].get<double>() > 0);
  CHECK(m["simulated_s"].get<double>() * 1e6 > 1.8 * end);
  CHECK(m["promised_units_lost"] == 0);
  CHECK(m.contains("background_blocks_checked") == blocks);
  if (blocks) CHECK(m["background_blocks_checked"].get<double>() > 100);
  CHECK_FALSE(undisturbed["metrics"].contains("power_cuts"));
}

TEST_CASE("generations that cannot lose their power are located errors") {
  const std::filesystem::path scenario = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/quickstart.yaml";
  const auto refused = [&](const std::string& part, const Sets& more) {
    Sets sets{kPower + "={cuts: [1 ms]}", kProtection + ".kind=capacitors"};
    sets.insert(sets.end(), more.begin(), more.end());
    std::string said = "no error";
    try {
      experiment::run_scenario(experiment::load_scenario(scenario, sets).base.scenario);
    } catch (const std::exception& e) {
      said = e.what();
    }
    INFO(said);
    CHECK(names(said, part));
  };
  refused("only capacitors save them", {kProtection + "={kind: none}"});
  refused("known only where data is carried", {"simulation={data: timing}"});
  refused("there are 2", {"platform.device.count=2"});
  refused("behind a switch", {"platform.device.engine.placement={kind: switch}"});
  refused("fidelity: at", {"platform.device.fidelity=at"});
}

TEST_CASE("cuts that cannot be are located errors") {
  const auto check = [](const std::string& key, const Sets& sets) {
    const std::string said = refusal(small(sets));
    INFO(said);
    CHECK(names(said, key));
  };
  check(kPower + ".cuts", {kPower + "={cuts: [0 s]}"});
  check(kPower + ".cuts", {kPower + "={cuts: [1 ns]}"});
  check(kPower + ".cuts", {kPower + "={cuts: [20 ms, 10 ms]}"});
  check(kPower + ".cuts", {kPower + "={cuts: [20 ms, 21 ms], off_time: 1 ms}"});
  check(kPower + ".off_time", {kPower + "={cuts: [20 ms], off_time: 0 s}"});
  check("simulation.data", {"simulation.data=timing"});
  check("platform.device.fidelity", {"platform.device.fidelity=at"});
  check("workload.precondition.overwrites", {"workload.precondition.overwrites=1"});
  check(kProtection + ".energy", {kProtection + "={kind: capacitors, energy: 1 uJ}"});
}

TEST_CASE("the oracle refuses what a block may not hold") {
  constexpr Bytes kBlock{512};
  const auto request = [&](RequestKind kind, std::uint64_t block) {
    const Bytes length = kind == RequestKind::flush ? Bytes{} : kBlock;
    return BlockRequest{.kind = kind, .offset = kBlock * block, .length = length, .placement = {}};
  };
  using Data = std::vector<std::byte>;
  BlockOracle oracle({.block = kBlock, .unit = kBlock, .filled = {}, .cached = true, .trims_cached = true});
  const auto write = [&](std::uint64_t block) {
    Data data(kBlock.value);
    const std::uint64_t number = oracle.submit(request(RequestKind::write, block), data);
    oracle.complete(number, {});
    return data;
  };
  const auto flush = [&] { oracle.complete(oracle.submit(request(RequestKind::flush, 0), {}), {}); };
  const auto read = [&](std::uint64_t block, const Data& data) {
    Data into(kBlock.value);
    const std::uint64_t number = oracle.submit(request(RequestKind::read, block), into);
    oracle.complete(number, data);
  };
  const Data first = write(3), other = write(4);
  read(3, first);
  CHECK_THROWS_AS(read(3, other), InternalError);
  const Data second = write(3);
  CHECK_THROWS_AS(read(3, first), InternalError);
  Data torn = second;
  torn.back() ^= std::byte{1};
  CHECK_THROWS_AS(read(3, torn), InternalError);
  SECTION("a cut may bring back what no flush has replaced") {
    oracle.note_cut();
    read(3, first);
    CHECK_THROWS_AS(read(3, second), InternalError);  // the drive has said what it found
  }
  SECTION("and nothing older than what was flushed") {
    flush();
    const Data third = write(3);
    oracle.note_cut();
    CHECK_THROWS_AS(read(3, first), InternalError);
    CHECK_THROWS_AS(read(3, Data(kBlock.value)), InternalError);
    read(3, second);
    CHECK_THROWS_AS(read(3, third), InternalError);
  }
  SECTION("a flush that a cut has interrupted makes nothing durable") {
    const std::uint64_t number = oracle.submit(request(RequestKind::flush, 0), {});
    oracle.note_cut();
    oracle.complete(number, {});
    read(3, first);
  }
  SECTION("of writes that overlap either may be the last") {
    Data a(kBlock.value), b(kBlock.value);
    const std::uint64_t one = oracle.submit(request(RequestKind::write, 3), a),
                        two = oracle.submit(request(RequestKind::write, 3), b);
    read(3, second);
    oracle.complete(two, {});
    oracle.complete(one, {});
    read(3, a);
    read(3, b);
    CHECK_THROWS_AS(read(3, second), InternalError);
  }
  SECTION("a write beside the first read after a cut is no loss") {
    oracle.note_cut();
    Data into(kBlock.value);
    const std::uint64_t number = oracle.submit(request(RequestKind::read, 3), into);
    const Data third = write(3);
    oracle.complete(number, first);
    read(3, third);
  }
  SECTION("a read of what was written after a cut makes nothing durable") {
    oracle.note_cut();
    read(3, write(3));
    oracle.note_cut();
    read(3, second);
  }
  SECTION("a trimmed block is zeros, or comes back after a cut") {
    oracle.complete(oracle.submit(request(RequestKind::trim, 3), {}), {});
    read(3, Data(kBlock.value));
    oracle.note_cut();
    read(3, second);
  }
}

}  // namespace test_power_runs
