// The metrics of requests that generations and serving runs share.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "base/metric.h"
#include "experiment/measure/request_times.h"

namespace csdsim::experiment {

inline const MetricInfo kTokensPerSecond{
    "tokens_per_s", "tokens/s", "Generated tokens of all sequences, first tokens included, over the time of the run.",
    "scenario.workload.batch * scenario.workload.output_tokens / (ttft_s + breakdown.decode.seconds)"};
inline const MetricInfo kRequestsPerSecond{"requests_per_s", "1/s",
                                           "Requests that arrive: requests over the time of the run."};
inline const MetricInfo kTimeToFirstToken{
    "ttft_s", "s",
    "Time until every sequence has its first token. Requests that arrive: mean time from the arrival to the first "
    "token.",
    "breakdown.prefill.seconds"};
inline const MetricInfo kTimePerToken{
    "tpot_s", "s",
    "Time per output token: decode time over the further tokens of a sequence. Requests that arrive: the mean of the "
    "requests.",
    "breakdown.decode.seconds / (scenario.workload.output_tokens - 1)"};

/// A time of requests, of which mean, median and 99th percentile are metrics. All of them of requests that are `when`.
struct RequestTimeMetrics {
  std::string name;  ///< "request_ttft"
  std::string when, what;
  std::string formula = {};  ///< formula of the mean
  std::string how = {};
  RequestTime (*of)(const host::Request&) = nullptr;
  bool arriving = true;  ///< only for requests that arrive at their own times

  MetricInfo mean() const { return {name + "_mean_s", "s", when + ": mean " + what + ".", formula}; }
  MetricInfo median() const { return {name + "_p50_s", "s", when + ": median of the same."}; }
  MetricInfo p99() const { return {name + "_p99_s", "s", when + ": 99th percentile of the same" + how + "."}; }
};

inline std::array<RequestTimeMetrics, 4> request_time_metrics() {
  const std::string arriving = "Requests that arrive";
  return {{{.name = "request_latency",
            .when = "Requests",
            .what = "time from the arrival to the last token",
            .how = " (nearest rank)",
            .of = latency,
            .arriving = false},
           {.name = "request_ttft",
            .when = arriving,
            .what = "time from the arrival to the first token",
            .formula = "ttft_s",
            .of = ttft},
           {.name = "request_tpot",
            .when = arriving,
            .what = "over requests of their time per further token",
            .formula = "tpot_s",
            .of = tpot},
           {.name = "request_queueing",
            .when = arriving,
            .what = "time from the arrival to the admission",
            .of = queueing}}};
}

}  // namespace csdsim::experiment
