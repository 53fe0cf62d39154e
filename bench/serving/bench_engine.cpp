// Requests that serving engines serve per second with drives as a table of rates. Host wall time, one core; the goal is
// 2,000 requests of Mooncake's conversation trace per second. The chats here have prompts of 12,000 tokens on average,
// as that trace has, and 343 tokens out.
#include <benchmark/benchmark.h>

#include <memory>
#include <stdexcept>

#include "host_runtime/core/serving/engine/rates_transport.h"
#include "host_runtime/core/serving/engine/serving_engine.h"
#include "host_runtime/core/serving/generate_trace.h"
#include "host_runtime/core/serving/policy_registry.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;

constexpr std::uint32_t kRequests = 2000;

ServingTrace chats() {
  for (const TraceKind& kind : trace_kinds()) {
    if (kind.name != "chats") continue;
    TraceGeneration g = kind.defaults;
    g.requests = kRequests;
    g.input_tokens = 3000;
    g.output_tokens = 343;
    g.turns = 6;
    g.gap = SimTime::milliseconds(300);
    g.delay = SimTime::milliseconds(60'000);
    return kind.generate(g);
  }
  throw std::logic_error("no chats");
}

/// Llama-3.1-8B.
ModelShape model() {
  return {.layers = 32,
          .width = 4096,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = 14'336,
          .vocab = 128'256,
          .ffn_matrices = 3,
          .biases = Biases::none,
          .tied_embeddings = false};
}

std::unique_ptr<KvBlockManager> tier(std::uint64_t blocks) {
  return std::make_unique<KvBlockManager>(KvBlockManager::Config{.capacity = blocks},
                                          builtin_eviction_policies().at("lru")({blocks, {}}),
                                          builtin_admission_policies().at("always")({blocks, {}}));
}

void serve(benchmark::State& state) {
  const ServingTrace trace = chats();
  const StepCost cost(model(), GpuModel(GpuConfig{}));
  const Bytes block = model().kv_bytes_per_token() * 16;
  double hits = 0, tokens = 0;
  for (auto _ : state) {
    TransportRates rates;
    rates.copy = Bandwidth{25'000'000'000};
    rates.read = Bandwidth{12'000'000'000};
    rates.write = Bandwidth{8'000'000'000};
    RatesTransport transport(rates);
    KvTiersConfig config;
    config.block_bytes = block * 32;
    config.drives = 4;
    config.staging = Bytes::gib(4);
    KvTiers tiers(config, tier(2000), tier(100'000), transport);
    ServingEngine::Config engines;
    engines.engine.gpu_blocks = 20'000;
    engines.engine.block_bytes = block;
    engines.engine.factor = 32;
    engines.engine.step_tokens = 2048;
    engines.instances = 8;
    ServingEngine engine(engines, cost, trace, tiers, transport);
    engine.start();
    transport.run();
    for (const ServedRequest& request : engine.meter().requests()) {
      hits += double(request.hit_gpu + request.hit_host + request.hit_drives);
      tokens += request.life.prompt;
    }
  }
  state.SetItemsProcessed(state.iterations() * kRequests);
  state.counters["hit_rate"] = hits / tokens;
}

BENCHMARK(serve)->Unit(benchmark::kMillisecond);

}  // namespace
