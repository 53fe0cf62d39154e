#include "experiment/generation/request_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "experiment/generation/generation_workload.h"
#include "experiment/write_metrics.h"
#include "host_runtime/core/planner/kept_kv.h"
#include "report/csv.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

/// Values of the requests that have one, in seconds.
template <class Value>
std::vector<double> values_of(const RequestOutcome& outcome, Value value) {
  std::vector<double> values;
  for (const RequestTimes& request : outcome.requests)
    if (const std::optional<double> v = value(request)) values.push_back(*v);
  std::ranges::sort(values);
  return values;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The smallest value that at least `percent` % of the values do not exceed.
double percentile(const std::vector<double>& sorted, std::size_t percent) {
  return sorted[(sorted.size() * percent + 99) / 100 - 1];
}

void add_distribution(ordered_json& metrics, const std::string& name, const std::vector<double>& sorted) {
  if (sorted.empty()) return;
  metrics[name + "_mean_s"] = mean(sorted);
  metrics[name + "_p50_s"] = percentile(sorted, 50);
  metrics[name + "_p99_s"] = percentile(sorted, 99);
}

std::optional<double> tpot(const RequestTimes& r) {
  if (r.generated < 2) return std::nullopt;
  return (r.end - r.first_token).seconds() / (r.generated - 1);
}

void add_latency(ordered_json& metrics, const RequestOutcome& outcome) {
  add_distribution(metrics, "request_latency", values_of(outcome, [](const RequestTimes& r) -> std::optional<double> {
                     return (r.end - r.arrival).seconds();
                   }));
}

/// From the start of the run to the last token.
double seconds_of(const RequestOutcome& outcome) {
  SimTime last;
  for (const RequestTimes& request : outcome.requests) last = std::max(last, request.end);
  return (last - outcome.start).seconds();
}

/// Requests that arrive: TTFT and latency count from the arrival, TPOT from the first token.
void add_served(ordered_json& metrics, const RequestOutcome& outcome) {
  std::uint64_t tokens = 0;
  for (const RequestTimes& request : outcome.requests) tokens += request.generated;
  const double seconds = seconds_of(outcome);
  const std::vector<double> ttft = values_of(
      outcome, [](const RequestTimes& r) -> std::optional<double> { return (r.first_token - r.arrival).seconds(); });
  const std::vector<double> per_token = values_of(outcome, tpot);
  metrics["tokens_per_s"] = static_cast<double>(tokens) / seconds;
  metrics["requests_per_s"] = static_cast<double>(outcome.requests.size()) / seconds;
  metrics["ttft_s"] = mean(ttft);
  if (!per_token.empty()) metrics["tpot_s"] = mean(per_token);
  add_distribution(metrics, "request_ttft", ttft);
  add_distribution(metrics, "request_tpot", per_token);
  add_distribution(metrics, "request_queueing", values_of(outcome, [](const RequestTimes& r) -> std::optional<double> {
                     return (r.admitted - r.arrival).seconds();
                   }));
  metrics["idle_s"] = outcome.idle_s;
}

/// How long the flash lasts if it is always used as in this run. A block that is closed before it is full is erased
/// whole; pages that are programmed will be erased later.
void add_lifetime(ordered_json& metrics, const GenerationOutcome& out, Bytes written, const scenario::Scenario& s) {
  constexpr double kDay = 86'400, kYear = 365.25 * kDay;
  const csd_model::DeviceConfig& device = s.platform.device;
  const FlashGeometry& flash = device.flash.geometry;
  const double seconds = seconds_of(*out.requests), drives = device.count;
  metrics["drive_writes_per_day"] =
      double(written.value) / (double(device.usable_capacity().value) * drives) / seconds * kDay;
  const double page = double(flash.page_size.value);
  const double programmed = double(out.kv_writes.programmed()) * page;
  const double erased = double(out.kv_erases) * flash.pages_per_block * page;
  const double worn = std::max(programmed, erased);
  if (worn == 0) return;
  const std::uint32_t cycles = device.flash.reliability.value_or(nfc::ReliabilityConfig{}).rated_cycles;
  const double runs = cycles * double(flash.pages()) * page * drives / worn;
  metrics["kv_wear_per_byte"] = worn / double(written.value);
  metrics["drive_lifetime_years"] = runs * seconds / kYear;
  metrics["drive_terabytes_written"] = runs * double(written.value) * 1e-12;
}

/// K and V of a token in all layers as the system keeps them.
Bytes kept_token(const scenario::Scenario& s) {
  const host::ModelShape model = s.model.shape();
  return host::kept_kv_bytes(model, s.system->traits().kv_format) * (model.kv_heads * model.layers);
}

/// K and V that the host has written to drives, once per element, and what the drives have made of it.
void add_writes(ordered_json& metrics, const GenerationOutcome& out, const host::BatchLengths& lengths,
                const scenario::Scenario& s) {
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < lengths.prompt_tokens.size(); ++i)
    tokens += lengths.prompt_tokens[i] + std::uint64_t{lengths.output_of(i)} - 1;
  const Bytes written = kept_token(s) * tokens;
  metrics["kv_bytes_written"] = written.value;
  metrics["flash_bytes_programmed"] = out.prefill.programmed_bytes + out.decode.programmed_bytes;
  metrics["kv_erases"] = out.kv_erases;
  metrics["kv_gc_pages_moved"] = out.kv_writes.collection;
  if (out.kv_writes.written > 0) add_write_amplification(metrics, "kv_", out.kv_writes);
  add_lifetime(metrics, out, written, s);
}

}  // namespace

void add_generation_metrics(ordered_json& metrics, const GenerationOutcome& out, const scenario::Scenario& s,
                            const host::OffloadSystem& system) {
  const bool served = out.requests && out.requests->served;
  if (served)
    add_served(metrics, *out.requests);
  else
    for (const auto& [name, value] : host::generation_metrics(out.times).flat()) metrics[name] = value;
  if (!out.requests) return;
  add_latency(metrics, *out.requests);
  const Bytes token = kept_token(s);
  metrics["kv_bytes_peak"] = (token * out.requests->most_tokens).value;
  metrics["kv_bytes_mean"] = static_cast<double>(token.value) * out.requests->mean_tokens;
  if (served &&
      system.needs({.model = s.model.shape(), .workload = generation_of(s).lengths()}).kv == host::Home::drive_kv)
    add_writes(metrics, out, generation_of(s).lengths(), s);
}

std::string requests_csv(const RequestOutcome& outcome, const host::BatchLengths& lengths) {
  ordered_json rows = ordered_json::array();
  const auto since_start = [&](SimTime at) { return (at - outcome.start).seconds(); };
  for (std::size_t i = 0; i < outcome.requests.size(); ++i) {
    const RequestTimes& r = outcome.requests[i];
    rows.push_back({{"request", i},
                    {"input_tokens", lengths.prompt_tokens[i]},
                    {"output_tokens", r.generated},
                    {"arrival_s", since_start(r.arrival)},
                    {"admitted_s", since_start(r.admitted)},
                    {"first_token_s", since_start(r.first_token)},
                    {"end_s", since_start(r.end)}});
  }
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
