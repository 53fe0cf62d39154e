// The drives of docs/drives.md: their figures do not drift unnoticed. A change of a model that moves one belongs in
// that table and here.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/block_io/block_workload.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_drives {

using namespace csdsim;

namespace {

enum class Figure : std::uint8_t { gigabytes_per_s, iops, mean_us };

/// A line of docs/drives.md.
struct Line {
  Figure figure;
  double simulated;
};

/// [point of the sweep]
struct Drive {
  std::string scenario;
  std::vector<Line> lines;
};

const std::vector<Drive> kDrives{
    {"samsung-980-pro-2tb",
     {{Figure::gigabytes_per_s, 7.09},
      {Figure::gigabytes_per_s, 5.02},
      {Figure::iops, 1'018'000},
      {Figure::iops, 1'019'000}}},
    {"micron-9550-max-6.4tb",
     {{Figure::gigabytes_per_s, 14.16},
      {Figure::gigabytes_per_s, 9.81},
      {Figure::iops, 3'406'000},
      {Figure::mean_us, 58.3},
      {Figure::mean_us, 14.95}}},
    {"smartssd",
     {{Figure::gigabytes_per_s, 3.23},
      {Figure::gigabytes_per_s, 0.0500},
      {Figure::gigabytes_per_s, 0.959},
      {Figure::gigabytes_per_s, 1.85},
      {Figure::gigabytes_per_s, 0.161},
      {Figure::gigabytes_per_s, 0.873},
      {Figure::gigabytes_per_s, 0.997}}},
    {"instcsd-zynq7045", {{Figure::gigabytes_per_s, 10.1}}},
};

double value_of(Figure figure, const nlohmann::ordered_json& metrics) {
  switch (figure) {
    case Figure::gigabytes_per_s:
      return metrics["bandwidth_bytes_per_s"].get<double>() * 1e-9;
    case Figure::iops:
      return metrics["iops"].get<double>();
    case Figure::mean_us:
      return metrics["latency_mean_ns"].get<double>() * 1e-3;
  }
  return 0;
}

}  // namespace

TEST_CASE("every drive gives the figures of docs/drives.md") {
  for (const Drive& drive : kDrives) {
    const auto file = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/drives" / (drive.scenario + ".yaml");
    const scenario::Loaded loaded = experiment::load_scenario(file);
    REQUIRE(loaded.points.size() == drive.lines.size());
    for (std::size_t i = 0; i < drive.lines.size(); ++i) {
      scenario::Scenario scenario = loaded.points[i].resolved.scenario;
      auto& work = dynamic_cast<experiment::BlockIoWorkload&>(*scenario.workload);
      // Reads are steady at once; writes alternate between a full and a draining buffer, which only many average out.
      if (work.reads().numerator > 0)
        work.requests = std::min<std::uint64_t>(work.requests, 100 * work.queue_depth + 500);
      const scenario::RunResult result = experiment::run_scenario(scenario);
      INFO(drive.scenario << ", " << loaded.points[i].name << ": " << result.document["metrics"].dump());
      CHECK(result.failure.empty());
      CHECK(value_of(drive.lines[i].figure, result.document["metrics"]) ==
            Approx(drive.lines[i].simulated).epsilon(0.02));
    }
  }
}

}  // namespace test_drives
