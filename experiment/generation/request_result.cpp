#include "experiment/generation/request_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "experiment/generation/generation_workload.h"
#include "experiment/generation/kv_counts.h"
#include "experiment/measure/endurance.h"
#include "experiment/measure/request_metrics.h"
#include "experiment/write_metrics.h"
#include "host_runtime/core/plan/kept_kv.h"
#include "report/csv.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

using Value = std::optional<double>;
using OfRequest = Value (*)(const host::Request&);

/// Values of the requests that have one, in seconds, ascending.
std::vector<double> values_of(const RequestOutcome& outcome, OfRequest value) {
  std::vector<double> values;
  for (const host::Request& request : outcome.requests)
    if (const Value v = value(request)) values.push_back(*v);
  std::ranges::sort(values);
  return values;
}

/// From the start of the run to the last token.
double seconds_of(const RequestOutcome& outcome) {
  SimTime last;
  for (const host::Request& request : outcome.requests) last = std::max(last, request.end);
  return (last - outcome.start).seconds();
}

/// A value of runs of requests with their own lengths; of those that arrive at their own times; of those with K and V
/// in drives.
template <class F>
auto of_requests(F value) {
  return
      [value](const MeasuredGeneration& run) -> Value { return run.out.requests ? Value(value(run)) : std::nullopt; };
}
template <class F>
auto if_served(F value) {
  return [value](const MeasuredGeneration& run) -> Value { return run.served ? Value(value(run)) : std::nullopt; };
}
bool writes(const MeasuredGeneration& run) { return run.served && run.in_drives; }
template <class F>
auto if_written(F value) {
  return [value](const MeasuredGeneration& run) -> Value { return writes(run) ? Value(value(run)) : std::nullopt; };
}

/// Bytes of the flash that were programmed, or erased if that is more. A block that is closed before it is full is
/// erased whole; pages that are programmed will be erased later.
double worn_in(const MeasuredGeneration& run) {
  const ftl::KvFtlStats& kv = run.out.kv;
  const Bytes page = run.scenario.platform.device.flash.geometry.page_size;
  return worn_bytes(run.scenario, double(kv.work().programmed()) * double(page.value), kv.erases);
}

/// How often the flash can be worn as in this run, if it is always used so and wears evenly.
Value runs_to_wear(const MeasuredGeneration& run) {
  const double worn = worn_in(run);
  return worn == 0 ? std::nullopt : Value(rated_bytes(run.scenario) / worn);
}

std::vector<GenerationMetric> distribution(const RequestTimeMetrics& time) {
  const auto values = [of = time.of, arriving = time.arriving](const MeasuredGeneration& run) {
    return run.out.requests && (run.served || !arriving) ? values_of(*run.out.requests, of) : std::vector<double>{};
  };
  return {{time.mean(), [values](const MeasuredGeneration& run) { return mean(values(run)); }},
          {time.median(), [values](const MeasuredGeneration& run) { return percentile(values(run), 50); }},
          {time.p99(), [values](const MeasuredGeneration& run) { return percentile(values(run), 99); }}};
}

/// K and V that the host has written to drives, and what the drives have made of it.
std::vector<GenerationMetric> write_metrics() {
  std::vector<GenerationMetric> all{
      {{"kv_bytes_written", "B",
        "Requests that arrive, K and V in drives: K and V that the host has written, each element once."},
       if_written([](const MeasuredGeneration& run) { return double(run.written.value); }),
       true},
      {{"flash_bytes_programmed", "B",
        "The same runs: bytes that were programmed until the last token, by writes and by garbage collection."},
       if_written([](const MeasuredGeneration& run) {
         return run.out.prefill.programmed_bytes + run.out.decode.programmed_bytes;
       })},
      kv_count(&ftl::KvFtlStats::erases, kSameRuns, writes),
      kv_count(&ftl::KvFtlStats::gc_pages_moved, kSameRuns, writes),
  };
  const auto add = [&all](const std::vector<GenerationMetric>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(write_amplification_metrics<MeasuredGeneration>(
      {"kv_write_amplification", "1",
       "The same runs: pages of K and V that were programmed over those that hold what the host wrote, both until the "
       "drive was idle. Its parts follow."},
      [](const MeasuredGeneration& run) {
        return run.served && run.in_drives && run.kv_writes.written > 0 ? &run.kv_writes : nullptr;
      }));
  add({
      {kDriveWritesPerDay, if_written([](const MeasuredGeneration& run) {
         return double(run.written.value) / exported_bytes(run.scenario) / seconds_of(*run.out.requests) *
                kSecondsPerDay;
       })},
      {{"kv_wear_per_byte", "1",
        "Requests that arrive, K and V in drives: bytes programmed, or erased if that is more, per byte of K and V "
        "that the host has written. A "
        "second copy of K, pages that are not full and garbage collection count."},
       if_written([](const MeasuredGeneration& run) -> Value {
         const double worn = worn_in(run);
         return worn > 0 ? Value(worn / double(run.written.value)) : std::nullopt;
       })},
      {{"drive_terabytes_written", "TB",
        "The same runs: K and V that the host can write to all drives in drive_lifetime_years."},
       if_written([](const MeasuredGeneration& run) -> Value {
         const Value runs = runs_to_wear(run);
         return runs ? Value(*runs * double(run.written.value) * 1e-12) : std::nullopt;
       })},
      {kDriveLifetime, if_written([](const MeasuredGeneration& run) -> Value {
         const Value runs = runs_to_wear(run);
         return runs ? Value(*runs * seconds_of(*run.out.requests) / kSecondsPerYear) : std::nullopt;
       })},
  });
  return all;
}

std::uint64_t generated_tokens(const MeasuredGeneration& run) {
  std::uint64_t tokens = 0;
  for (const host::Request& request : run.out.requests->requests) tokens += request.generated;
  return tokens;
}

Bytes kept_token(const scenario::Scenario& s) {
  const host::ModelShape model = s.model.shape();
  return host::kept_kv_bytes(model, s.system->traits().kv_format) * (model.kv_heads * model.layers);
}

}  // namespace

MeasuredGeneration::MeasuredGeneration(const GenerationOutcome& outcome, const scenario::Scenario& s,
                                       const host::OffloadSystem& system)
    : out(outcome),
      scenario(s),
      served(out.requests && out.requests->served),
      token(kept_token(s)),
      kv_writes(out.kv.work()) {
  const host::BatchLengths lengths = generation_of(s).lengths();
  in_drives = system.needs({.model = s.model.shape(), .workload = lengths}).kv == host::Place::drive_kv();
  if (served)
    written = token * lengths.fed_tokens();
  else
    of_batch = host::generation_metrics(out.times);
}

std::vector<GenerationMetric> speed_metrics() {
  const auto of_batch = [](Value host::GenerationMetrics::*figure) {
    return [figure](const MeasuredGeneration& run) { return run.of_batch ? *run.of_batch.*figure : std::nullopt; };
  };
  std::vector<GenerationMetric> all{
      {kTokensPerSecond,
       [](const MeasuredGeneration& run) {
         if (run.of_batch) return run.of_batch->tokens_per_s;
         return static_cast<double>(generated_tokens(run)) / seconds_of(*run.out.requests);
       }},
      {kTimeToFirstToken,
       [](const MeasuredGeneration& run) {
         return run.of_batch ? Value(run.of_batch->ttft_s) : mean(values_of(*run.out.requests, ttft));
       }},
      {{"decode_tokens_per_s", "tokens/s",
        "Tokens after the first of each sequence, over the time of all decode steps. Absent if requests arrive.",
        "scenario.workload.batch * (scenario.workload.output_tokens - 1) / breakdown.decode.seconds"},
       of_batch(&host::GenerationMetrics::decode_tokens_per_s)},
      {kTimePerToken,
       [](const MeasuredGeneration& run) {
         return run.of_batch ? run.of_batch->tpot_s : mean(values_of(*run.out.requests, tpot));
       }},
      {{"decode_step_s", "s", "Mean time of a decode step; with drafts a step makes several tokens.",
        "breakdown.decode.seconds / (scenario.workload.output_tokens - 1)"},
       of_batch(&host::GenerationMetrics::decode_step_s)},
      {{"kv_access_share", "1",
        "Share of the decode time that the critical path spends in flash and in transfers of K and V.",
        "(breakdown.decode.critical_path_s.flash + breakdown.decode.critical_path_s.kv_link) / "
        "breakdown.decode.seconds"},
       of_batch(&host::GenerationMetrics::kv_access_share)},
      {kRequestsPerSecond, if_served([](const MeasuredGeneration& run) {
         return static_cast<double>(run.out.requests->requests.size()) / seconds_of(*run.out.requests);
       })}};
  const auto add = [&all](const std::vector<GenerationMetric>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const RequestTimeMetrics& time : request_time_metrics()) add(distribution(time));
  add({{{"idle_s", "s", "Requests that arrive: time in which none runs."},
        if_served([](const MeasuredGeneration& run) { return run.out.requests->idle_s; })},
       {{"kv_bytes_peak", "B", "Requests: most K and V of the tokens of all running requests at a time."},
        of_requests(
            [](const MeasuredGeneration& run) { return double((run.token * run.out.requests->most_tokens).value); }),
        true},
       {{"kv_bytes_mean", "B", "Requests: mean of the same over time."}, of_requests([](const MeasuredGeneration& run) {
          return static_cast<double>(run.token.value) * run.out.requests->mean_tokens;
        })}});
  add(write_metrics());
  return all;
}

std::string requests_csv(const RequestOutcome& outcome) {
  ordered_json rows = ordered_json::array();
  const auto since_start = [&](SimTime at) { return (at - outcome.start).seconds(); };
  for (const host::Request& r : outcome.requests)
    rows.push_back({{"request", r.id.value},
                    {"input_tokens", r.prompt},
                    {"output_tokens", r.generated},
                    {"arrival_s", since_start(r.arrival)},
                    {"admitted_s", since_start(r.admitted)},
                    {"first_token_s", since_start(r.first_token)},
                    {"end_s", since_start(r.end)}});
  return report::csv_rows(rows);
}

std::string meaning_of_requests(const RequestOutcome& outcome, const ordered_json& metrics) {
  const auto of = [&](const char* name) { return metrics[name].get<double>(); };
  std::string text = fmt::format("{} requests took {:.3g} s on average (p99 {:.3g} s)", outcome.requests.size(),
                                 of("request_latency_mean_s"), of("request_latency_p99_s"));
  if (outcome.served)
    text +=
        fmt::format(", of which they waited {:.3g} s for a place; the first token came after {:.3g} s (p99 {:.3g} s)",
                    of("request_queueing_mean_s"), of("request_ttft_mean_s"), of("request_ttft_p99_s"));
  return text;
}

}  // namespace csdsim::experiment
