#include "experiment/block_io/block_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/error.h"
#include "csd_model/block_quota.h"
#include "experiment/measure/endurance.h"
#include "experiment/write_metrics.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

double nanoseconds(std::uint64_t ps) { return static_cast<double>(ps) * 1e-3; }

double rate(double amount, const BlockIoOutcome& out) {
  const double seconds = out.duration.seconds();
  return seconds > 0 ? amount / seconds : 0;
}

/// Mean size of the measured requests.
double mean_size(const BlockIoOutcome& out) {
  Bytes moved;
  for (const KindOutcome& kind : out.kinds) moved += kind.bytes;
  const std::uint64_t measured = out.latency_ps.count();
  return measured > 0 ? static_cast<double>(moved.value) / static_cast<double>(measured) : 0;
}

using BlockMetric = Metric<BlockIoOutcome>;

/// Five figures of a latency. `of` gives null if no request of the kind occurred.
std::vector<BlockMetric> latency_metrics(const std::string& prefix, const std::array<std::string, 5>& meanings,
                                         std::function<const Histogram*(const BlockIoOutcome&)> of) {
  using Figure = double (*)(const Histogram&);
  constexpr std::array<std::pair<const char*, Figure>, 5> kFigures{
      {{"mean", [](const Histogram& latency) { return latency.mean() * 1e-3; }},
       {"p50", [](const Histogram& latency) { return nanoseconds(latency.quantile(50)); }},
       {"p99", [](const Histogram& latency) { return nanoseconds(latency.quantile(99)); }},
       {"p999", [](const Histogram& latency) { return nanoseconds(latency.quantile(999, 1000)); }},
       {"max", [](const Histogram& latency) { return nanoseconds(latency.max()); }}}};
  std::vector<BlockMetric> metrics;
  for (std::size_t i = 0; i < kFigures.size(); ++i)
    metrics.push_back({{fmt::format("{}latency_{}_ns", prefix, kFigures[i].first), "ns", meanings[i]},
                       [of, figure = kFigures[i].second](const BlockIoOutcome& out) -> std::optional<double> {
                         const Histogram* const latency = of(out);
                         return latency != nullptr ? std::optional(figure(*latency)) : std::nullopt;
                       }});
  return metrics;
}

/// Metrics of runs in which the power fails, counted over the whole run.
std::vector<BlockMetric> metrics_of_power() {
  std::vector<BlockMetric> metrics =
      power_metrics<BlockIoOutcome>([](const BlockIoOutcome& out) { return out.power ? &*out.power : nullptr; });
  metrics.push_back({{"blocks_checked", "1",
                      "Logical blocks that were compared with all versions that they may hold: by reads, and all at "
                      "the end."},
                     [](const BlockIoOutcome& out) -> std::optional<double> {
                       return out.power ? std::optional(double(out.blocks_checked)) : std::nullopt;
                     },
                     true});
  return metrics;
}

std::vector<BlockMetric> metrics_of_commands() {
  std::vector<BlockMetric> all{
      {{"iops", "1/s", "Completed commands over the measured time."},
       [](const BlockIoOutcome& out) { return rate(double(out.latency_ps.count()), out); }},
      {{"bandwidth_bytes_per_s", "B/s", "Payload of the completed commands over the measured time."},
       [](const BlockIoOutcome& out) { return rate(double(out.latency_ps.count()), out) * mean_size(out); }}};
  const auto add = [&all](const std::vector<BlockMetric>& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(latency_metrics("",
                      {"Mean time from submission to completion.", "Median of the same.",
                       "99th percentile of the same.", "99.9th percentile of the same.", "Largest of the same."},
                      [](const BlockIoOutcome& out) { return &out.latency_ps; }));
  std::string meaning =
      "The five figures of the latency also stand for each kind of command that occurs: read_, "
      "write_, trim_, flush_.";
  for (std::size_t k = 0; k < workload::kRequestKinds; ++k) {
    add(latency_metrics(fmt::format("{}_", workload::kRequestKindNames[k]), {meaning}, [k](const BlockIoOutcome& out) {
      const Histogram& latency = out.kinds[k].latency_ps;
      return latency.count() > 0 ? &latency : nullptr;
    }));
    meaning.clear();
  }
  meaning =
      "With workload.flows: of the first flow. iops, bandwidth_bytes_per_s and the five figures of the latency "
      "stand for each flow, flow1_ to flow8_.";
  for (std::size_t i = 0; i < FlowsConfig::kMost; ++i) {
    const std::string prefix = fmt::format("flow{}_", i + 1);
    const auto flow = [i](const BlockIoOutcome& out) { return i < out.flows.size() ? &out.flows[i] : nullptr; };
    all.push_back({{prefix + "iops", "1/s", meaning}, [flow](const BlockIoOutcome& out) -> std::optional<double> {
                     const FlowOutcome* const of = flow(out);
                     return of != nullptr ? std::optional(rate(double(of->latency_ps.count()), out)) : std::nullopt;
                   }});
    all.push_back(
        {{prefix + "bandwidth_bytes_per_s", "B/s", ""}, [flow](const BlockIoOutcome& out) -> std::optional<double> {
           const FlowOutcome* const of = flow(out);
           return of != nullptr ? std::optional(rate(double(of->bytes.value), out)) : std::nullopt;
         }});
    add(latency_metrics(prefix, {}, [flow](const BlockIoOutcome& out) {
      const FlowOutcome* const of = flow(out);
      return of != nullptr ? &of->latency_ps : nullptr;
    }));
    meaning.clear();
  }
  add(write_amplification_metrics<BlockIoOutcome>(
      {"write_amplification", "1",
       "All that was programmed over what the host wrote, both in mapping units (ftl.mapping_unit; a page without it), "
       "of which a write of a part counts as a whole one; 1 without writes. Its parts follow. Programs count when they "
       "are planned."},
      [](const BlockIoOutcome& out) { return &out.writes; }));
  all.push_back(
      {{"programmed_per_byte_written", "1",
        "The same over the bytes that the host wrote: larger where writes are smaller than a mapping unit, of "
        "which each programs a whole one. Absent without writes."},
       [](const BlockIoOutcome& out) -> std::optional<double> {
         return out.programmed_per_byte > 0 ? std::optional(out.programmed_per_byte) : std::nullopt;
       }});
  add(metrics_of_power());
  all.push_back({{"requests_in_flight_peak", "1", "Most commands in flight at a time."},
                 [](const BlockIoOutcome& out) { return double(out.peak_in_flight); },
                 true});
  return all;
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

/// A part that is busy for less of the time does not explain a rate alone, and one below the second share binds
/// nothing.
constexpr double kExplains = 0.9, kBinds = 0.5;

/// How busy the parts of the drive were, and which of them most. Where that does not explain the rate, what requests
/// waited for is named as well.
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
  if (const LongestStage longest = longest_stage(out); (!most || most->share < kExplains) && longest.share > 0) {
    interval["waits_for"] = longest.name;
    interval["waits_for_share"] = longest.share;
  }
  interval["utilization"] = std::move(utilization);
  interval["waited_s"] = std::move(waited);
  return interval;
}

/// Share of the flash that data may not fill, and what is left of it beside open and free blocks once it is full.
ordered_json spare_shares(const scenario::Scenario& s) {
  const csd_model::DeviceConfig& device = s.platform.device;
  const ftl::BlockQuota quota = csd_model::block_quota(device.flash.geometry.blocks_per_plane, device.ftl.spare_blocks,
                                                       device.has_engine() ? s.workload->kv_share(s) : 0);
  const std::uint32_t planes =
      device.flash.geometry.planes() / (device.ftl.superblocks ? device.flash.geometry.planes_per_die : 1);
  const std::uint32_t deep =
      csd_model::reclaim_shape(device.ftl.reclaim_unit_blocks, planes, quota.block_namespace).deep;
  return {{"share", device.ftl.over_provisioning.value()},
          {"effective_share", ftl::effective_spare(ftl::block_ftl_config(device.ftl), quota.block_namespace / deep)}};
}

/// ", link_to_host most of all: 100 %", unless it is the channels; and what requests waited for.
std::string busiest_text(const ordered_json& interval) {
  const std::string busiest = interval.value("bound_by", "");
  if (busiest.empty()) return "";
  const double share = interval["utilization"][busiest].get<double>();
  const bool channels = busiest == kDriveStationNames[static_cast<std::size_t>(DriveStation::flash_channels)];
  const std::string part = share < kBinds ? "; no part of the drive was busy for half of it"
                           : channels     ? ""
                                          : fmt::format(", {} most of all: {:.0f} %", busiest, share * 100);
  if (!interval.contains("waits_for")) return part;
  return part + fmt::format("; requests spent {:.0f} % of their time in {}",
                            interval["waits_for_share"].get<double>() * 100,
                            interval["waits_for"].get_ref<const std::string&>());
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

std::vector<MetricInfo> block_metrics() {
  return joined(joined(infos_of(metrics_of_commands()), infos_of(run_metrics(RunOf::blocks))), simulation_metrics());
}

scenario::RunResult block_result(const scenario::Scenario& s, const BlockIoOutcome& out, const WallClock& clock,
                                 std::string_view origin) {
  scenario::RunResult result;
  const std::uint64_t measured = out.latency_ps.count();
  if (measured == 0 && out.issued == out.completed)
    throw UserError(
        fmt::format("workload: no request was measured: {} were submitted, the warm-up included", out.issued));
  const double seconds = out.duration.seconds();
  double moved = 0;
  for (const KindOutcome& kind : out.kinds) moved += double(kind.bytes.value);

  result.document = result_frame(s);
  ordered_json& metrics = result.document["metrics"];
  const csd_model::DriveWork work = work_of(out.totals);
  const csd_model::EnergyBreakdown joules = drive_energy(s, work);
  add_metrics(metrics, metrics_of_commands(), out);
  add_metrics(
      metrics, run_metrics(RunOf::blocks),
      RunWork{.work = work, .energy = joules, .energy_bytes = moved, .issued = out.issued, .completed = out.completed});
  add_simulated(metrics, seconds, out.totals.page_ops);
  ordered_json kinds = ordered_json::object(), stages = ordered_json::object();
  for (std::size_t k = 0; k < workload::kRequestKinds; ++k)
    if (const std::uint64_t count = out.kinds[k].latency_ps.count(); count > 0)
      kinds[workload::kRequestKindNames[k]] = {{"requests", count}, {"bytes", out.kinds[k].bytes.value}};
  for (std::size_t k = 0; k < workload::kRequestKinds; ++k)
    if (out.kinds[k].latency_ps.count() > 0) stages[workload::kRequestKindNames[k]] = stage_means(out.kinds[k]);
  result.document["breakdown"] = {{"channel_utilization", out.channel_utilization},
                                  {"requests", std::move(kinds)},
                                  {"latency_stages", std::move(stages)}};
  if (out.writes.written > 0) result.document["breakdown"]["spare"] = spare_shares(s);
  const ordered_json interval = measured_interval(out, seconds);
  if (!interval.empty()) result.document["breakdown"]["measured"] = interval;
  result.document["breakdown"]["energy"] = energy_breakdown(s, joules);
  result.document["stats"] = {{"origin", fmt::format("modelled; {}", origin)}, {"drives", out.drive_statistics}};
  result.document["wall"] = wall_figures(clock, out.totals.page_ops);
  result.files.push_back({"throughput.csv", out.series.to_csv(out.duration)});
  result.meaning = fmt::format("{:.0f} IOPS at {:.1f} us on average; the channels were busy {:.0f} % of the time{}.",
                               metrics["iops"].get<double>(), out.latency_ps.mean() * 1e-6,
                               out.channel_utilization * 100, busiest_text(interval));
  const KindOutcome& written = out.kinds[static_cast<std::size_t>(workload::RequestKind::write)];
  if (const std::string beyond = beyond_slc_cache(s, double(written.bytes.value) / s.platform.device.count);
      !beyond.empty()) {
    result.document["stats"]["notes"] = {beyond};
    result.meaning += " " + beyond;
  }
  if (out.issued != out.completed)
    result.failure = fmt::format("{} requests were issued and {} completed", out.issued, out.completed);
  else if (out.failed > 0)
    result.failure =
        fmt::format("{} of {} requests failed, the first with {}", out.failed, out.issued, out.first_failure);
  return result;
}

}  // namespace csdsim::experiment
