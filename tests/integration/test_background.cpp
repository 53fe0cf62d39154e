// A generation and block commands on one drive; and what a model throws while it is simulated.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "simulation/event_loop.h"
#include "simulation/failure.h"
#include "tests/support/sysc_fixture.h"

namespace test_background {

using namespace csdsim;
using Sets = std::vector<std::string>;

namespace {

scenario::RunResult run(const Sets& sets = {}) {
  const auto file = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/generation_beside_blocks.yaml";
  Sets all{"model.layers=2", "workload.output_tokens=8"};
  all.insert(all.end(), sets.begin(), sets.end());
  return experiment::run_scenario(experiment::load_scenario(file, all).base.scenario);
}

double metric(const scenario::RunResult& r, const std::string& name) { return r.document["metrics"].at(name); }

}  // namespace

TEST_CASE("block commands beside a generation slow it down, and all of them complete") {
  const scenario::RunResult alone =
      run({"workload.background=none", "platform.device.write_buffer.flush.kind=immediate"});
  const scenario::RunResult both = run();
  CHECK(alone.failure.empty());
  CHECK(both.failure.empty());
  CHECK(metric(both, "tpot_s") > 1.05 * metric(alone, "tpot_s"));
  CHECK(metric(both, "background_requests_issued") > 1000);
  CHECK(metric(both, "background_requests_issued") == metric(both, "background_requests_completed"));
  CHECK(metric(both, "commands_issued") == metric(both, "commands_completed"));
  CHECK(metric(both, "commands_issued") > metric(both, "background_requests_issued"));
  CHECK_FALSE(alone.document["metrics"].contains("background_iops"));
  // Its garbage is collected meanwhile.
  CHECK(metric(both, "background_write_amplification") > 1);
  const auto& ftl = both.document["stats"]["drives"][0]["block_ftl"];
  CHECK(ftl["gc_erases"]["value"].get<double>() > 0);
  // A deeper queue slows more, a more urgent generation less.
  CHECK(metric(run({"workload.background.queue_depth=64"}), "tpot_s") > metric(both, "tpot_s"));
  CHECK(metric(run({"platform.device.flash.class_priority=[attend, flush]"}), "tpot_s") < metric(both, "tpot_s"));
}

TEST_CASE("both namespaces give the same figures in both models of the flash, with everything switched on") {
  const Sets features{"platform.device.flash.page_buffers=4",
                      "platform.device.flash.plane_order=reads_first",
                      "platform.device.flash.cache={busy_time: 2 us}",
                      "platform.device.flash.suspend={latency: 20 us}",
                      "platform.device.flash.ecc_latency=3 us",
                      "platform.device.flash.read_jitter=5 us",
                      "platform.device.flash.reliability={pe_cycles: 1500, retention_days: 240}",
                      "platform.device.engine.buffer_memory=dram",
                      "platform.device.engine.clock=50 MHz"};
  const auto figures = [&](const std::string& fidelity, const std::string& flush, const Sets& chosen) {
    Sets sets = chosen;
    sets.push_back("platform.device.fidelity=" + fidelity);
    sets.push_back("platform.device.write_buffer.flush.kind=" + flush);
    const scenario::RunResult result = run(sets);
    CHECK(result.failure.empty());
    // Counts at the end of a phase differ: the timeline counts an operation when it is granted.
    nlohmann::ordered_json kept = result.document["stats"];
    for (const auto& [name, value] : result.document["metrics"].items())
      if (!name.starts_with("energy") && !name.starts_with("bytes") && !name.starts_with("peak")) kept[name] = value;
    return kept.dump();
  };
  for (const std::string flush : {"threshold", "idle"})
    CHECK(figures("fast", flush, features) == figures("at", flush, features));
  CHECK(figures("fast", "threshold", features) != figures("fast", "idle", features));
  // On the fast path of the flash, which runs ahead.
  const Sets few_buffers{"platform.device.flash.page_buffers=4"};
  CHECK(figures("fast", "threshold", few_buffers) == figures("at", "threshold", few_buffers));
}

TEST_CASE("what a process throws comes out as it was thrown") {
  test::SyscFixture context;
  Alarm alarm(AlarmRank::host, [] { throw UserError("too much was asked"); });
  alarm.set(SimTime::microseconds(1));
  CHECK_THROWS_WITH(run_kernel(), "too much was asked");
}

}  // namespace test_background
