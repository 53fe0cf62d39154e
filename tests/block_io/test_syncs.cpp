// Writes with syncs, as a file system makes them, on presets with and without capacitors.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_syncs {

using namespace csdsim;

namespace {

nlohmann::ordered_json metrics(const std::string& preset, const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets{"platform.device.preset=" + preset, "workload.precondition.fill=none"};
  sets.insert(sets.end(), more.begin(), more.end());
  const std::string path = std::string(CSDSIM_SOURCE_DIR) + "/tests/data/durability/syncs.yaml";
  const scenario::RunResult result = experiment::run_scenario(experiment::load_scenario(path, sets).base.scenario);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return result.document["metrics"];
}

double flush_us(const std::string& preset, const std::vector<std::string>& more = {}) {
  return metrics(preset, more)["flush_latency_mean_ns"].get<double>() / 1e3;
}

}  // namespace

TEST_CASE("a sync takes a program where nothing protects the write buffer, and microseconds with capacitors") {
  // 980 PRO: 400 us for a page, which crosses a channel of 1.2 GB/s (16 KiB and its parity) before.
  const double unprotected = flush_us("samsung-980-pro-2tb");
  CHECK(unprotected > 400);
  CHECK(unprotected < 450);
  CHECK(flush_us("solidigm-d5-p5336-122.88tb") < 20);
  CHECK(flush_us("micron-9550-max-6.4tb") < 20);
  CHECK(flush_us("samsung-980-pro-2tb", {"platform.device.power_loss.protection.kind=capacitors"}) < 20);
  // Without capacitors the same drive programs a word line of three pages on all planes of a die.
  CHECK(flush_us("solidigm-d5-p5336-122.88tb", {"platform.device.power_loss.protection={kind: none}"}) > 5'000);
}

TEST_CASE("each sync of a drive without capacitors fills a word line, whose empty units count as padding") {
  const nlohmann::ordered_json of = metrics("samsung-980-pro-2tb");
  CAPTURE(of);
  // 16 KiB pages of four units.
  CHECK(of["write_amplification"] == 4);
  CHECK(of["write_amplification_padding"] == 3);
  CHECK(metrics("micron-9550-max-6.4tb")["write_amplification"] == 1);
}

}  // namespace test_syncs
