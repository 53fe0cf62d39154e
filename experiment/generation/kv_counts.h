// Metrics of what the flash that holds K and V has counted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiment/generation/request_result.h"
#include "ftl/kv/kv_ftl_stats.h"

namespace csdsim::experiment {

inline constexpr std::string_view kSameRuns = "The same runs";

/// A counter of all KV namespaces, of the runs that `when` names and for which `has` is true. `name`: kv_ and that of
/// the counter if it is empty.
GenerationMetric kv_count(std::uint64_t ftl::KvFtlStats::*count, std::string_view when,
                          bool (*has)(const MeasuredGeneration&), std::string name = {});

/// Errors of the flash that holds K and V, and what was done about them.
std::vector<GenerationMetric> error_metrics();

}  // namespace csdsim::experiment
