// Generation runs that exceed GPU or host memory fail with an error that says what would fit.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/integration/small_model.h"

namespace test_memory_capacity {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint32_t kPrompt = 300, kBatch = 4;

/// Timing of a model in the shape of opt-6m: 4 prompts of `tokens`, and `output` new ones each.
experiment::GenerationSetup setup_with(Bytes gpu, Bytes host, std::uint32_t tokens = kPrompt,
                                       std::uint32_t output = 4) {
  csd_model::DriveConfig drive = small_drive();
  drive.data = ftl::DataMode::timing;
  experiment::GenerationSetup setup =
      small_setup(drive, Prompts(kBatch, std::vector<host::TokenId>(tokens)), output, "instinfer-dense");
  setup.platform.gpu_memory = gpu;
  setup.platform.host_memory = host;
  return setup;
}

/// Peak of GPU memory in the prefill of one mini-batch: the weights, hidden states, q and output of a layer's
/// attention, its K and V, and those of the layer before, because the drive stores them more slowly than the GPU
/// computes them.
Bytes most_on_gpu(const host::ModelShape& m) {
  const std::uint64_t row = std::uint64_t{m.width} * m.element_bytes;
  return m.weight_bytes() + Bytes{row * kPrompt * kBatch * (1 + 1 + 1 + 2 + 2)};
}

}  // namespace

TEST_CASE("a prefill whose activations exceed GPU memory fails; the message says what is there and what would fit") {
  const host::ModelShape model = SmallModel::get().shape();
  const Bytes enough = most_on_gpu(model);
  CHECK_NOTHROW(experiment::run_generation(setup_with(enough, Bytes::gib(1))));
  CHECK_THROWS_AS(experiment::run_generation(setup_with(enough - Bytes{1}, Bytes::gib(1))), UserError);
  // Room for the weights and for a part of the activations.
  const auto tight = setup_with(model.weight_bytes() + Bytes::mib(2), Bytes::gib(1));
  CHECK_THROWS_AS(experiment::run_generation(tight), UserError);
  CHECK_THROWS_WITH(experiment::run_generation(tight), Contains("platform.gpu.memory") && Contains("gpu: ") &&
                                                           Contains("weights") && Contains("hidden") &&
                                                           Contains("would fit"));
}

TEST_CASE("K and V in transfer through host memory count there") {
  constexpr std::uint32_t kLong = 2400;
  const host::ModelShape model = SmallModel::get().shape();
  const Bytes kv = model.kv_bytes_per_token_and_layer() * (kLong * kBatch);
  auto setup = setup_with(Bytes::gib(1), Bytes::gib(1), kLong);
  setup.plan.through_host = true;
  CHECK_NOTHROW(experiment::run_generation(setup));
  setup.platform.host_memory = kv - Bytes{1};  // more than the queues of the driver need
  CHECK_THROWS_WITH(experiment::run_generation(setup),
                    Contains("platform.host.memory") && Contains("new_kv") && Contains("would fit"));
}

TEST_CASE("sampled runs count the weights of the layers that they leave out, once") {
  // The prefill is simulated with all layers, and later steps with two: those of the prefill must not count again.
  const host::ModelShape model = SmallModel::get().shape();
  REQUIRE(model.layers > 2);
  auto sampled = [&](Bytes gpu) {
    auto setup = setup_with(gpu, Bytes::gib(1), kPrompt, 60);
    setup.sampling = {.layers = 2, .prefill_layers = model.layers, .steps = 2};
    return setup;
  };
  CHECK_NOTHROW(experiment::run_generation(sampled(most_on_gpu(model))));
  const Bytes tight = model.weight_bytes() + Bytes::mib(2);
  CHECK_THROWS_WITH(experiment::run_generation(sampled(tight)), Contains("platform.gpu.memory"));
}

}  // namespace test_memory_capacity
