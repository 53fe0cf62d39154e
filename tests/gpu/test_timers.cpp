// The measurement of operators. On the emulated GPU every time is known: 1 ps per operation of a product of cuBLASLt, 1
// us for any other kernel.
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

#include "host_runtime/cuda/conditions.h"
#include "host_runtime/cuda/layer_timer.h"
#include "host_runtime/cuda/operator_timer.h"
#include "tests/gpu/device_values.h"
#include "tests/gpu/harness.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;
using namespace gpu_test;

ModelConfig model(Architecture architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.layers = 2;
  c.heads = 2;
  c.kv_heads = architecture == Architecture::opt ? 2 : 1;
  c.head_dim = 16;
  c.width = 32;
  c.ffn = 64;
  c.vocab = 61;
  c.max_positions = 256;
  c.tied_embeddings = architecture == Architecture::opt;
  return c;
}

constexpr std::array kAll{LayerOperator::embed,        LayerOperator::attention_inputs,
                          LayerOperator::recompute_kv, LayerOperator::finish_attention,
                          LayerOperator::feed_forward, LayerOperator::finish_layer,
                          LayerOperator::sample};

GPU_TEST("the operators of a layer are measured with all their kernels, prompts as prompts") {
  for (const Architecture family : {Architecture::opt, Architecture::llama, Architecture::qwen2}) {
    const ModelConfig c = model(family);
    const bool gated = family != Architecture::opt;
    LayerTimer timer(context(), c);
    for (const std::uint64_t rows : {1u, 8u, 16u}) {
      // Products of few rows are kernels of our own; more are cuBLASLt's.
      const auto product = [&](double n, double k) { return rows <= 8 ? 1e-6 : 2e-12 * double(rows) * n * k; };
      const double kernel = 1e-6, qkv = product(c.q_width() + 2 * c.kv_width(), c.width),
                   out = product(c.width, c.q_width()), down = product(c.width, c.ffn),
                   up = product((gated ? 2 : 1) * c.ffn, c.width) + (gated && rows > 8 ? kernel : 0);
      const double exact[] = {kernel,
                              kernel + qkv + kernel,
                              kernel + product(2 * c.kv_width(), c.width) + (gated ? kernel : 0),
                              out + kernel,
                              up + down,
                              out + kernel + up + down,
                              kernel + product(c.vocab, c.width)};
      for (std::size_t i = 0; i < kAll.size(); ++i) {
        const MeasuredSeconds found = timer.seconds({.op = kAll[i], .rows = rows});
        EXPECT(found.fastest > 0 && found.fastest <= found.median && found.median <= found.slowest);
        if (kEmulated && std::abs(found.median - exact[i]) > 1e-4 * exact[i])
          report("operator " + std::to_string(i) + " of " + std::to_string(rows) +
                     " rows: " + std::to_string(1e6 * found.median) + " us, expected " + std::to_string(1e6 * exact[i]),
                 __FILE__, __LINE__);
      }
    }
    const MeasuredSeconds step = timer.seconds({.op = LayerOperator::step_attention, .rows = 3, .attended = 50}),
                          prompt = timer.seconds({.op = LayerOperator::prompt_attention, .rows = 3, .attended = 50}),
                          part = timer.seconds(
                              {.op = LayerOperator::prompt_attention, .rows = 3, .attended = 50, .share = 0.5});
    EXPECT(step.median > 0 && prompt.median > 0);
    if (kEmulated) EXPECT(std::abs(part.median - 0.5 * prompt.median) < 1e-12);
  }
}

GPU_TEST("work that is no operator of a layer is measured by its class, operations and bytes") {
  OperatorTimer timer(context());
  const auto seconds = [&](const ComputeWork& work) { return timer.seconds(work).median; };
  const ComputeWork copies{.op = OperatorClass::elementwise, .flops = 100, .activations = Bytes{6000}, .launches = 3};
  EXPECT(seconds(copies) > 0);
  if (kEmulated) EXPECT(std::abs(seconds(copies) - 3e-6) < 1e-10);
  const Bytes weights{2 * 64 * 64};
  const ComputeWork product{.op = OperatorClass::gemm, .flops = 16 * weights.value, .weights = weights};
  if (kEmulated) EXPECT(std::abs(seconds(product) - 2e-12 * 16 * 64 * 64) < 1e-12);
}

GPU_TEST("clocks and the power limit are those that NVML states, or the highest clocks that CUDA knows") {
  const cuda::Conditions c = cuda::present_conditions();
  note(c.source + ": SM " + std::to_string(c.sm_mhz) + " of " + std::to_string(c.most_sm_mhz) + " MHz, memory " +
       std::to_string(c.memory_mhz) + " of " + std::to_string(c.most_memory_mhz) + " MHz, " +
       std::to_string(c.power_limit_w) + " W");
  EXPECT(c.source == "NVML" || c.source == "CUDA");
  if (std::getenv("CSDSIM_TEST_FAKE_NVML") != nullptr) {  // tests/gpu/emulation/nvml.cpp
    EXPECT(c.source == "NVML" && c.sm_mhz == 1755 && c.memory_mhz == 2619 && c.most_sm_mhz == 1980 &&
           c.most_memory_mhz == 2620 && c.power_limit_w == 650);
  } else if (c.source == "CUDA") {
    EXPECT(c.sm_mhz == 0 && c.power_limit_w == 0 && c.most_sm_mhz >= 0);
    if (kEmulated) EXPECT(c.most_sm_mhz == 1 && c.most_memory_mhz == 1);
  }
}

}  // namespace

int main(int argc, char** argv) { return gpu_test::run(argc, argv, true); }
