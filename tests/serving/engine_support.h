// A serving engine over a table of rates.
#pragma once

#include <memory>
#include <optional>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/serving/engine/rates_transport.h"
#include "host_runtime/core/serving/engine/serving_engine.h"
#include "tests/serving/serving_support.h"
#include "tests/support/small_model.h"

namespace csdsim::host::test {

struct EngineSettings {
  EngineSettings() {
    serving.engine.gpu_blocks = 4096;
    tiers.drives = 1;
    tiers.staging = Bytes::mib(64);
  }
  ServingEngine::Config serving;
  KvTiersConfig tiers;
  std::optional<std::uint64_t> host_blocks, drive_blocks;  ///< none: there is no such tier
  TransportRates rates{.copy = Bandwidth{20'000'000'000},
                       .copy_latency = {},
                       .read = Bandwidth{5'000'000'000},
                       .write = Bandwidth{4'000'000'000},
                       .read_latency = {},
                       .write_latency = {}};
};

/// Serves a trace to its end.
class EngineRun {
 public:
  EngineRun(const EngineSettings& settings, const ServingTrace& trace)
      : trace_(trace),
        transport_(settings.rates),
        tiers_(tiers_config(settings), tier(settings.host_blocks), tier(settings.drive_blocks), transport_),
        cost_(small_model(), GpuModel(GpuConfig{})),
        engine_(engine_config(settings), cost_, trace_, tiers_, transport_) {
    engine_.start();
    transport_.run();
    engine_.meter().finish(transport_.now());
  }

  const ServingEngine& engine() const { return engine_; }
  const ServingMeter& meter() const { return engine_.meter(); }
  const KvTiers& tiers() const { return tiers_; }
  const StepCost& cost() const { return cost_; }
  SimTime now() const { return transport_.now(); }
  /// A request that has ended, by its place in the trace.
  const ServedRequest& request(std::uint32_t index) const {
    for (const ServedRequest& r : meter().requests())
      if (r.life.id.value == index) return r;
    throw InternalError("the request has not ended");
  }

 private:
  static Bytes gpu_block(const EngineSettings& s) {
    return small_model().kv_bytes_per_token() * s.serving.engine.block_tokens;
  }
  static ServingEngine::Config engine_config(const EngineSettings& s) {
    ServingEngine::Config config = s.serving;
    config.engine.block_bytes = gpu_block(s);
    return config;
  }
  static KvTiersConfig tiers_config(const EngineSettings& s) {
    KvTiersConfig config = s.tiers;
    config.block_bytes = gpu_block(s) * s.serving.engine.factor;
    return config;
  }
  static std::unique_ptr<KvBlockManager> tier(std::optional<std::uint64_t> blocks) {
    if (!blocks) return nullptr;
    return std::make_unique<KvBlockManager>(manager(blocks));
  }

  ServingTrace trace_;
  RatesTransport transport_;
  KvTiers tiers_;
  StepCost cost_;
  ServingEngine engine_;
};

/// A trace of requests with these prompts, that share nothing unless their blocks say so.
class TraceOf {
 public:
  explicit TraceOf(std::uint32_t block_tokens) {
    trace_.block_tokens = block_tokens;
    trace_.name = "trace";
  }
  TraceOf& add(SimTime arrival, std::uint32_t input, std::uint32_t output,
               std::initializer_list<std::uint64_t> blocks) {
    TracedRequest r;
    r.line = trace_.requests.size() + 1;
    r.arrival = arrival;
    r.input_tokens = input;
    r.output_tokens = output;
    r.first_block = trace_.blocks.size();
    r.blocks = static_cast<std::uint32_t>(blocks.size());
    for (const std::uint64_t block : blocks) trace_.blocks.push_back({splitmix64(block)});
    trace_.requests.push_back(r);
    return *this;
  }
  const ServingTrace& trace() const { return trace_; }

 private:
  ServingTrace trace_;
};

}  // namespace csdsim::host::test
