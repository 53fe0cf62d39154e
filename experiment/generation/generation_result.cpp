#include "experiment/generation/generation_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "experiment/block_io/background_io.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/generation/kv_counts.h"
#include "experiment/generation/planned_result.h"
#include "experiment/generation/request_result.h"
#include "experiment/measure/resource_use.h"
#include "experiment/result.h"
#include "host_runtime/core/systems/systems.h"
#include "scenario/registries.h"

namespace csdsim::experiment {

using host::TokenId;
using nlohmann::ordered_json;

namespace {

/// Use of the shared links in a phase, by direction.
ordered_json shared_links(const PhaseTotals& t, double gpus) {
  ordered_json uses = ordered_json::object();
  for (std::size_t kind = 0; kind < platform::kSharedLinkKinds; ++kind) {
    const bool of_gpu = kind < 2;
    const double busy = t.shared[kind].busy_s / (of_gpu ? gpus : 1);
    if (busy == 0) continue;
    uses[std::string(platform::kSharedLinkNames[kind])] = {{"bytes", t.shared[kind].bytes},
                                                           {"utilization", busy / t.seconds}};
  }
  return uses;
}

/// Energy of the drives in the decode steps, per step.
double energy_per_step(const scenario::Scenario& s, const PhaseTotals& decode, std::uint32_t steps) {
  csd_model::DriveWork work = decode;
  work.elapsed = decode.seconds * s.platform.device.count;
  return csd_model::total(drive_energy(s, work)) / steps;
}

/// Utilisations of a phase, means over what there are several of, and the resource that bounds it. `path`: its critical
/// path by resource, or null.
ordered_json phase_breakdown(const PhaseTotals& t, const scenario::Scenario& s,
                             const std::array<double, host::kPathResources>* path) {
  const csd_model::DeviceConfig& device = s.platform.device;
  const std::vector<ResourceUse> uses =
      resource_use(t,
                   {.drives = double(device.count),
                    .gpus = double(s.platform.gpu.count),
                    .io_cores = double(s.platform.host.io_cores.value_or(s.platform.host.cores))},
                   path);
  ordered_json utilization;
  for (const ResourceUse& use : uses) utilization[use.name] = use.utilization;
  // The busier direction of links.
  const auto busier = [&](const char* a, const char* b) {
    return std::max(utilization.value(a, 0.0), utilization.value(b, 0.0));
  };
  utilization["link"] = busier("link_to_drive", "link_to_host");
  if (device.engine.behind_switch()) utilization["internal_link"] = busier("from_controller", "to_controller");
  ordered_json shared = shared_links(t, s.platform.gpu.count);
  ordered_json phase = {{"seconds", t.seconds},
                        {"bound_by", bounding(uses, path != nullptr).name},
                        {"utilization", std::move(utilization)},
                        {"page_ops", t.page_ops},
                        {"bytes_flash_channel", t.channel_bytes},
                        {"bytes_engine", t.engine_bytes},
                        {"bytes_host_link", t.link_bytes},
                        {"flash_program_bytes_per_s", t.programmed_bytes / t.seconds}};
  if (device.engine.behind_switch()) phase["bytes_internal_link"] = t.internal_link_bytes;
  if (!shared.empty()) phase["shared_links"] = std::move(shared);
  phase["resources"] = to_json(uses, path != nullptr);
  return phase;
}

}  // namespace

ordered_json to_json(const Tokens& tokens) {
  ordered_json all = ordered_json::array();
  for (const auto& sequence : tokens) {
    ordered_json ids = ordered_json::array();
    for (const TokenId id : sequence) ids.push_back(id.value);
    all.push_back(std::move(ids));
  }
  return all;
}

ordered_json to_json(const host::FileTotals& totals) {
  return {{"ios", totals.ios},
          {"page_cache_hits", totals.cache_hits},
          {"bytes_wanted", totals.wanted.value},
          {"bytes_transferred", totals.transferred.value},
          {"bytes_written_back", totals.written_back.value},
          {"bytes_copied", totals.copied.value},
          {"thread_s", totals.thread_time.seconds()}};
}

ordered_json agreement(const Tokens& a, const Tokens& b) {
  std::uint64_t same = 0;
  std::uint64_t total = 0;
  ordered_json first = nullptr;
  for (std::size_t s = 0; s < a.size(); ++s)
    for (std::size_t i = 0; i < a[s].size(); ++i) {
      ++total;
      if (a[s][i] == b[s][i]) {
        ++same;
      } else if (first.is_null()) {
        first = {{"prompt", s}, {"token", i}};
      }
    }
  return {{"tokens_compared", total}, {"tokens_equal", same}, {"first_difference", std::move(first)}};
}

namespace {

using Value = std::optional<double>;

Value peak_of(const GenerationOutcome& out, host::PlaceKind kind) {
  Value peak;
  for (const auto& [place, bytes] : out.memory_peaks)
    if (place.kind == kind) peak = std::max(peak.value_or(0), double(bytes.value));
  return peak;
}

std::vector<GenerationMetric> metrics_of_power() {
  return power_metrics<MeasuredGeneration>(
      [](const MeasuredGeneration& run) { return run.out.power ? &*run.out.power : nullptr; });
}

std::vector<GenerationMetric> work_metrics() {
  return {
      {{"bytes_gpu_link", "B", "Copies over the links of the GPUs, both directions."},
       [](const MeasuredGeneration& run) -> Value {
         const double bytes = run.out.prefill.gpu_link_bytes + run.out.decode.gpu_link_bytes;
         return bytes > 0 ? Value(bytes) : std::nullopt;
       }},
      {{"gpu_memory_peak_bytes", "B",
        "Most that weights, K and V and activations take in the memory of the fullest GPU, over all layers and steps."},
       [](const MeasuredGeneration& run) { return peak_of(run.out, host::PlaceKind::gpu); }},
      {{"host_memory_peak_bytes", "B", "The same in host memory, without a page cache."},
       [](const MeasuredGeneration& run) { return peak_of(run.out, host::PlaceKind::host); }},
      {{"bytes_engine", "B", "Bytes that filters pass to the engine of the drives."},
       [](const MeasuredGeneration& run) { return run.out.prefill.engine_bytes + run.out.decode.engine_bytes; }},
      {{"energy_per_token_j", "J", "Energy of the drives per generated token.",
        "energy_j / (scenario.workload.batch * scenario.workload.output_tokens)"},
       [](const MeasuredGeneration& run) -> Value {
         const auto tokens = double(run.out.times.tokens());
         if (tokens <= 0) return std::nullopt;
         return csd_model::total(drive_energy(run.scenario, run.out.work)) / tokens;
       }},
      {{"energy_per_step_j", "J", "Energy of the drives in the decode steps, per step. Absent if requests arrive."},
       [](const MeasuredGeneration& run) -> Value {
         if (run.out.decode.seconds <= 0 || run.served) return std::nullopt;
         return energy_per_step(run.scenario, run.out.decode, run.out.times.decode_steps);
       }},
      {{"relative_error_estimate", "1",
        "Estimated relative error of prefill and decode time by sampling. The true error is larger in about one run of "
        "twenty (ADR 36)."},
       [](const MeasuredGeneration& run) -> Value {
         const double error = run.out.error.largest();
         return std::isfinite(error) ? Value(error) : std::nullopt;
       }},
  };
}

}  // namespace

std::vector<MetricInfo> GenerationWorkload::metrics(const scenario::Registries& registries) const {
  // A run that every system can plan, to ask its features.
  const host::PlannerInputs small{.model = {.layers = 2,
                                            .width = 64,
                                            .heads = 2,
                                            .kv_heads = 2,
                                            .head_dim = 32,
                                            .ffn = 256,
                                            .vocab = 128,
                                            .positions = 64},
                                  .workload = {{8}, 4, {1, 0, {}}}};
  std::vector<MetricInfo> all = infos_of(speed_metrics());
  for (const auto& more : {infos_of(error_metrics()), infos_of(metrics_of_power()), infos_of(work_metrics()),
                           infos_of(run_metrics(RunOf::generation)), request_metrics(), size_metrics(),
                           infos_of(background_metrics()), simulation_metrics()})
    all = joined(std::move(all), more);
  for (const auto& kind : registries.systems.items())
    for (const auto& feature : host::features_of(*kind.value(), small, host::LostKv::recompute))
      for (const host::FeatureMetric& metric : feature->metrics())
        if (std::ranges::find(all, metric.info) == all.end()) all.push_back(metric.info);
  return all;
}

void add_metrics(ordered_json& document, const GenerationOutcome& out, const scenario::Scenario& s) {
  ordered_json& metrics = document["metrics"];
  const MeasuredGeneration run(out, s, *s.system);
  const csd_model::EnergyBreakdown joules = drive_energy(s, out.work);
  add_metrics(metrics, speed_metrics(), run);
  add_metrics(metrics, error_metrics(), run);
  add_metrics(metrics, metrics_of_power(), run);
  for (const auto& [metric, value] : out.features)
    metrics[metric.info.name] = metric.whole ? ordered_json(static_cast<std::uint64_t>(value)) : ordered_json(value);
  add_metrics(metrics, work_metrics(), run);
  add_metrics(metrics, run_metrics(RunOf::generation),
              RunWork{.work = out.work,
                      .energy = joules,
                      .energy_bytes = out.work.channel_bytes,
                      .issued = out.requests_issued,
                      .completed = out.requests_completed});
  for (const MetricInfo& requests : request_metrics()) metrics[requests.name] = out.times.batch;
  add_simulated(metrics, out.simulated.seconds(), out.simulated_page_ops);
  ordered_json& breakdown = document["breakdown"];
  breakdown["energy"] = energy_breakdown(s, joules);
  breakdown["prefill"] = phase_breakdown(out.prefill, s, nullptr);
  if (out.decode.seconds <= 0) return;
  // No single path leads through the decode steps of requests that arrive at their own times.
  breakdown["decode"] = phase_breakdown(out.decode, s, run.served ? nullptr : &out.times.decode_resource_s);
  if (run.served) return;
  ordered_json path;
  for (std::size_t i = 0; i < host::kPathParts; ++i)
    path[std::string(host::kPathPartNames[i])] = out.times.decode_path_s[i];
  breakdown["decode"]["critical_path_s"] = std::move(path);
}

std::string meaning(const GenerationOutcome& out, const ordered_json& document) {
  const ordered_json& breakdown = document["breakdown"];
  const auto share = [](const ordered_json& phase) {
    const std::string bound = phase["bound_by"];
    const ordered_json& use = phase["resources"][bound];
    const double busy = 100 * use["utilization"].get<double>();
    if (!use.contains("path_share")) return fmt::format("{} ({:.0f} % busy)", bound, busy);
    return fmt::format("{} ({:.0f} % of the critical path, {:.0f} % busy)", bound,
                       100 * use["path_share"].get<double>(), busy);
  };
  const double programmed = breakdown["prefill"]["flash_program_bytes_per_s"];
  const bool programs = breakdown["prefill"]["bound_by"] == "flash_arrays";
  std::string text = fmt::format(
      "Prefill is bound by {}",
      programs ? fmt::format("programming, {:.2f} GB/s ({})", programmed * 1e-9, share(breakdown["prefill"]))
               : share(breakdown["prefill"]));
  if (breakdown.contains("decode")) text += fmt::format(", decode by {}", share(breakdown["decode"]));
  if (out.requests) text += ". " + meaning_of_requests(*out.requests, document["metrics"]);
  return text + ". " + out.statement + ".";
}

}  // namespace csdsim::experiment
