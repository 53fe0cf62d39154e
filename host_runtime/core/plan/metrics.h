// Times of a generation run, and the metrics that follow from them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "host_runtime/core/plan/executor.h"

namespace csdsim::host {

/// Times of a run, measured or estimated.
struct GenerationTimes {
  std::uint64_t batch = 0;
  std::uint32_t output_tokens = 0;                 ///< number of output tokens of the longest sequence
  std::uint32_t decode_steps = 0;                  ///< one per token after the first, unless drafts are verified
  std::uint64_t missing_tokens = 0;                ///< that shorter sequences leave out of batch x output_tokens
  double ttft_s = 0;                               ///< time until every sequence has its first token
  double decode_s = 0;                             ///< time from then until the last token
  std::array<double, kPathParts> decode_path_s{};  ///< decode_s by PathPart
  std::array<double, kPathResources> decode_resource_s{};  ///< decode_s by PathResource

  /// Tokens that were generated, over all sequences.
  std::uint64_t tokens() const { return batch * output_tokens - missing_tokens; }
};

/// Optional metrics are absent when nothing was decoded. The batch decodes in lockstep, so TPOT is the mean time of a
/// decode step, whether or not sequences have left the batch before it; with drafts (Speculation) a step yields several
/// tokens.
struct GenerationMetrics {
  double tokens_per_s = 0;  ///< generated tokens of all sequences, first tokens included, over TTFT + decode
  double ttft_s = 0;
  std::optional<double> decode_tokens_per_s;  ///< tokens after the first of each sequence, over decode
  std::optional<double> tpot_s;
  std::optional<double> decode_step_s;
  std::optional<double> kv_access_share;  ///< share of decode time in flash and KV transfers, without engine and host
};

/// GenerationTimes::missing_tokens of a workload.
std::uint64_t missing_tokens(const BatchLengths& workload);

/// Times of a complete run. Throws InternalError unless the report has the prefill and every decode step; with drafts,
/// how many steps there are depends on what is accepted.
GenerationTimes generation_times(const ExecutionReport& report, const BatchLengths& workload);

GenerationMetrics generation_metrics(const GenerationTimes& times);

}  // namespace csdsim::host
