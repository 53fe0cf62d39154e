// Measured GPU times go into a result and come back from it.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "experiment/checkpoint/operator_times.h"

namespace test_gpu_times {

using namespace csdsim;

TEST_CASE("operator times survive result.json to the picosecond; a missing one is named") {
  host::OperatorTable measured([](const host::ComputeWork& work) {
    return SimTime::picoseconds(static_cast<std::int64_t>(work.flops) * 12'345'678'901);
  });
  std::vector<host::ComputeWork> all;
  for (std::uint32_t i = 0; i < 6; ++i) {
    all.push_back({.op = static_cast<host::OperatorClass>(i % 3),
                   .flops = 100 + i,
                   .weights = Bytes{std::uint64_t{i} << 33},
                   .activations = Bytes{i},
                   .launches = i});
    measured.time(all.back());
  }
  const auto file = std::filesystem::temp_directory_path() / "csdsim_gpu_times.json";
  nlohmann::ordered_json document;
  document["gpu_operators"] = experiment::to_json(measured);
  std::ofstream(file) << document.dump();

  host::GpuConfig gpu;
  CHECK(experiment::operator_times(gpu, {}) == nullptr);
  gpu.timing = host::GpuTiming::measured;
  gpu.times.emplace();
  gpu.times->path = file;
  const auto again = experiment::operator_times(gpu, {});
  CHECK(again->entries() == measured.entries());
  for (const host::ComputeWork& work : all) CHECK(again->time(work) == measured.time(work));
  CHECK_THROWS_WITH(again->time({.flops = 4711}), Catch::Contains("csdsim_gpu_times.json") && Catch::Contains("4711"));
  for (const char* const broken :
       {"", "{}", "[1]", R"({"gpu_operators": [{"op": "gemm"}]})", R"({"gpu_operators": 7})"}) {
    std::ofstream(file, std::ios::trunc) << broken;
    CHECK_THROWS_AS(experiment::operator_times(gpu, {}), UserError);
  }
  std::filesystem::remove(file);
}

}  // namespace test_gpu_times
