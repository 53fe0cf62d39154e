// Rooflines against their closed forms.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/experiments.h"

namespace test_roofline {

using namespace csdsim;

namespace {

nlohmann::ordered_json roofline_of(const std::vector<std::string>& sets = {}) {
  const std::string text = R"(csdsim: 1
name: roofline
model: {preset: opt-13b}
platform:
  gpu: {preset: a6000}
  device: {preset: instcsd-zynq7045, engine: {macs_per_cycle: 56}}
system: {kind: instinfer-dense}
workload: {kind: generation, batch: 64, input_tokens: 1024, output_tokens: 1024}
)";
  const auto loaded = experiment::load_scenario_text(text, "roofline.yaml", CSDSIM_SOURCE_DIR, sets);
  const scenario::Scenario& s = loaded.base.scenario;
  return s.workload->planned(s)["stats"]["roofline"];
}

constexpr double kLayers = 40, kWidth = 5120, kBatch = 64, kContext = 1024 + 512;

}  // namespace

TEST_CASE("the engine is bound by its kernels in projections and by them or the channels in attention") {
  const auto roofline = roofline_of();
  const double engine = 2 * 56 * 2 * 285e6, channels = 8 * 1.4e9;
  CHECK(roofline["context"] == kContext);
  CHECK(roofline["machines"]["drives"]["flops_per_s"].get<double>() == Approx(engine));
  CHECK(roofline["machines"]["drives"]["bytes_per_s"].get<double>() == Approx(channels));
  const auto& operators = roofline["operators"];
  CHECK(operators["projections"]["flops"].get<double>() == Approx(kLayers * 2 * kBatch * kWidth * 3 * kWidth));
  CHECK(operators["projections"]["seconds"]["drives"].get<double>() ==
        Approx(kLayers * 2 * kBatch * kWidth * 3 * kWidth / engine));
  // Q K^T and the weighted sum of V: four operations per element of K, which has two bytes, as has V.
  CHECK(operators["attention"]["flops"].get<double>() == Approx(kLayers * 4 * kWidth * kBatch * kContext));
  CHECK(operators["attention"]["flops_per_byte"].get<double>() == Approx(1).epsilon(0.001));
  CHECK(operators["attention"]["seconds"]["drives"].get<double>() ==
        Approx(kLayers * 4 * kWidth * kBatch * kContext / channels).epsilon(0.001));
}

TEST_CASE("with a slow kernel attention is bound by the engine; drives multiply") {
  const auto slow = roofline_of({"platform.device.engine.macs_per_cycle=4"});
  const double engine = 2 * 4 * 2 * 285e6;
  CHECK(slow["operators"]["attention"]["seconds"]["drives"].get<double>() ==
        Approx(kLayers * 4 * kWidth * kBatch * kContext / engine));
  const auto four = roofline_of({"platform.device.engine.macs_per_cycle=4", "platform.device.count=4"});
  CHECK(four["operators"]["attention"]["seconds"]["drives"].get<double>() ==
        Approx(kLayers * 4 * kWidth * kBatch * kContext / (4 * engine)));
}

TEST_CASE("a step is the sum of its operators, each on its machine") {
  const auto roofline = roofline_of();
  double gpu = 0, both = 0;
  for (const auto& [name, op] : roofline["operators"].items()) {
    gpu += op["seconds"]["gpu"].get<double>();
    both += op["seconds"][name == "attention" ? "drives" : "gpu"].get<double>();
  }
  CHECK(roofline["decode_step_s"]["gpu"].get<double>() == Approx(gpu));
  CHECK(roofline["decode_step_s"]["gpu_and_drives"].get<double>() == Approx(both));
}

TEST_CASE("GPUs divide the batch, and each reads all weights") {
  const auto four = roofline_of({"platform.gpu.count=4"}), one = roofline_of({"workload.batch=16"});
  CHECK(four["machines"]["gpu"]["flops_per_s"].get<double>() ==
        4 * one["machines"]["gpu"]["flops_per_s"].get<double>());
  for (const auto& [name, op] : four["operators"].items()) {
    CAPTURE(name);
    CHECK(op["flops"].get<double>() == 4 * one["operators"][name]["flops"].get<double>());
    CHECK(op["seconds"]["gpu"] == one["operators"][name]["seconds"]["gpu"]);
  }
}

TEST_CASE("without an engine the drives are no machine") {
  const auto roofline =
      roofline_of({"platform.device.preset=samsung-980-pro-2tb", "system.kind=host-kv", "workload.batch=16"});
  CHECK_FALSE(roofline["machines"].contains("drives"));
  CHECK_FALSE(roofline["decode_step_s"].contains("gpu_and_drives"));
}

}  // namespace test_roofline
