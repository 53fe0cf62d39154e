#include "experiment/objects/object_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "experiment/assemble.h"
#include "experiment/write_metrics.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

double bytes_of(const WearOutcome& out, std::uint64_t units) { return double(units) * double(out.unit.value); }

std::uint64_t sum_of(const WearOutcome& out, std::uint64_t WriterCounts::*count) {
  return std::accumulate(out.writers.begin(), out.writers.end(), std::uint64_t{0},
                         [&](std::uint64_t sum, const WriterWear& writer) { return sum + writer.counts.*count; });
}

std::vector<Metric<WearOutcome>> metrics_of_wear() {
  std::vector<Metric<WearOutcome>> all = write_amplification_metrics<WearOutcome>(
      {"write_amplification", "1",
       "All that was programmed over what the host wrote, both in mapping units (ftl.mapping_unit; a page without it), "
       "of which a write of a part counts as a whole one; 1 without writes. Its parts follow. Programs count when they "
       "are planned."},
      [](const WearOutcome& out) { return &out.work; });
  using Out = const WearOutcome&;
  all.push_back({{"write_amplification_late", "1", "The same in the last quarter of the measured writes."},
                 [](Out out) { return late_work(out.samples).amplification(); }});
  all.push_back({{"write_amplification_error", "1",
                  "With workload.sampling_error, where it ended the run: half of the 95 % confidence interval of the "
                  "windows' mean write amplification, over that mean."},
                 [](Out out) { return out.sampled ? std::optional(out.sampled->error) : std::nullopt; }});
  all.push_back({{"store_amplification", "1",
                  "Bytes that the host wrote over those of new objects: what log and buckets copy comes on top."},
                 [](Out out) {
                   const auto fresh = double(sum_of(out, &WriterCounts::new_bytes));
                   return (fresh + double(sum_of(out, &WriterCounts::copied_bytes))) / fresh;
                 }});
  all.push_back({{"bytes_new", "B", "Bytes of objects that the applications wrote."},
                 [](Out out) { return double(sum_of(out, &WriterCounts::new_bytes)); },
                 true});
  all.push_back(
      {{"bytes_written", "B", "Bytes that the host wrote, what stores copied included."},
       [](Out out) { return double(sum_of(out, &WriterCounts::new_bytes) + sum_of(out, &WriterCounts::copied_bytes)); },
       true});
  all.push_back({{"bytes_trimmed", "B", "Bytes that the host trimmed."},
                 [](Out out) { return double(sum_of(out, &WriterCounts::trimmed_bytes)); },
                 true});
  all.push_back({{"bytes_programmed", "B", "Bytes programmed into the flash."},
                 [](Out out) { return bytes_of(out, out.work.programmed()); },
                 true});
  using Wear = ftl::WearStatistics;
  const auto erases = [&all](const CounterInfo& figure, double (*value)(const Wear&), bool whole) {
    all.push_back({metric_of(figure, std::string(figure.name), "In the whole run, reclaim units being blocks"),
                   [value](Out out) { return value(out.erases); }, whole});
  };
  erases(
      Wear::kMean, [](const Wear& wear) { return wear.mean; }, false);
  erases(
      Wear::kDeviation, [](const Wear& wear) { return wear.deviation; }, false);
  erases(
      Wear::kMin, [](const Wear& wear) { return double(wear.min); }, true);
  erases(
      Wear::kMax, [](const Wear& wear) { return double(wear.max); }, true);
  return all;
}

ordered_json rows_of_writers(const ObjectWorkload& work, const WearOutcome& out) {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < out.writers.size(); ++i) {
    const WriterWear& writer = out.writers[i];
    const auto written = double(writer.counts.written());
    rows.push_back({{"name", work.name_of_writer(i)},
                    {"class", work.class_of_writer(i)},
                    {"bytes_new", writer.counts.new_bytes},
                    {"bytes_copied", writer.counts.copied_bytes},
                    {"bytes_trimmed", writer.counts.trimmed_bytes},
                    {"bytes_moved", writer.moved_bytes},
                    {"write_amplification", written > 0 ? 1 + double(writer.moved_bytes) / written : 1}});
  }
  return rows;
}

constexpr std::string_view kWritten = "capacities_written";

/// For the report.
ordered_json series_of(const WearOutcome& out) {
  std::vector<double> written;
  for (const WriteSample& sample : out.samples) written.push_back(sample.at);
  return {{"at", {{"name", "capacities written"}, {"values", written}}},
          {"curves", {{"write amplification", sample_curves(out.samples, written)}}}};
}

/// What the counts stand for.
std::string statement(const ObjectWorkload& work, const WearOutcome& out) {
  if (!out.sampled) return "whole: every write";
  return fmt::format(
      "{} of {} windows: their mean write amplification is known to {:.2g} % (95 % confidence; asked: {:.2g} %)",
      out.sampled->windows, work.samples, out.sampled->error * 100, work.sampling_error->value() * 100);
}

}  // namespace

std::vector<MetricInfo> object_metrics() { return infos_of(metrics_of_wear()); }

WearSetup wear_setup(const scenario::Scenario& s, const ObjectWorkload& work) {
  WearSetup setup{.drive = drive_config(s),
                  .writers = {},
                  .handles = {},
                  .request = work.request_size,
                  .writes = {},
                  .warmup = {},
                  .samples = work.samples,
                  .error = work.sampling_error ? std::optional(work.sampling_error->value()) : std::nullopt,
                  .seed = s.seed};
  const Bytes capacity = exported_capacity(s);
  setup.writers = work.writer_configs(capacity, region_alignment(capacity, setup.drive));
  for (std::size_t i = 0; i < setup.writers.size(); ++i) setup.handles.push_back(work.handle_of_writer(i));
  setup.writes = Bytes{work.writes.floor_of(capacity.value)};
  setup.warmup = Bytes{work.warmup.floor_of(capacity.value)};
  return setup;
}

scenario::RunResult object_result(const scenario::Scenario& s, const ObjectWorkload& work, const WearOutcome& out,
                                  const WallClock& clock) {
  scenario::RunResult result;
  result.document = result_frame(s);
  ordered_json& metrics = result.document["metrics"];
  add_metrics(metrics, metrics_of_wear(), out);
  result.document["breakdown"] = {{"capacity_bytes", out.capacity.value},
                                  {"blocks", out.blocks},
                                  {"writers", rows_of_writers(work, out)},
                                  {"samples", sample_rows(out.samples, kWritten)}};
  result.document["series"] = series_of(out);
  result.document["stats"] = {{"origin", "counted; the drive was empty before the first write, and nothing has a time"},
                              {"simulated", statement(work, out)}};
  result.document["wall"] = wall_figures(clock, out.programmed);
  result.files.push_back({"wear.csv", samples_csv(out.samples, kWritten)});
  result.meaning = fmt::format(
      "{:.2f} bytes were programmed per byte that the host wrote, {:.2f} in the last quarter; each block was erased "
      "{:.1f} times on average, at most {} times.",
      out.bytes.programmed_per_written(), out.late_bytes.programmed_per_written(), out.erases.mean, out.erases.max);
  return result;
}

}  // namespace csdsim::experiment
