// The figures of a generation run, under the names of the result file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/core/planner/executor.h"

namespace csdsim::host {

/// What a run took, measured or estimated.
struct GenerationTimes {
  std::uint64_t batch = 0;
  std::uint32_t output_tokens = 0;
  double ttft_s = 0;                               ///< until every sequence has its first token
  double decode_s = 0;                             ///< from then until the last token
  std::array<double, kPathParts> decode_path_s{};  ///< decode_s by PathPart
};

/// Absent where nothing was decoded. Steps run in lockstep over the batch, so TPOT is the mean decode step.
struct GenerationMetrics {
  double tokens_per_s = 0;  ///< generated tokens of all sequences, first ones included, over TTFT + decode
  double ttft_s = 0;
  std::optional<double> decode_tokens_per_s;  ///< tokens after the first of each sequence, over decode
  std::optional<double> tpot_s;
  std::optional<double> decode_step_s;
  std::optional<double> kv_access_share;  ///< share of decode in flash and in KV on links; engine and host excluded

  /// {name, value} of what is present, in the order above.
  std::vector<std::pair<std::string, double>> flat() const;
};

/// Times of a complete run: the prefill and every decode step. InternalError otherwise.
GenerationTimes generation_times(const ExecutionReport& report, const BatchLengths& workload);

GenerationMetrics generation_metrics(const GenerationTimes& times);

}  // namespace csdsim::host
