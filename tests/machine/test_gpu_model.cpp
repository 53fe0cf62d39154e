#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/model/model_shape.h"
#include "tests/support/planner_support.h"
#include "tests/support/presets.h"

namespace test_gpu_model {

using namespace csdsim;
using namespace csdsim::host;

namespace {

GpuConfig round_gpu() {
  GpuConfig gpu;
  gpu.fp16_rate = {1'000'000'000'000};
  gpu.memory_bandwidth = {1'000'000'000};
  gpu.kernel_launch = SimTime::microseconds(5);
  gpu.efficiency = {.gemm = Ratio::of(1, 2),
                    .gemv = Ratio::of(4, 5),
                    .attention_prefill = Ratio::of(1, 4),
                    .attention_decode = Ratio::of(1, 1),
                    .elementwise = Ratio::of(1, 2)};
  return gpu;
}

}  // namespace

TEST_CASE("roofline: the slower of arithmetic and memory, each at its share, plus the launches") {
  const GpuModel gpu(round_gpu());
  // 10^9 flops at 0.5 T/s: 2 ms; 10^5 bytes at 0.8 GB/s: 125 us.
  CHECK(gpu.time({.op = OperatorClass::gemm,
                  .flops = 1'000'000'000,
                  .weights = {60'000},
                  .activations = {40'000},
                  .launches = 3}) == SimTime::microseconds(2015));
  // 10^8 bytes at 0.8 GB/s: 125 ms.
  CHECK(gpu.time({.op = OperatorClass::gemm, .flops = 1'000'000'000, .weights = {100'000'000}, .launches = 0}) ==
        SimTime::milliseconds(125));
  CHECK(gpu.time({.op = OperatorClass::attention, .flops = 1'000'000'000, .launches = 9}) ==
        SimTime::microseconds(4045));
  CHECK(gpu.time({.op = OperatorClass::attention, .activations = {500'000}, .launches = 0}) ==
        SimTime::microseconds(500));
  CHECK(gpu.time({.op = OperatorClass::elementwise, .activations = {500'000}, .launches = 2}) ==
        SimTime::microseconds(1010));
  // Rounded up to a picosecond: one flop at 0.25 T/s is 4 ps, three bytes at 0.8 GB/s 3750 ps.
  CHECK(gpu.time({.op = OperatorClass::attention, .flops = 1, .launches = 0}).ps == 4);
  CHECK(gpu.time({.op = OperatorClass::gemm, .flops = 0, .weights = {3}, .launches = 0}).ps == 3750);
  CHECK(gpu.time({.op = OperatorClass::gemm, .flops = 3, .launches = 0}).ps == 6);
}

TEST_CASE("rates by rows replace those of matrix products") {
  GpuConfig config = round_gpu();
  config.gemm_by_rows = {.rows = {100, 300}, .rates = {{1'000'000'000'000}, {1'500'000'000'000}}};
  const GpuModel gpu(config);
  const auto product = [&](std::uint64_t rows) {
    return gpu.time({.op = OperatorClass::gemm, .flops = 2'000'000 * rows, .weights = {2'000'000}, .launches = 0});
  };
  // Reading the matrix takes 2.5 ms; 100 rows take 0.2 ms, 300 rows 0.4 ms, which is less.
  CHECK(product(100) == SimTime::microseconds(2500));
  config.memory_bandwidth = {1'000'000'000'000};
  const GpuModel fast(config);
  const auto compute = [&](std::uint64_t rows, std::uint64_t matrix) {
    return fast.time({.op = OperatorClass::gemm, .flops = matrix * rows, .weights = {matrix}, .launches = 0});
  };
  CHECK(compute(100, 2'000'000) == SimTime::microseconds(200));
  CHECK(compute(200, 2'000'000).seconds() == Approx(300e-6));
  CHECK(compute(300, 2'000'000) == SimTime::microseconds(400));
  CHECK(compute(600, 2'000'000) == SimTime::microseconds(800));
  CHECK(fast.time({.op = OperatorClass::attention, .flops = 1'000'000'000, .launches = 0}) ==
        SimTime::microseconds(4000));
  config.gemm_by_rows.rates.pop_back();
  CHECK_THROWS_AS(GpuModel(config), UserError);
}

TEST_CASE("very large operators do not overflow") {
  const GpuModel gpu(csdsim::test::gpu_preset("a6000"));
  const ModelShape m = csdsim::test::model_preset("opt-175b");
  const SimTime t = gpu.time(m.finish_layer(1'000'000));
  CHECK(t.seconds() == Approx(2e6 * (12288.0 * 12288 + 2.0 * 12288 * 49152) / (155e12 * 0.7)).epsilon(1e-4));
}

TEST_CASE("a decode step of OPT-13B on an A6000 reads the weights once") {
  const GpuModel gpu(csdsim::test::gpu_preset("a6000"));
  const ModelShape m = csdsim::test::model_preset("opt-13b");
  const SimTime step = (gpu.time(m.attention_inputs(64)) + gpu.time(m.finish_layer(64))) * m.layers +
                       gpu.time(m.sample(64)) + gpu.time(m.embed(64));
  // 25.7 GB at 80 % of 768 GB/s is 41.8 ms; activations and launches come on top.
  CHECK(step.seconds() > 0.0418);
  CHECK(step.seconds() < 0.0418 * 1.1);
}

TEST_CASE("gpu mistakes are named") {
  GpuConfig gpu = round_gpu();
  gpu.efficiency.attention_decode = Ratio::of(3, 2);
  CHECK_THROWS_WITH(GpuModel(gpu), Catch::Contains("attention_decode: 1.5 is not in (0, 1]"));
  gpu = round_gpu();
  gpu.fp16_rate = {};
  CHECK_THROWS_WITH(GpuModel(gpu), Catch::Contains("fp16_rate"));
  gpu = round_gpu();
  gpu.memory_bandwidth = {};
  CHECK_THROWS_WITH(GpuModel(gpu), Catch::Contains("memory_bandwidth"));
}

TEST_CASE("every GPU preset is a GPU") {
  const auto names = scenario::Presets::builtin().names("gpu");
  CHECK(names.size() >= 6);
  for (const std::string& name : names) CHECK_NOTHROW(GpuModel(csdsim::test::gpu_preset(name)));
  CHECK(csdsim::test::gpu_preset("a100").memory_bandwidth == Bandwidth{1'555'000'000'000});
  CHECK_THROWS_WITH(csdsim::test::gpu_preset("a600"), Catch::Contains("a6000"));
}

TEST_CASE("an operator is measured once, and the GPU takes what was measured") {
  int asked = 0;
  const ComputeWork known{.op = OperatorClass::gemm, .flops = 10, .weights = Bytes{4}};
  const auto table = std::make_shared<OperatorTable>(
      [&](const ComputeWork& work) {
        ++asked;
        return SimTime{static_cast<std::int64_t>(work.flops)};
      },
      OperatorTable::Entries{{known, SimTime{77}}});
  const GpuModel gpu(round_gpu(), table);
  CHECK(gpu.time(known).ps == 77);
  ComputeWork other = known;
  for (const std::uint64_t flops : {5u, 6u, 5u, 6u}) {
    other.flops = flops;
    CHECK(gpu.time(other).ps == static_cast<std::int64_t>(flops));
  }
  other.launches = 2;
  gpu.time(other);
  CHECK(asked == 3);
  CHECK(table->entries().size() == 4);
}

}  // namespace test_gpu_model
