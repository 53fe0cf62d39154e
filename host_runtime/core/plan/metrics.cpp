#include "host_runtime/core/plan/metrics.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim::host {

std::uint64_t missing_tokens(const BatchLengths& workload) {
  return std::uint64_t{workload.output_tokens} * workload.size() - workload.generated();
}

GenerationTimes generation_times(const ExecutionReport& report, const BatchLengths& workload) {
  const std::size_t expected = workload.decode_steps() + 1;
  const bool drafts = workload.speculation.draft_tokens > 0 && workload.output_tokens > 1;
  if (report.steps.size() < (drafts ? 2 : expected) ||
      report.steps.size() > (drafts ? workload.output_tokens : expected) ||
      report.steps.front().phase != Phase::prefill || !report.steps.back().ended)
    throw InternalError(fmt::format("{} steps recorded for a run of {}", report.steps.size(), expected));
  const StepRecord& first = report.steps.front();
  const StepRecord& last = report.steps.back();
  GenerationTimes times{.batch = workload.size(),
                        .output_tokens = workload.output_tokens,
                        .decode_steps = static_cast<std::uint32_t>(report.steps.size() - 1),
                        .missing_tokens = missing_tokens(workload),
                        .ttft_s = (first.end - report.start).seconds(),
                        .decode_s = (last.end - first.end).seconds()};
  const PathBreakdown decode = workload.output_tokens > 1 ? last.path : PathBreakdown{};
  for (std::size_t i = 0; i < kPathParts; ++i) times.decode_path_s[i] = (decode.layered[i] + decode.fixed[i]).seconds();
  for (std::size_t i = 0; i < kPathResources; ++i)
    times.decode_resource_s[i] = (decode.layered_resources[i] + decode.fixed_resources[i]).seconds();
  return times;
}

GenerationMetrics generation_metrics(const GenerationTimes& t) {
  GenerationMetrics m;
  m.ttft_s = t.ttft_s;
  m.tokens_per_s = static_cast<double>(t.tokens()) / (t.ttft_s + t.decode_s);
  if (t.output_tokens < 2) return m;
  m.decode_tokens_per_s = static_cast<double>(t.tokens() - t.batch) / t.decode_s;
  m.tpot_s = t.decode_s / (t.output_tokens - 1);
  m.decode_step_s = t.decode_s / t.decode_steps;
  const auto part = [&](PathPart p) { return t.decode_path_s[static_cast<std::size_t>(p)]; };
  m.kv_access_share = (part(PathPart::flash) + part(PathPart::kv_link)) / t.decode_s;
  return m;
}

}  // namespace csdsim::host
