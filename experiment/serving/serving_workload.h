// The experiment serving: requests that arrive are served by engines whose KV blocks go to host memory and drives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/param.h"
#include "base/quantity.h"
#include "host_runtime/core/serving/engine/serving_engine.h"
#include "scenario/experiment.h"

namespace csdsim::experiment {

/// Kinds of csdsim's own traces (host_runtime/core/serving/generate_trace.h).
enum class GeneratedKind : std::uint8_t { poisson, bursts, chats, agents, closed_loop };

/// Section `workload.generate`. What is not given has the default of the kind.
struct GenerateConfig {
  GeneratedKind kind = GeneratedKind::chats;
  std::optional<std::uint32_t> requests, input_tokens, output_tokens, prefixes, prefix_tokens, most_tokens, clients;
  std::optional<std::uint32_t> block_tokens;
  std::optional<SimTime> gap, delay;
  std::optional<Ratio> turns, burst;
};

/// Section `workload.engine`.
struct ServingEngineConfig {
  std::uint32_t instances = 1;
  host::Routing routing = host::Routing::round_robin;
  Ratio gpu_memory_share = Ratio::of(9, 10);
  Bytes runtime_memory = Bytes::gib(2);
  std::uint32_t block_tokens = 16;
  std::uint32_t kv_element_bytes = 2;
  bool prefix_caching = true;
  std::uint32_t most_running = 256;
  std::uint32_t step_tokens = 8192;
  bool chunked_prefill = true;
  host::AdmissionOrder order = host::AdmissionOrder::arrival;
  host::Preemption preemption = host::Preemption::recompute;
  Bytes swap_space = Bytes::gib(4);
  host::StepGranularity granularity = host::StepGranularity::step;
  SimTime step_overhead = SimTime::microseconds(500);
  bool unified_memory = false;
};

/// How a tier behind the GPU keeps its blocks.
struct TierConfig {
  std::string eviction = "lru";
  std::string admission = "always";
};

/// Section `workload.tiers.host`.
struct HostTierConfig : TierConfig {
  Bytes capacity = Bytes::gib(32);
};

/// How drives are modelled.
enum class DriveModel : std::uint8_t { simulated, rates };

/// Section `workload.tiers.drives`.
struct DriveTierConfig : TierConfig {
  std::optional<Bytes> capacity;  ///< capacity of each drive; unset: what the drive exports
  host::DrivePath path = host::DrivePath::staged;
  Bytes staging = Bytes::gib(4);
  bool fills_staging_once = false;
  std::uint32_t in_flight = 8;
  std::optional<Bytes> request;
  std::optional<host::KvFilesConfig> files;
  DriveModel model = DriveModel::simulated;
};

/// Section `workload.tiers.back_pressure`.
struct BackPressureConfig {
  SimTime on = SimTime::milliseconds(1000), off = SimTime::milliseconds(500);
};

/// Section `workload.tiers`.
struct TiersConfig {
  std::optional<std::uint32_t> block_tokens;  ///< unset: those of the trace
  host::StorePolicy store = host::StorePolicy::write_through;
  host::LoadPolicy load = host::LoadPolicy::prefetch_waiting;
  host::RetrievalPolicy retrieval = host::RetrievalPolicy::load;
  host::PromotionPolicy promotion = host::PromotionPolicy::with_load;
  bool wait_for_pending = false;
  std::uint32_t lookup_steps = 0;
  bool waits_for_stores = false;
  std::optional<HostTierConfig> host = HostTierConfig{};
  std::optional<DriveTierConfig> drives = DriveTierConfig{};
  std::optional<BackPressureConfig> back_pressure;
};

/// Section `workload.slo`: a request is good if it keeps all that is given.
struct SloConfig {
  std::optional<SimTime> ttft, tpot, latency;
};

struct ServingWorkload final : scenario::CopyableExperiment<ServingWorkload> {
  static constexpr std::string_view kKind = "serving";
  static constexpr std::string_view kDoc =
      "Requests that arrive are served by engines with KV blocks in GPU, host memory and drives.";
  std::optional<InputPath> requests;
  std::optional<GenerateConfig> generate;
  std::optional<std::uint32_t> first_requests;
  std::optional<SimTime> interarrival;
  Ratio speed{1, 1};
  std::uint32_t warmup_requests = 0;
  ServingEngineConfig engine;
  TiersConfig tiers;
  std::optional<SloConfig> slo;

  void describe(ParamVisitor& v) override;
  void check(scenario::Checker& c) override;
  void prune(nlohmann::ordered_json& config, const scenario::Scenario& scenario) const override;
  bool attends() const override { return false; }
  bool has_prometheus_text() const override { return true; }
  /// Real tokens are compared with those of each request alone, which needs all of them.
  bool ends_early(const scenario::Scenario& scenario) const override;
  bool writes_blocks(const scenario::Scenario&) const override { return tiers.drives.has_value(); }
  std::optional<host::FilePath> file_path(const scenario::Scenario&) const override;
  bool has_files() const { return tiers.drives && tiers.drives->files; }
  nlohmann::ordered_json planned(const scenario::Scenario& scenario) const override;
  std::vector<MetricInfo> metrics(const scenario::Registries&) const override;
  scenario::RunResult run(const scenario::Scenario& scenario, const scenario::RunOptions& options) const override;

  /// Tokens of a block of the tiers.
  std::uint32_t tier_block_tokens() const;
  /// The configuration of the engines. After check().
  host::ServingEngine::Config engine_config(const scenario::Scenario& scenario) const;
  /// K and V of a token in all layers, as the engine keeps them.
  Bytes kv_token(const scenario::Scenario& scenario) const;
  host::KvTiersConfig tiers_config(const scenario::Scenario& scenario) const;
  /// Blocks of the tiers that the drives hold together, each in whole logical blocks, or in a file.
  std::uint64_t drive_blocks(const scenario::Scenario& scenario, Bytes exported) const;

  std::shared_ptr<const host::ServingTrace> trace;  ///< what check() reads or generates, with the arrivals that count
};

void describe(ParamVisitor& v, GenerateConfig& c);
void describe(ParamVisitor& v, ServingEngineConfig& c);
void describe(ParamVisitor& v, HostTierConfig& c);
void describe(ParamVisitor& v, DriveTierConfig& c);
void describe(ParamVisitor& v, BackPressureConfig& c);
void describe(ParamVisitor& v, TiersConfig& c);
void describe(ParamVisitor& v, SloConfig& c);

}  // namespace csdsim::experiment

namespace csdsim {

template <>
struct EnumValues<experiment::GeneratedKind> {
  static constexpr EnumValue<experiment::GeneratedKind> values[] = {
      {experiment::GeneratedKind::poisson, "poisson", "Independent requests."},
      {experiment::GeneratedKind::bursts, "bursts", "Several requests arrive together."},
      {experiment::GeneratedKind::chats, "chats", "Chats of several turns, each with all that was said before."},
      {experiment::GeneratedKind::agents, "agents", "Agents that come back after each tool call."},
      {experiment::GeneratedKind::closed_loop, "closed-loop",
       "A fixed number of clients, one request each at a time."}};
};
template <>
struct EnumValues<experiment::DriveModel> {
  static constexpr EnumValue<experiment::DriveModel> values[] = {
      {experiment::DriveModel::simulated, "simulated", "Every page of the flash is simulated."},
      {experiment::DriveModel::rates, "rates",
       "A table of rates and latencies, measured on the simulated drive before the run: no collection, no wear."}};
};

}  // namespace csdsim
