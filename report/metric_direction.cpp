#include "report/metric_direction.h"

#include <algorithm>

namespace csdsim::report {
namespace {

bool any_end(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool holds_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

}  // namespace

Better better_of(std::string_view metric) {
  // These metrics describe the simulation itself, not what it simulates.
  if (metric.starts_with("wall_") || metric.find("_wall_") != std::string_view::npos ||
      metric.ends_with("_error_estimate"))
    return Better::neither;
  if (metric == "tokens_per_step" || any_end(metric, {"_per_s", "iops", "goodput", "hit_rate", "attainment",
                                                      "lifetime_years", "acceptance", "hot_share", "recall"}))
    return Better::more;
  if (holds_any(metric, {"latency", "ttft", "tpot", "itl_", "queueing", "energy", "amplification", "perplexity",
                         "preemptions", "_dropped", "_lost", "uncorrectable", "failures", "bad_blocks", "read_retries",
                         "erases", "wear_per_byte", "recovery_", "dump_time"}))
    return Better::less;
  if (any_end(metric, {"_s_per_step", "step_s", "_load_mean_s", "_store_mean_s", "kv_recompute_s", "kv_access_share",
                       "writes_per_day", "programmed_per_byte_written", "wasted_scores_share", "gpu_waits_share"}))
    return Better::less;
  return Better::neither;
}

}  // namespace csdsim::report
