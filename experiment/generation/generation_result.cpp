#include "experiment/generation/generation_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "experiment/generation/generation_workload.h"
#include "experiment/generation/request_result.h"
#include "experiment/generation/resource_use.h"
#include "experiment/result.h"

namespace csdsim::experiment {

using host::TokenId;
using nlohmann::ordered_json;

namespace {

/// Use of the shared links in a phase, by direction.
ordered_json shared_links(const PhaseTotals& t, double gpus) {
  ordered_json uses = ordered_json::object();
  for (std::size_t kind = 0; kind < platform::kSharedLinkKinds; ++kind) {
    const bool of_gpu = kind < 2;
    const double busy = t.*kSharedBusy[kind] / (of_gpu ? gpus : 1);
    if (busy == 0) continue;
    uses[std::string(platform::kSharedLinkNames[kind])] = {{"bytes", t.*kSharedBytes[kind]},
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

ordered_json to_json(const host::FileBackend::Totals& totals) {
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

/// Errors of the flash that holds K and V.
void add_error_metrics(ordered_json& metrics, const KvErrors& errors) {
  metrics["kv_read_retries"] = errors.retries;
  metrics["kv_uncorrectable_reads"] = errors.uncorrectable;
  metrics["kv_rows_dropped"] = errors.rows_dropped;
  metrics["kv_program_failures"] = errors.program_failures;
  metrics["kv_erase_failures"] = errors.erase_failures;
  metrics["grown_bad_blocks"] = errors.grown_bad_blocks;
}

/// What was done about lost K and V.
void add_recovery_metrics(ordered_json& metrics, const host::DriveKvBackend::Recovered& recovered,
                          const KvErrors& errors) {
  metrics["kv_rows_recomputed"] = recovered.rows;
  metrics["kv_pages_rewritten"] = errors.pages_rewritten;
  metrics["kv_bytes_rewritten"] = recovered.written.value;
  metrics["kv_recompute_s"] = recovered.computing.seconds();
}

}  // namespace

void add_metrics(ordered_json& document, const GenerationOutcome& out, const scenario::Scenario& s) {
  ordered_json& metrics = document["metrics"];
  add_generation_metrics(metrics, out, s, *s.system);
  if (s.system->needs({.model = s.model.shape(), .workload = generation_of(s).lengths()}).kv == host::Home::drive_kv) {
    const csd_model::DeviceConfig& device = s.platform.device;
    if (device.flash.reliability) add_error_metrics(metrics, out.kv_errors);
    if (device.ftl.refresh_age) metrics["kv_blocks_refreshed"] = out.kv_errors.blocks_refreshed;
    if (device.ftl.wear_levelling.spread > 0) metrics["blocks_levelled"] = out.kv_errors.blocks_levelled;
  }
  if (out.recovered) add_recovery_metrics(metrics, *out.recovered, out.kv_errors);
  metrics["bytes_host_link"] = out.prefill.link_bytes + out.decode.link_bytes;
  if (const double bytes = out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes; bytes > 0)
    metrics["bytes_gpu_link"] = bytes;
  for (const auto& [metric, value] : out.features)
    metrics[std::string(metric.name)] =
        metric.whole ? ordered_json(static_cast<std::uint64_t>(value)) : ordered_json(value);
  if (out.decode.neurons > 0) metrics["neurons_in_drives_per_step"] = out.decode.neurons / out.times.decode_steps;
  if (out.times.decode_steps > 0 && out.times.decode_steps + 1 < out.times.output_tokens)
    metrics["tokens_per_step"] = double(out.times.output_tokens - 1) / out.times.decode_steps;
  metrics["bytes_flash_channel"] = out.prefill.channel_bytes + out.decode.channel_bytes;
  metrics["bytes_engine"] = out.prefill.engine_bytes + out.decode.engine_bytes;
  metrics["requests_issued"] = out.requests_issued;
  metrics["requests_completed"] = out.requests_completed;
  metrics["simulated_s"] = out.simulated.seconds();
  metrics["page_ops"] = out.simulated_page_ops;
  if (std::isfinite(out.error.largest())) metrics["relative_error_estimate"] = out.error.largest();
  ordered_json& breakdown = document["breakdown"];
  add_energy(document, s, out.work, {.tokens = double(out.times.tokens()), .bytes = out.work.channel_bytes});
  if (out.decode.seconds > 0 && !(out.requests && out.requests->served))
    metrics["energy_per_step_j"] = energy_per_step(s, out.decode, out.times.decode_steps);
  breakdown["prefill"] = phase_breakdown(out.prefill, s, nullptr);
  if (out.decode.seconds > 0) {
    // No single path leads through the decode steps of requests that arrive at their own times.
    const bool has_path = !(out.requests && out.requests->served);
    breakdown["decode"] = phase_breakdown(out.decode, s, has_path ? &out.times.decode_resource_s : nullptr);
    if (!has_path) return;
    ordered_json path;
    for (std::size_t i = 0; i < host::kPathParts; ++i)
      path[std::string(host::kPathPartNames[i])] = out.times.decode_path_s[i];
    breakdown["decode"]["critical_path_s"] = std::move(path);
  }
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
