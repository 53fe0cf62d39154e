#include "experiment/block_io/block_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "experiment/write_metrics.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

double nanoseconds(std::uint64_t ps) { return static_cast<double>(ps) * 1e-3; }

/// Adds mean, p50, p99, p99.9 and max as `prefix`latency_*_ns.
void add_latency(ordered_json& metrics, const std::string& prefix, const Histogram& latency_ps) {
  metrics[prefix + "latency_mean_ns"] = latency_ps.mean() * 1e-3;
  metrics[prefix + "latency_p50_ns"] = nanoseconds(latency_ps.quantile(50));
  metrics[prefix + "latency_p99_ns"] = nanoseconds(latency_ps.quantile(99));
  metrics[prefix + "latency_p999_ns"] = nanoseconds(latency_ps.quantile(999, 1000));
  metrics[prefix + "latency_max_ns"] = nanoseconds(latency_ps.max());
}

/// Mean time per stage in ns, for stages that took any time. The means add up to the mean latency.
ordered_json stage_means(const KindOutcome& kind) {
  ordered_json means = ordered_json::object();
  for (std::size_t i = 0; i < kRequestStages; ++i)
    if (kind.stages_ps[i] > 0)
      means[kRequestStageNames[i]] =
          static_cast<double>(kind.stages_ps[i]) * 1e-3 / static_cast<double>(kind.latency_ps.count());
  return means;
}

/// The stage in which requests spent most of their time, and its share of that time.
struct LongestStage {
  std::string_view name;
  double share = 0;
};

LongestStage longest_stage(const BlockIoOutcome& out) {
  std::array<__int128, kRequestStages> spent{};
  __int128 total = 0;
  for (const KindOutcome& kind : out.kinds)
    for (std::size_t i = 0; i < kRequestStages; ++i) {
      spent[i] += kind.stages_ps[i];
      total += kind.stages_ps[i];
    }
  if (total == 0) return {};
  const auto longest = std::ranges::max_element(spent);
  return {kRequestStageNames[static_cast<std::size_t>(longest - spent.begin())],
          static_cast<double>(*longest) / static_cast<double>(total)};
}

/// How busy the parts of the drive were, and which of them most. Where that one was idle half of the time it binds
/// nothing: then what requests waited for is named as well.
ordered_json measured_interval(const BlockIoOutcome& out, double seconds) {
  if (seconds <= 0) return ordered_json::object();
  ordered_json utilization = ordered_json::object(), waited = ordered_json::object();
  for (std::size_t i = 0; i < kDriveStations; ++i) {
    const auto station = static_cast<DriveStation>(i);
    const double share = out.stations.busy[station] / seconds;
    if (share <= 0) continue;
    utilization[kDriveStationNames[i]] = share;
    waited[kDriveStationNames[i]] = out.stations.waited[station];
  }
  ordered_json interval{{"seconds", seconds}};
  const auto most = busiest(out);
  if (most) interval["bound_by"] = kDriveStationNames[static_cast<std::size_t>(most->station)];
  constexpr double kBinds = 0.5;
  if (const LongestStage longest = longest_stage(out); (!most || most->share < kBinds) && longest.share > 0) {
    interval["waits_for"] = longest.name;
    interval["waits_for_share"] = longest.share;
  }
  interval["utilization"] = std::move(utilization);
  interval["waited_s"] = std::move(waited);
  return interval;
}

/// Share of the flash that data may not fill, and what is left of it beside open and free blocks once it is full.
ordered_json spare_shares(const csd_model::DeviceConfig& device) {
  const std::uint32_t blocks = device.flash.geometry.blocks_per_plane - device.ftl.spare_blocks;
  return {{"share", device.ftl.over_provisioning.value()},
          {"effective_share", ftl::effective_spare(ftl::block_ftl_config(device.ftl), blocks)}};
}

/// ", link_to_host most of all, 100 %", unless it is the channels; or what requests waited for.
std::string busiest_text(const ordered_json& interval) {
  if (interval.contains("waits_for"))
    return fmt::format("; no part of the drive was busy for half of it, and requests spent {:.0f} % of theirs in {}",
                       interval["waits_for_share"].get<double>() * 100,
                       interval["waits_for"].get_ref<const std::string&>());
  const std::string busiest = interval.value("bound_by", "");
  if (busiest.empty() || busiest == kDriveStationNames[static_cast<std::size_t>(DriveStation::flash_channels)])
    return "";
  return fmt::format(", {} most of all: {:.0f} %", busiest, interval["utilization"][busiest].get<double>() * 100);
}

}  // namespace

std::optional<BusyStation> busiest(const BlockIoOutcome& out) {
  const double seconds = out.duration.seconds();
  BusyStation most;
  for (std::size_t i = 0; i < kDriveStations; ++i) {
    const auto station = static_cast<DriveStation>(i);
    if (station == DriveStation::page_buffers || seconds <= 0) continue;
    if (const double share = out.stations.busy[station] / seconds; share > most.share) most = {station, share};
  }
  return most.share > 0 ? std::optional(most) : std::nullopt;
}

scenario::RunResult block_result(const scenario::Scenario& s, const BlockIoOutcome& out, const WallClock& clock,
                                 std::string_view origin) {
  scenario::RunResult result;
  const std::uint64_t measured = out.latency_ps.count();
  if (measured == 0 && out.issued == out.completed)
    throw UserError(
        fmt::format("workload: no request was measured: {} were submitted, the warm-up included", out.issued));
  const double seconds = out.duration.seconds();
  Bytes moved;
  for (const KindOutcome& kind : out.kinds) moved += kind.bytes;
  const double iops = seconds > 0 ? static_cast<double>(measured) / seconds : 0;
  const double mean_size = measured > 0 ? static_cast<double>(moved.value) / static_cast<double>(measured) : 0;

  result.document = result_frame(s);
  ordered_json metrics{{"iops", iops}, {"bandwidth_bytes_per_s", iops * mean_size}};
  add_latency(metrics, "", out.latency_ps);
  // Kinds of requests that did not occur are absent.
  for (std::size_t k = 0; k < workload::kRequestKinds; ++k)
    if (out.kinds[k].latency_ps.count() > 0)
      add_latency(metrics, fmt::format("{}_", workload::kRequestKindNames[k]), out.kinds[k].latency_ps);
  for (std::size_t i = 0; i < out.flows.size(); ++i) {
    const FlowOutcome& flow = out.flows[i];
    const std::string prefix = fmt::format("flow{}_", i + 1);
    metrics[prefix + "iops"] = seconds > 0 ? static_cast<double>(flow.latency_ps.count()) / seconds : 0;
    metrics[prefix + "bandwidth_bytes_per_s"] = seconds > 0 ? static_cast<double>(flow.bytes.value) / seconds : 0;
    add_latency(metrics, prefix, flow.latency_ps);
  }
  add_write_amplification(metrics, "", out.writes);
  if (out.programmed_per_byte > 0) metrics["programmed_per_byte_written"] = out.programmed_per_byte;
  metrics.update({{"requests_issued", out.issued},
                  {"requests_completed", out.completed},
                  {"requests_in_flight_peak", out.peak_in_flight},
                  {"simulated_s", seconds},
                  {"page_ops", out.totals.page_ops},
                  {"bytes_flash_channel", out.totals.channel_bytes},
                  {"bytes_host_link", out.totals.link_bytes}});
  result.document["metrics"] = std::move(metrics);
  ordered_json kinds = ordered_json::object(), stages = ordered_json::object();
  for (std::size_t k = 0; k < workload::kRequestKinds; ++k)
    if (const std::uint64_t count = out.kinds[k].latency_ps.count(); count > 0)
      kinds[workload::kRequestKindNames[k]] = {{"requests", count}, {"bytes", out.kinds[k].bytes.value}};
  for (std::size_t k = 0; k < workload::kRequestKinds; ++k)
    if (out.kinds[k].latency_ps.count() > 0) stages[workload::kRequestKindNames[k]] = stage_means(out.kinds[k]);
  result.document["breakdown"] = {{"channel_utilization", out.channel_utilization},
                                  {"requests", std::move(kinds)},
                                  {"latency_stages", std::move(stages)}};
  if (out.writes.written > 0) result.document["breakdown"]["spare"] = spare_shares(s.platform.device);
  const ordered_json interval = measured_interval(out, seconds);
  if (!interval.empty()) result.document["breakdown"]["measured"] = interval;
  add_energy(result.document, s, work_of(out.totals), {.bytes = static_cast<double>(moved.value)});
  result.document["stats"] = {{"origin", fmt::format("modelled; {}", origin)}, {"drives", out.drive_statistics}};
  result.document["wall"] = wall_figures(clock, out.totals.page_ops);
  result.files.push_back({"throughput.csv", out.series.to_csv(out.duration)});
  result.meaning =
      fmt::format("{:.0f} IOPS at {:.1f} us on average; the channels were busy {:.0f} % of the time{}.", iops,
                  out.latency_ps.mean() * 1e-6, out.channel_utilization * 100, busiest_text(interval));
  if (out.issued != out.completed)
    result.failure = fmt::format("{} requests were issued and {} completed", out.issued, out.completed);
  else if (out.failed > 0)
    result.failure =
        fmt::format("{} of {} requests failed, the first with {}", out.failed, out.issued, out.first_failure);
  return result;
}

}  // namespace csdsim::experiment
