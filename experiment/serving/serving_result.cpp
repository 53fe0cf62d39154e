#include "experiment/serving/serving_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "experiment/measure/endurance.h"
#include "experiment/measure/request_metrics.h"
#include "experiment/serving/prometheus.h"
#include "experiment/write_metrics.h"
#include "report/csv.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;
using scenario::Scenario;

namespace {

/// A run with what its metrics need.
struct ServedRun {
  const Scenario& scenario;
  const ServingWorkload& work;
  const ServingOutcome& out;
  std::vector<host::ServedRequest> requests;  ///< that count: without those of the warm-up
  SimTime first_arrival{};                    ///< first arrival of a request that counts
  std::vector<host::ServedRequest> ended;     ///< since then, those of the warm-up included
};

using ServingMetric = Metric<ServedRun>;
using Value = std::optional<double>;
using OfServed = Value (*)(const host::ServedRequest&);

/// A time of a request's life.
template <Value (*of)(const host::Request&)>
Value time_of(const host::ServedRequest& r) {
  return of(r.life);
}

Value loading(const host::ServedRequest& r) {
  if (!r.has_loaded) return std::nullopt;
  return (r.loaded_at - r.load_began).seconds();
}

std::vector<double> values_of(const ServedRun& run, OfServed of) {
  std::vector<double> values;
  for (const host::ServedRequest& request : run.requests)
    if (const Value value = of(request)) values.push_back(*value);
  std::ranges::sort(values);
  return values;
}

ServingMetric mean_of(const MetricInfo& info, OfServed of) {
  return {info, [of](const ServedRun& run) { return mean(values_of(run, of)); }};
}

ServingMetric percentile_of(const MetricInfo& info, OfServed of, std::size_t percent) {
  return {info, [of, percent](const ServedRun& run) { return percentile(values_of(run, of), percent); }};
}

/// Mean, median, 90th and 99th percentile.
template <RequestTime (*of)(const host::Request&)>
std::vector<ServingMetric> distribution(const RequestTimeMetrics& time) {
  return {mean_of(time.mean(), time_of<of>), percentile_of(time.median(), time_of<of>, 50),
          percentile_of({time.name + "_p90_s", "s", "Serving: 90th percentile of the same."}, time_of<of>, 90),
          percentile_of(time.p99(), time_of<of>, 99)};
}

double sum_of(const std::vector<host::ServedRequest>& requests, std::uint64_t (*of)(const host::ServedRequest&)) {
  double sum = 0;
  for (const host::ServedRequest& request : requests) sum += static_cast<double>(of(request));
  return sum;
}

double sum_of(const ServedRun& run, std::uint64_t (*of)(const host::ServedRequest&)) {
  return sum_of(run.requests, of);
}

double prompt_tokens(const ServedRun& run) {
  return sum_of(run, [](const host::ServedRequest& r) -> std::uint64_t { return r.life.prompt; });
}

/// Whether a request keeps what is promised.
bool good(const host::ServedRequest& r, const SloConfig& slo) {
  const auto within = [](Value value, const std::optional<SimTime>& most) {
    return !most || !value || *value <= most->seconds();
  };
  return within(ttft(r.life), slo.ttft) && within(tpot(r.life), slo.tpot) && within(latency(r.life), slo.latency);
}

double good_requests(const std::vector<host::ServedRequest>& requests, const SloConfig& slo) {
  return double(std::ranges::count_if(requests, [&](const auto& r) { return good(r, slo); }));
}

/// From the arrival of the first request that counts to the last token. What ends in this time counts for rates, so
/// that they do not depend on the requests of the warm-up that are still served.
double measured_seconds(const ServedRun& run) { return (run.out.end - run.first_arrival).seconds(); }

Value share(double part, double whole) { return whole > 0 ? Value(part / whole) : std::nullopt; }

std::vector<ServingMetric> request_metrics_of() {
  std::vector<ServingMetric> all{
      {kTokensPerSecond,
       [](const ServedRun& run) {
         return share(sum_of(run.ended, [](const auto& r) -> std::uint64_t { return r.life.generated; }),
                      measured_seconds(run));
       }},
      {kRequestsPerSecond,
       [](const ServedRun& run) { return share(double(run.ended.size()), measured_seconds(run)); }}};
  const auto add = [&all](const std::vector<ServingMetric>& more) { all.insert(all.end(), more.begin(), more.end()); };
  all.push_back(mean_of(kTimeToFirstToken, time_of<ttft>));
  all.push_back(mean_of(kTimePerToken, time_of<tpot>));
  const auto [latency_time, ttft_time, tpot_time, queueing_time] = request_time_metrics();
  add(distribution<latency>(latency_time));
  add(distribution<ttft>(ttft_time));
  add(distribution<tpot>(tpot_time));
  add(distribution<queueing>(queueing_time));
  add({mean_of({"request_load_mean_s", "s",
                "Serving: mean time in which K and V of a request are loaded, of those that "
                "load."},
               loading),
       percentile_of({"request_load_p50_s", "s", "Serving: median of the same."}, loading, 50),
       percentile_of({"request_load_p99_s", "s", "Serving: 99th percentile of the same."}, loading, 99)});
  const auto itl = [&](const char* name, const char* meaning, double (*of)(const Histogram&)) {
    all.push_back({{name, "s", meaning}, [of](const ServedRun& run) -> Value {
                     const Histogram& gaps = run.out.meter.itl_ps();
                     return gaps.count() > 0 ? Value(of(gaps) * 1e-12) : std::nullopt;
                   }});
  };
  itl("itl_mean_s", "Serving: mean time between two tokens of a sequence, of all requests.",
      [](const Histogram& h) { return h.mean(); });
  itl("itl_p50_s", "Serving: median of the same.", [](const Histogram& h) { return double(h.quantile(50)); });
  itl("itl_p90_s", "Serving: 90th percentile of the same.", [](const Histogram& h) { return double(h.quantile(90)); });
  itl("itl_p99_s", "Serving: 99th percentile of the same.", [](const Histogram& h) { return double(h.quantile(99)); });
  add({{{"goodput", "1/s", "Serving with workload.slo: requests that keep it, over the time of the run."},
        [](const ServedRun& run) {
          return run.work.slo ? share(good_requests(run.ended, *run.work.slo), measured_seconds(run)) : std::nullopt;
        }},
       {{"slo_attainment", "1", "Serving with workload.slo: share of the requests that keep it."},
        [](const ServedRun& run) {
          return run.work.slo ? share(good_requests(run.requests, *run.work.slo), double(run.requests.size()))
                              : std::nullopt;
        }}});
  return all;
}

std::vector<ServingMetric> hit_metrics() {
  using Hits = std::uint64_t (*)(const host::ServedRequest&);
  const auto rate = [](Hits hits) {
    return [hits](const ServedRun& run) { return share(sum_of(run, hits), prompt_tokens(run)); };
  };
  return {
      {{"prefix_hit_rate", "1",
        "Serving: share of the prompts' tokens whose K and V a request found in GPU, host memory or drives when it "
        "began."},
       rate([](const host::ServedRequest& r) { return r.hit_gpu + r.hit_host + r.hit_drives; })},
      {{"gpu_hit_rate", "1", "Serving: the part of it that was in the GPU."},
       rate([](const host::ServedRequest& r) { return r.hit_gpu; })},
      {{"tier_host_hit_rate", "1", "Serving: the part of it that came from host memory."},
       rate([](const host::ServedRequest& r) { return r.hit_host; })},
      {{"tier_drives_hit_rate", "1", "Serving: the part of it that came from drives."},
       rate([](const host::ServedRequest& r) { return r.hit_drives; })},
      {{"external_hit_rate", "1",
        "Serving: of the blocks beyond those in the GPU, that requests asked the tiers for, the share that they had "
        "(vLLM's external prefix cache)."},
       [](const ServedRun& run) {
         const host::TiersUse& use = run.out.tiers;
         return share(double(use.host.found + use.drives.found), double(use.asked));
       }}};
}

/// Counts of one tier; those of drives are missing without drives.
std::vector<ServingMetric> tier_metrics(const std::string& name, const std::string& what, bool drives,
                                        host::TierUse host::TiersUse::*tier) {
  const auto there = [drives](const ServedRun& run) {
    return drives ? run.out.drive_blocks.has_value() : run.out.host_blocks.has_value();
  };
  const auto of = [&](const char* figure, const char* unit, const std::string& meaning, bool whole,
                      std::function<Value(const host::TierUse&, const ServedRun&)> value) {
    return ServingMetric{{fmt::format("tier_{}_{}", name, figure), unit, fmt::format("Serving: {}.", meaning)},
                         [there, tier, value](const ServedRun& run) {
                           return there(run) ? value(run.out.tiers.*tier, run) : std::nullopt;
                         },
                         whole};
  };
  return {
      of("found_blocks", "1", fmt::format("blocks that requests found in {} at their first look-up", what), true,
         [](const host::TierUse& use, const ServedRun&) { return double(use.found); }),
      of("loaded_blocks", "1",
         drives ? std::string("blocks that went from the drives to a GPU, or were promoted to host memory")
                : fmt::format("blocks that went from {} to a GPU", what),
         true, [](const host::TierUse& use, const ServedRun&) { return double(use.loaded); }),
      of("stored_blocks", "1", fmt::format("blocks that were written to {}", what), true,
         [](const host::TierUse& use, const ServedRun&) { return double(use.stored); }),
      of("lost_blocks", "1", fmt::format("blocks of {} that could not be read back when they were loaded", what), true,
         [](const host::TierUse& use, const ServedRun&) { return double(use.lost); }),
      of("bytes_read", "B", "bytes of the loaded blocks", true,
         [](const host::TierUse& use, const ServedRun&) { return double(use.bytes_read.value); }),
      of("bytes_written", "B", "bytes of the stored blocks", true,
         [](const host::TierUse& use, const ServedRun&) { return double(use.bytes_written.value); }),
      of("load_mean_s", "s", fmt::format("mean time from the order to load a block of {} until it is in the GPU", what),
         false,
         [](const host::TierUse& use, const ServedRun&) { return share(use.load_time.seconds(), double(use.loaded)); }),
      of("store_mean_s", "s", fmt::format("mean time from the order to store a block until it is in {}", what), false,
         [](const host::TierUse& use, const ServedRun&) {
           return share(use.store_time.seconds(), double(use.stored));
         })};
}

std::vector<ServingMetric> engine_metrics() {
  const auto count = [](const char* name, const char* meaning, std::uint64_t host::ServingMeter::Counts::*figure) {
    return ServingMetric{
        {name, "1", meaning}, [figure](const ServedRun& run) { return double(run.out.meter.counts.*figure); }, true};
  };
  const auto dropped = [](const char* name, const char* meaning, std::uint64_t host::TiersUse::*figure) {
    return ServingMetric{
        {name, "1", meaning}, [figure](const ServedRun& run) { return double(run.out.tiers.*figure); }, true};
  };
  const auto promoted = [](const char* name, const char* meaning, std::uint64_t host::TiersUse::*figure) {
    return ServingMetric{{name, "1", meaning},
                         [figure](const ServedRun& run) -> Value {
                           if (run.work.tiers.promotion == host::PromotionPolicy::with_load) return std::nullopt;
                           return double(run.out.tiers.*figure);
                         },
                         true};
  };
  return {
      count("scheduler_steps", "Serving: steps of all engines.", &host::ServingMeter::Counts::steps),
      count("preemptions", "Serving: times that a request had to make room for others.",
            &host::ServingMeter::Counts::preemptions),
      count("computed_tokens", "Serving: tokens that were computed, those of preempted requests again.",
            &host::ServingMeter::Counts::computed_tokens),
      count("lost_tokens", "Serving: tokens that were computed because a tier could not read their K and V back.",
            &host::ServingMeter::Counts::lost_tokens),
      {{"gpu_busy_share", "1", "Serving: share of the run in which a GPU computes, mean of the GPUs."},
       [](const ServedRun& run) {
         return share(run.out.meter.counts.gpu_busy.seconds(), run.out.seconds() * run.work.engine.instances);
       }},
      {{"gpu_waits_share", "1",
        "Serving: share of the run in which a GPU is in a step and waits for K and V, mean of the GPUs."},
       [](const ServedRun& run) {
         const auto& counts = run.out.meter.counts;
         return share((counts.gpu_steps - counts.gpu_busy).seconds(), run.out.seconds() * run.work.engine.instances);
       }},
      {{"requests_in_system_mean", "1", "Serving: mean number of requests that have arrived and not ended."},
       [](const ServedRun& run) { return share(run.out.meter.requests_seconds(), run.out.seconds()); }},
      {{"requests_running_mean", "1", "Serving: mean number of those that run."},
       [](const ServedRun& run) { return share(run.out.meter.running_seconds(), run.out.seconds()); }},
      {{"tier_asked_blocks", "1",
        "Serving: blocks beyond those in the GPU that requests asked the tiers for at their first look-up."},
       [](const ServedRun& run) { return double(run.out.tiers.asked); },
       true},
      promoted("promoted_blocks", "Serving with promotion at_lookup: blocks that came from drives to host memory.",
               &host::TiersUse::promoted),
      promoted("promoted_unread_blocks",
               "Serving: of promoted_blocks, those that left host memory before a request loaded them.",
               &host::TiersUse::promoted_unread),
      promoted(
          "promotion_allocation_failures",
          "Serving with promotion at_lookup: times that a request computed what it found on drives, because nothing "
          "in host memory could leave for it.",
          &host::TiersUse::promotion_failures),
      dropped("stores_dropped_no_room", "Serving: blocks that were not stored because all that could leave was in use.",
              &host::TiersUse::dropped_no_room),
      dropped("stores_dropped_back_pressure", "Serving: blocks that were not stored because stores took too long.",
              &host::TiersUse::dropped_back_pressure),
      dropped("stores_dropped_staging",
              "Serving: blocks that left host memory and did not reach a drive because the staging buffer was full.",
              &host::TiersUse::dropped_staging)};
}

/// What a file per block costs; missing without files.
std::vector<ServingMetric> file_metrics() {
  const auto of = [](const char* name, const char* unit, const char* meaning, double (*value)(const host::FileUse&)) {
    return ServingMetric{
        {name, unit, meaning},
        [value](const ServedRun& run) -> Value { return run.out.files ? Value(value(*run.out.files)) : std::nullopt; },
        true};
  };
  return {of("tier_files_created", "1", "Serving with a file per block: files that were created, one per stored block.",
             [](const host::FileUse& use) { return double(use.created); }),
          of("tier_files_deleted", "1", "Serving with a file per block: files of blocks that made room for others.",
             [](const host::FileUse& use) { return double(use.deleted); }),
          of("tier_metadata_bytes_read", "B",
             "Serving with a file per block: inodes, directories and bitmaps that were not in host memory.",
             [](const host::FileUse& use) { return double(use.metadata_read.value); }),
          of("tier_metadata_bytes_written", "B",
             "Serving with a file per block: inodes, directories and bitmaps that were written, to the journal and to "
             "their places; all that had changed by the end of the run.",
             [](const host::FileUse& use) { return double(use.written().value); })};
}

/// What the host has written to the drives.
double bytes_to_drives(const ServedRun& run) {
  return double(run.out.tiers.drives.bytes_written.value) +
         (run.out.files ? double(run.out.files->written().value) : 0);
}

double programmed_bytes(const ServedRun& run) {
  const csd_model::DeviceConfig& device = run.scenario.platform.device;
  const Bytes unit = device.ftl.mapping_unit.value_or(device.flash.geometry.page_size);
  return double(run.out.writes.programmed()) * double(unit.value);
}

/// How the drives wear. Erased or programmed bytes, if more, over what the flash can take.
std::vector<ServingMetric> wear_metrics() {
  const auto written = [](const ServedRun& run) -> const ftl::WriteWork* {
    return run.out.simulated_drives ? &run.out.writes : nullptr;
  };
  std::vector<ServingMetric> all = write_amplification_metrics<ServedRun>(
      {"write_amplification", "1",
       "All that was programmed over what the host wrote, both in mapping units (ftl.mapping_unit; a page without it), "
       "of which a write of a part counts as a whole one; 1 without writes. Its parts follow. Programs count when they "
       "are planned."},
      written);
  all.push_back({kDriveWritesPerDay, [](const ServedRun& run) -> Value {
                   if (!run.out.simulated_drives) return std::nullopt;
                   return share(bytes_to_drives(run) / exported_bytes(run.scenario) * kSecondsPerDay,
                                run.out.seconds());
                 }});
  all.push_back({{"tier_write_amplification", "1",
                  "Serving: all bytes that were programmed, over those of the blocks that were stored on the drives: "
                  "write_amplification, times what files add to the blocks in them."},
                 [](const ServedRun& run) -> Value {
                   if (!run.out.simulated_drives) return std::nullopt;
                   return share(programmed_bytes(run), double(run.out.tiers.drives.bytes_written.value));
                 }});
  all.push_back({kDriveLifetime, [](const ServedRun& run) -> Value {
                   const double worn = worn_bytes(run.scenario, programmed_bytes(run), run.out.erases);
                   if (!run.out.simulated_drives || worn == 0) return std::nullopt;
                   return rated_bytes(run.scenario) / worn * run.out.seconds() / kSecondsPerYear;
                 }});
  return all;
}

std::vector<ServingMetric> serving_metrics() {
  std::vector<ServingMetric> all = request_metrics_of();
  for (const auto& more : {hit_metrics(), tier_metrics("host", "host memory", false, &host::TiersUse::host),
                           tier_metrics("drives", "the drives", true, &host::TiersUse::drives), engine_metrics(),
                           file_metrics(), wear_metrics()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string requests_csv(const ServingOutcome& out) {
  ordered_json rows = ordered_json::array();
  std::vector<const host::ServedRequest*> requests;
  for (const host::ServedRequest& r : out.meter.requests()) requests.push_back(&r);
  std::ranges::sort(requests, {}, [](const auto* r) { return r->life.id.value; });
  const auto since_start = [&](SimTime at) { return (at - out.start).seconds(); };
  for (const host::ServedRequest* r : requests)
    rows.push_back({{"request", r->life.id.value},
                    {"line", r->life.line},
                    {"instance", r->instance},
                    {"input_tokens", r->life.prompt},
                    {"output_tokens", r->life.generated},
                    {"arrival_s", since_start(r->life.arrival)},
                    {"admitted_s", since_start(r->life.admitted)},
                    {"load_began_s", r->has_loaded ? ordered_json(since_start(r->load_began)) : ordered_json()},
                    {"loaded_s", r->has_loaded ? ordered_json(since_start(r->loaded_at)) : ordered_json()},
                    {"first_token_s", since_start(r->life.first_token)},
                    {"end_s", since_start(r->life.end)},
                    {"gpu_hit_tokens", r->hit_gpu},
                    {"host_hit_tokens", r->hit_host},
                    {"drive_hit_tokens", r->hit_drives},
                    {"preemptions", r->preemptions}});
  return report::csv_rows(rows);
}

std::string load_csv(const ServingOutcome& out) {
  ordered_json rows = ordered_json::array();
  for (const host::ServingMeter::Sample& sample : out.meter.samples())
    rows.push_back({{"time_s", (sample.at - out.start).seconds()},
                    {"waiting", sample.load.waiting},
                    {"loading", sample.load.loading},
                    {"running", sample.load.running},
                    {"remaining", sample.load.remaining},
                    {"gpu_blocks", sample.load.gpu_blocks},
                    {"host_blocks", sample.load.host_blocks},
                    {"drive_blocks", sample.load.drive_blocks}});
  return report::csv_rows(rows);
}

/// The same as groups of curves for the report, with at most as many values as a picture shows.
ordered_json series(const ServingOutcome& out) {
  constexpr std::size_t kMost = 250;
  const auto& samples = out.meter.samples();
  const std::size_t step = samples.size() / kMost + 1;
  const auto column = [&](auto value) {
    ordered_json values = ordered_json::array();
    for (std::size_t i = 0; i < samples.size(); i += step) values.push_back(value(samples[i]));
    return values;
  };
  const auto load = [&](std::uint64_t host::ServingLoad::*figure) {
    return column([figure](const host::ServingMeter::Sample& sample) { return sample.load.*figure; });
  };
  const auto share = [&](std::uint64_t host::ServingLoad::*figure, std::uint64_t capacity) {
    return column([figure, capacity](const host::ServingMeter::Sample& sample) {
      return static_cast<double>(sample.load.*figure) / static_cast<double>(capacity);
    });
  };
  ordered_json taken{{"GPU", share(&host::ServingLoad::gpu_blocks, out.gpu_blocks)}};
  if (out.host_blocks) taken["host memory"] = share(&host::ServingLoad::host_blocks, *out.host_blocks);
  if (out.drive_blocks) taken["drives"] = share(&host::ServingLoad::drive_blocks, *out.drive_blocks);
  const ordered_json times =
      column([&](const host::ServingMeter::Sample& sample) { return (sample.at - out.start).seconds(); });
  ordered_json curves{{"requests",
                       {{"waiting", load(&host::ServingLoad::waiting)},
                        {"loading", load(&host::ServingLoad::loading)},
                        {"running", load(&host::ServingLoad::running)}}},
                      {"requests that have not ended", {{"remaining", load(&host::ServingLoad::remaining)}}},
                      {"share of each tier that is taken", std::move(taken)}};
  if (!out.write_samples.empty())
    curves["write amplification"] = sample_curves(out.write_samples, times.get<std::vector<double>>());
  return {{"time_s", times}, {"curves", std::move(curves)}};
}

/// Distribution functions of the times of requests and of the gaps between tokens: values at `shares` of them. Null for
/// few requests, for which the rows of requests.csv are enough.
ordered_json distributions(const ServedRun& run) {
  constexpr std::size_t kFewest = 20;
  if (run.requests.size() < kFewest) return nullptr;
  // Every percent, and the ends.
  std::vector<std::uint32_t> permille;
  for (std::uint32_t i = 0; i < 100; ++i) permille.push_back(10 * i);
  permille.insert(permille.end(), {995, 999, 1000});
  ordered_json shares = ordered_json::array(), values = ordered_json::object();
  for (const std::uint32_t share : permille) shares.push_back(share / 1000.0);
  const auto add = [&](const char* name, std::size_t count, const auto& at_rank) {
    if (count == 0) return;
    ordered_json& of = values[name] = ordered_json::array();
    for (const std::uint32_t share : permille) of.push_back(at_rank(share));
  };
  const auto of_requests = [&](const char* name, OfServed of) {
    const std::vector<double> sorted = values_of(run, of);
    add(name, sorted.size(), [&](std::uint32_t share) {
      const std::size_t rank = (sorted.size() * share + 999) / 1000;  // nearest rank
      return sorted[rank > 0 ? rank - 1 : 0];
    });
  };
  of_requests("request_ttft_s", time_of<ttft>);
  of_requests("request_tpot_s", time_of<tpot>);
  const Histogram& gaps = run.out.meter.itl_ps();
  add("itl_s", gaps.count(), [&](std::uint32_t share) { return double(gaps.quantile(share, 1000)) * 1e-12; });
  of_requests("request_latency_s", time_of<latency>);
  return {{"shares", shares}, {"values", values}};
}

ordered_json capacities(const ServedRun& run) {
  const auto of = [](const std::optional<std::uint64_t>& blocks) {
    return blocks ? ordered_json(*blocks) : ordered_json();
  };
  return {{"gpu_blocks", run.out.gpu_blocks},
          {"gpu_block_tokens", run.work.engine.block_tokens},
          {"host_blocks", of(run.out.host_blocks)},
          {"drive_blocks", of(run.out.drive_blocks)},
          {"tier_block_tokens", run.work.tier_block_tokens()},
          {"tier_block_bytes", run.out.tier_block.value},
          {"kv_bytes_per_token", run.work.kv_token(run.scenario).value}};
}

/// How the answers agree with those of each request computed alone.
void add_comparison(const ServedRun& run, scenario::RunResult& result) {
  std::uint64_t compared = 0, equal = 0;
  ordered_json first = nullptr, rows = ordered_json::array();
  for (std::size_t r = 0; r < run.out.answers.size(); ++r)
    for (std::size_t i = 0; i < run.out.answers[r].size(); ++i) {
      const host::DrawnToken& token = run.out.answers[r][i];
      const bool same = token == run.out.cold_answers[r].at(i);
      ++compared;
      equal += same ? 1 : 0;
      if (!same && first.is_null()) first = {{"request", r}, {"token", i}};
      rows.push_back({{"request", r}, {"index", i}, {"token", token.token.value}, {"logit", token.logit}});
    }
  result.document["stats"]["cold_answers"] = {
      {"tokens_compared", compared}, {"tokens_equal", equal}, {"first_difference", first}};
  result.files.push_back({"tokens.csv", report::csv_rows(rows)});
  result.meaning += fmt::format(" Against each request computed alone: {} of {} tokens equal.", equal, compared);
  if (equal != compared)
    result.failure = fmt::format("tokens differ from those of each request computed alone, first at {}", first.dump());
}

/// Whether requests wait longer the later they come: then all times are those of a trace of this length.
std::string backlog(const ServedRun& run) {
  constexpr std::size_t kFewest = 20;
  std::vector<const host::Request*> lives;
  for (const host::ServedRequest& r : run.requests) lives.push_back(&r.life);
  if (lives.size() < kFewest) return "";
  std::ranges::stable_sort(lives, {}, &host::Request::arrival);
  const auto wait = [](std::span<const host::Request* const> some) {
    double sum = 0;
    for (const host::Request* life : some) sum += queueing(*life).value_or(0);
    return sum / static_cast<double>(some.size());
  };
  const std::span<const host::Request* const> all(lives);
  const std::size_t quarter = all.size() / 4;
  const double first = wait(all.first(quarter)), last = wait(all.last(quarter)), mean = wait(all);
  const double served = (run.out.end - lives.front()->arrival).seconds(),
               arriving = (lives.back()->arrival - lives.front()->arrival).seconds();
  // What is left at the last arrival takes a tenth of the time in which all others came and were served.
  if (last < 2 * first || last < mean || served < 1.1 * arriving) return "";
  // Where loads take as long as the waits, more GPUs would wait for the same drives.
  const double load = experiment::mean(values_of(run, loading)).value_or(0);
  return fmt::format(
      " Requests come faster than they are served: the first quarter waited {:.3g} s before they were begun, the last "
      "quarter {:.3g} s, and of a longer trace more would wait longer. Let them come more slowly (speed, gap), or {}, "
      "before times are compared.",
      first, last,
      load > mean / 2 ? fmt::format("give them faster tiers (those that load wait {:.3g} s for it)", load)
                      : "add instances");
}

/// Says what a table of rates does not model, and whether the drives were written often enough for it to matter.
std::string limits_of_rates(const ServedRun& run) {
  std::string text = " The drives are a table of rates: they collect no garbage and do not wear";
  const double written = bytes_to_drives(run) / exported_bytes(run.scenario);
  if (written <= 1) return text + ".";
  return text + fmt::format(
                    ". They were written {:.2g} times over, which simulated drives answer with collection: they may be "
                    "much slower (workload.tiers.drives.model: simulated).",
                    written);
}

/// What an interrupted run has not served.
std::string interruption(const ServedRun& run) {
  return fmt::format(
      "PARTIAL: interrupted after {:.4g} simulated seconds, when {} of {} requests had ended; those under way are left "
      "out, and long ones are missing most",
      run.out.seconds(), run.out.meter.requests().size(), run.work.trace->requests.size());
}

std::string meaning(const ServedRun& run, const ordered_json& metrics) {
  const auto of = [&](const char* name) { return metrics.contains(name) ? metrics[name].get<double>() : 0; };
  std::string text = fmt::format(
      "{} requests: the first token came after {:.3g} s on average (p99 {:.3g} s), further ones every {:.3g} ms. "
      "{:.1f} % "
      "of the prompts' tokens were found: {:.1f} % in the GPU",
      run.requests.size(), of("request_ttft_mean_s"), of("request_ttft_p99_s"), of("request_tpot_mean_s") * 1e3,
      of("prefix_hit_rate") * 100, of("gpu_hit_rate") * 100);
  if (run.out.host_blocks) text += fmt::format(", {:.1f} % in host memory", of("tier_host_hit_rate") * 100);
  if (run.out.drive_blocks) text += fmt::format(", {:.1f} % on the drives", of("tier_drives_hit_rate") * 100);
  text += ".";
  if (metrics.contains("drive_lifetime_years"))
    text += fmt::format(
        " The drives last {:.2g} years at this load, with the write amplification of this run ({:.3g}) and blocks of "
        "{}; "
        "csdsim certify says how long with the write amplification of drives in their steady state.",
        of("drive_lifetime_years"), of("write_amplification"), rated_cycles_text(run.scenario));
  if (run.work.tiers.drives && !run.out.simulated_drives) text += limits_of_rates(run);
  if (run.out.interrupted) return interruption(run) + ". " + text;
  return text + backlog(run);
}

}  // namespace

std::vector<MetricInfo> serving_metric_infos() {
  return joined(joined(infos_of(serving_metrics()), infos_of(run_metrics(RunOf::blocks))), simulation_metrics());
}

scenario::RunResult serving_result(const Scenario& s, const ServingWorkload& work, const ServingOutcome& out,
                                   const WallClock& clock) {
  ServedRun run{.scenario = s, .work = work, .out = out, .requests = {}, .first_arrival = out.end, .ended = {}};
  for (const host::ServedRequest& r : out.meter.requests())
    if (r.life.id.value >= work.warmup_requests) {
      run.requests.push_back(r);
      run.first_arrival = std::min(run.first_arrival, r.life.arrival);
    }
  for (const host::ServedRequest& r : out.meter.requests())
    if (r.life.end >= run.first_arrival) run.ended.push_back(r);
  scenario::RunResult result;
  result.document = result_frame(s);
  ordered_json& metrics = result.document["metrics"];
  add_metrics(metrics, serving_metrics(), run);
  const csd_model::DriveWork drives = work_of(out.totals);
  if (out.simulated_drives) {
    const csd_model::EnergyBreakdown joules = drive_energy(s, drives);
    add_metrics(metrics, run_metrics(RunOf::blocks),
                RunWork{.work = drives,
                        .energy = joules,
                        .energy_bytes = double((out.tiers.drives.bytes_read + out.tiers.drives.bytes_written).value),
                        .issued = out.commands_issued,
                        .completed = out.commands_completed});
    result.document["breakdown"]["energy"] = energy_breakdown(s, joules);
    result.document["breakdown"]["write_samples"] = sample_rows(out.write_samples, "time_s");
  }
  add_simulated(metrics, out.seconds(), out.totals.page_ops);
  result.document["breakdown"]["capacities"] = capacities(run);
  result.document["series"] = series(out);
  if (ordered_json of = distributions(run); !of.is_null()) result.document["distributions"] = std::move(of);
  result.document["stats"] = {{"origin", out.simulated_drives ? "modelled; the drives were new before the first request"
                                                              : "modelled; drives, if any, are a table of rates"},
                              {"drives", out.drive_statistics}};
  if (out.rates) result.document["stats"]["drive_rates"] = *out.rates;
  if (out.interrupted) {
    result.document["stats"]["simulated"] = interruption(run);
    result.document["partial"] = {{"simulated_s", out.seconds()},
                                  {"requests_ended", out.meter.requests().size()},
                                  {"requests", work.trace->requests.size()}};
  }
  result.document["wall"] = wall_figures(clock, out.totals.page_ops);
  result.files.push_back({"requests.csv", requests_csv(out)});
  result.files.push_back({"load.csv", load_csv(out)});
  result.files.push_back({"metrics.prom", prometheus_text(out)});
  result.meaning = meaning(run, metrics);
  if (work.tiers.drives)
    if (const std::string beyond = beyond_slc_cache(s, bytes_to_drives(run) / s.platform.device.count);
        !beyond.empty()) {
      result.document["stats"]["notes"] = {beyond};
      result.meaning += " " + beyond;
    }
  if (s.simulation.data == ftl::DataMode::carried) add_comparison(run, result);
  return result;
}

}  // namespace csdsim::experiment
