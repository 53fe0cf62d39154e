// The drives of docs/drives.md: their figures do not drift unnoticed. A change of a model that moves one belongs in
// that table and here.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/block_io/block_workload.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "tests/drive/long_context.h"

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
      {Figure::gigabytes_per_s, 5.04},
      {Figure::iops, 1'018'000},
      {Figure::iops, 1'019'000},
      {Figure::iops, 19'430},
      {Figure::iops, 341'000}}},
    {"micron-9550-max-6.4tb",
     {{Figure::gigabytes_per_s, 14.16},
      {Figure::gigabytes_per_s, 10.36},
      {Figure::iops, 3'401'000},
      {Figure::mean_us, 58.3},
      {Figure::mean_us, 14.95}}},
    {"smartssd",
     {{Figure::gigabytes_per_s, 3.199},
      {Figure::gigabytes_per_s, 0.0500},
      {Figure::gigabytes_per_s, 0.968},
      {Figure::gigabytes_per_s, 2.48},
      {Figure::gigabytes_per_s, 0.161},
      {Figure::gigabytes_per_s, 0.873},
      {Figure::gigabytes_per_s, 0.997}}},
    {"instcsd-zynq7045", {{Figure::gigabytes_per_s, 10.1}}},
    {"micron-9650-max-6.4tb",
     {{Figure::gigabytes_per_s, 27.63}, {Figure::gigabytes_per_s, 13.93}, {Figure::iops, 5'466'000}}},
    {"samsung-pm9d3a-7.68tb",
     {{Figure::gigabytes_per_s, 14.13}, {Figure::gigabytes_per_s, 6.47}, {Figure::iops, 2'026'000}}},
    {"solidigm-d5-p5336-122.88tb",
     {{Figure::gigabytes_per_s, 7.05}, {Figure::gigabytes_per_s, 3.35}, {Figure::iops, 928'400}}},
    {"hbf-512gb", {{Figure::gigabytes_per_s, 1370}, {Figure::mean_us, 4.06}}},
    {"xl-flash-512b", {{Figure::iops, 25'071'000}, {Figure::mean_us, 5.34}, {Figure::iops, 3'401'000}}},
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
      scenario::Scenario scenario = loaded.points[i].scenario;
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

namespace {

/// Throughput of random reads, GB/s, by size and number of threads that each wait for their read.
using ReadCurve = std::map<Bytes, std::map<std::uint32_t, double>>;

/// The sweep scenarios/drives/apple-m1-max.yaml with `requests` reads per point.
ReadCurve read_curve_of_the_m1_max(std::uint64_t requests, const std::vector<Bytes>& sizes,
                                   const std::vector<std::uint32_t>& threads) {
  const auto file = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/drives/apple-m1-max.yaml";
  ReadCurve curve;
  for (const scenario::SweepPoint& point : experiment::load_scenario(file).points) {
    scenario::Scenario scenario = point.scenario;
    auto& work = dynamic_cast<experiment::BlockIoWorkload&>(*scenario.workload);
    if (std::ranges::count(sizes, work.request_size) == 0 || std::ranges::count(threads, work.queue_depth) == 0)
      continue;
    work.requests = requests;
    const scenario::RunResult result = experiment::run_scenario(scenario);
    INFO(point.name);
    REQUIRE(result.failure.empty());
    curve[work.request_size][work.queue_depth] = value_of(Figure::gigabytes_per_s, result.document["metrics"]);
  }
  return curve;
}

}  // namespace

TEST_CASE("the drive of the M1 Max meets the two reads that it is fitted to and predicts the third") {
  const ReadCurve curve = read_curve_of_the_m1_max(20'000, {Bytes::kib(8), Bytes::kib(16), Bytes::kib(1024)}, {32});
  CHECK(curve.at(Bytes::kib(8)).at(32) == Approx(1.25).epsilon(0.01));
  CHECK(curve.at(Bytes::kib(1024)).at(32) == Approx(6.10).epsilon(0.01));
  CHECK(curve.at(Bytes::kib(16)).at(32) == Approx(2.25).epsilon(0.10));
  // The table of docs/drives.md.
  CHECK(curve.at(Bytes::kib(16)).at(32) == Approx(2.351).epsilon(0.01));
}

TEST_CASE("the read curve of the M1 Max rises with size and threads, up to the link") {
  const std::vector<Bytes> sizes{Bytes::kib(4),   Bytes::kib(8),   Bytes::kib(16),  Bytes::kib(32),  Bytes::kib(64),
                                 Bytes::kib(128), Bytes::kib(256), Bytes::kib(512), Bytes::kib(1024)};
  const std::vector<std::uint32_t> threads{1, 2, 4, 8, 16, 32, 64};
  const ReadCurve curve = read_curve_of_the_m1_max(4'000, sizes, threads);
  REQUIRE(curve.size() == sizes.size());
  const double link = 6.10, slack = 0.998;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto& row = curve.at(sizes[i]);
    REQUIRE(row.size() == threads.size());
    for (std::size_t j = 0; j < threads.size(); ++j) {
      INFO(sizes[i].value << " B, " << threads[j] << " threads");
      const double rate = row.at(threads[j]);
      CHECK(rate < link);
      // Where the link is full, a point may be a little below its neighbour: the last reads of a run end one by one.
      if (j > 0) CHECK(rate >= slack * row.at(threads[j - 1]));
      if (i > 0) CHECK(rate >= slack * curve.at(sizes[i - 1]).at(threads[j]));
      // Not limited by the link, twice the threads read nearly twice as much.
      if (j > 0 && rate < 0.5 * link) CHECK(rate > 1.8 * row.at(threads[j - 1]));
    }
  }
}

TEST_CASE("behind its switch, the engine of the SmartSSD reads keys at the rates of docs/drives.md") {
  struct Point {
    std::uint64_t kib;
    double published, simulated;  ///< GB/s, one request at a time
  };
  const std::vector<Point> curve{{4, 0.05, 0.067},    {8, 0.17, 0.1246},  {16, 0.31, 0.2182},  {32, 0.54, 0.4096},
                                 {64, 0.87, 0.7229},  {128, 1.21, 1.133}, {256, 1.55, 1.525},  {512, 1.37, 1.857},
                                 {1024, 1.59, 2.084}, {2048, 1.99, 2.22}, {4096, 2.15, 2.295}, {16384, 2.28, 2.354}};
  const auto file = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/drives/smartssd.yaml";
  csd_model::DriveConfig drive =
      csd_model::drive_config(experiment::load_scenario(file).points[0].scenario.platform.device, 0);
  REQUIRE(drive.peer_reads);
  const auto rate = [&](Bytes size, std::uint32_t outstanding) {
    drive.peer_reads->request_size = size;
    drive.peer_reads->outstanding = outstanding;
    const std::uint16_t heads = outstanding > 1 ? 32 : 4;
    const std::uint64_t keys = outstanding > 1 ? Bytes::mib(64).value : std::max(Bytes::mib(1), size * 4).value;
    test::LongContext host(drive, heads, static_cast<std::uint32_t>(keys / heads / 256));
    return static_cast<double>(host.key_bytes()) / (static_cast<double>(host.score(ScorePrecision::int8).ps) * 1e-3);
  };
  for (const Point& point : curve) {
    INFO(point.kib << " KiB, published " << point.published);
    CHECK(rate(Bytes::kib(point.kib), 1) == Approx(point.simulated).epsilon(0.02));
  }
  // Published for many requests at a time: 2.85 to 3.25 GB/s.
  CHECK(rate(Bytes::mib(1), 32) == Approx(3.2).epsilon(0.03));
}

}  // namespace test_drives
