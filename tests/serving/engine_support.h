// A serving engine over a table of rates.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>

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
  ModelShape model = small_model();
  std::uint64_t loses_every = 0;                           ///< so many reads of drives one fails; 0: none does
  std::optional<std::uint64_t> host_blocks, drive_blocks;  ///< none: there is no such tier
  TransportRates rates{.copy = Bandwidth{20'000'000'000},
                       .copy_latency = {},
                       .read = Bandwidth{5'000'000'000},
                       .write = Bandwidth{4'000'000'000},
                       .read_latency = {},
                       .write_latency = {}};
};

/// A small file system.
inline KvFiles::Config small_files() {
  KvFiles::Config files{.files = {.directories = 4, .journal = Bytes::kib(64)}, .io = {}, .capacity = Bytes::mib(1)};
  files.io.io_overhead = SimTime::microseconds(2);
  return files;
}

inline KvFiles::Config files_without_time() {
  KvFiles::Config files = small_files();
  files.io.io_overhead = files.files.open_time = files.files.create_time = files.files.rename_time =
      files.files.unlink_time = SimTime{};
  return files;
}

/// Settings of any policies that go together. The GPU has one of these numbers of blocks.
inline EngineSettings random_settings(Rng& rng, const std::array<std::uint64_t, 3>& gpu_blocks,
                                      const ModelShape& model = small_model()) {
  const auto pick = [&](auto... values) {
    const std::array all{values...};
    return all[rng.below(all.size())];
  };
  EngineSettings settings;
  settings.model = model;
  EngineConfig& engine = settings.serving.engine;
  engine.factor = pick(1U, 2U, 4U);
  engine.gpu_blocks = gpu_blocks[rng.below(3)];
  engine.prefix_caching = rng.below(4) != 0;
  engine.most_running = pick(1U, 4U, 64U);
  engine.step_tokens = pick(64U, 512U, 8192U);
  engine.chunked_prefill = engine.step_tokens < 8192 || rng.below(2) == 0;
  engine.order = pick(AdmissionOrder::arrival, AdmissionOrder::shortest_prompt, AdmissionOrder::priority);
  engine.preemption = pick(Preemption::recompute, Preemption::swap);
  engine.swap_space = Bytes::mib(pick(1U, 1000U));
  engine.load = pick(LoadPolicy::prefetch_waiting, LoadPolicy::before_step, LoadPolicy::by_layer);
  engine.retrieval = pick(RetrievalPolicy::load, RetrievalPolicy::cheaper_of_both);
  engine.wait_for_pending = rng.below(2) == 0;
  engine.waits_for_stores = rng.below(4) == 0;
  settings.tiers.fills_staging_once = rng.below(4) == 0;
  engine.lookup_steps = pick(0U, 3U);
  engine.granularity = pick(StepGranularity::step, StepGranularity::layer);
  const StorePolicy store =
      pick(StorePolicy::write_through, StorePolicy::prompt_only, StorePolicy::write_back, StorePolicy::on_eviction);
  settings.tiers.store = traits_of(store);
  engine.stores_answers = settings.tiers.store.answers;
  engine.evicts_to_tiers = !settings.tiers.store.when_computed;
  settings.tiers.path = pick(DrivePath::staged, DrivePath::direct);
  settings.tiers.drives = pick(1U, 3U);
  settings.tiers.staging = Bytes::kib(pick(512U, 65536U));
  if (engine.load == LoadPolicy::by_layer && engine.granularity == StepGranularity::layer)
    settings.tiers.parts = model.layers;
  if (rng.below(3) != 0) settings.host_blocks = pick(8U, 100U);
  if (rng.below(3) != 0) settings.drive_blocks = pick(30U, 5000U);
  if (rng.below(2) == 0)
    settings.tiers.back_pressure =
        BackPressure::Config{.on = SimTime::microseconds(100), .off = SimTime::microseconds(50)};
  if (settings.host_blocks && settings.drive_blocks && settings.tiers.path == DrivePath::staged &&
      !settings.tiers.fills_staging_once && engine.retrieval == RetrievalPolicy::load && rng.below(2) == 0)
    engine.promotion = PromotionPolicy::at_lookup;
  settings.rates.read = settings.rates.write = Bandwidth{pick(0ULL, 50'000'000ULL, 5'000'000'000ULL)};
  if (settings.drive_blocks && rng.below(3) == 0) {
    KvFiles::Config& files = settings.tiers.files.emplace(small_files());
    files.files.directories = pick(1U, 16U);
    files.files.discard = rng.below(2) == 0;
    files.files.metadata_cache = Bytes::kib(pick(0U, 8U, 1024U));
    files.files.commit_interval = SimTime::microseconds(pick(10U, 5000U));
    files.files.write_back_interval = SimTime::microseconds(pick(30U, 30'000U));
    files.files.reserved = pick(Ratio{0, 1}, Ratio::of(1, 5));
    files.io.io_size = Bytes::kib(pick(4U, 128U));
    files.io.access = settings.tiers.path == DrivePath::direct ? FileAccess::direct : FileAccess::bounce;
    files.io.copy_bandwidth = Bandwidth{pick(0ULL, 2'000'000'000ULL)};
    files.threads = pick(1U, 8U);
  }
  settings.serving.instances = pick(1U, 2U);
  settings.serving.routing = pick(Routing::round_robin, Routing::prefix);
  return settings;
}

/// Drives of which reads fail.
class LosingTransport final : public RatesTransport {
 public:
  LosingTransport(const TransportRates& rates, std::uint64_t every) : RatesTransport(rates), every_(every) {}
  void read(const DriveRange& from, Place to, std::span<std::byte> bytes, ReadDone done) override {
    const bool lost = every_ > 0 && ++reads_ % every_ == 0;
    RatesTransport::read(from, to, bytes, [done = std::move(done), lost](bool) { done(!lost); });
  }

 private:
  std::uint64_t every_, reads_ = 0;
};

/// Serves a trace to its end.
class EngineRun {
 public:
  EngineRun(const EngineSettings& settings, const ServingTrace& trace, KvContents* contents = nullptr)
      : trace_(trace),
        transport_(settings.rates, settings.loses_every),
        tiers_(tiers_config(settings), tier(settings.host_blocks), tier(settings.drive_blocks), transport_, contents),
        cost_(settings.model, GpuModel(GpuConfig{})),
        engine_(engine_config(settings), cost_, trace_, tiers_, transport_, contents) {
    engine_.on_finished([this] { engine_.meter().finish(transport_.now()); });
    engine_.start();
    transport_.run();
    tiers_.sync([] {});
    transport_.run();
  }

  const ServingEngine& engine() const { return engine_; }
  const ServingMeter& meter() const { return engine_.meter(); }
  const KvTiers& tiers() const { return tiers_; }
  const StepCost& cost() const { return cost_; }
  SimTime now() const { return transport_.now(); }
  const LosingTransport& transport() const { return transport_; }
  /// A request that has ended, by its place in the trace.
  const ServedRequest& request(std::uint32_t index) const {
    for (const ServedRequest& r : meter().requests())
      if (r.life.id.value == index) return r;
    throw InternalError("the request has not ended");
  }

 private:
  static Bytes gpu_block(const EngineSettings& s) {
    return s.model.kv_bytes_per_token() * s.serving.engine.block_tokens;
  }
  static ServingEngine::Config engine_config(const EngineSettings& s) {
    ServingEngine::Config config = s.serving;
    config.engine.block_bytes = gpu_block(s);
    return config;
  }
  static KvTiersConfig tiers_config(const EngineSettings& s) {
    KvTiersConfig config = s.tiers;
    config.block_bytes = gpu_block(s) * s.serving.engine.factor;
    if (config.files)
      while (FileSystemLayout(config.files->files, config.files->capacity, config.whole_block()).files * config.drives <
             s.drive_blocks.value_or(1))
        config.files->capacity += Bytes::mib(1);
    return config;
  }
  static std::unique_ptr<KvBlockManager> tier(std::optional<std::uint64_t> blocks) {
    if (!blocks) return nullptr;
    return std::make_unique<KvBlockManager>(manager(blocks));
  }

  ServingTrace trace_;
  LosingTransport transport_;
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
    r.set_arrival(arrival);
    r.prompt = input;
    r.output = output;
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
