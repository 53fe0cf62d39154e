#include "host_runtime/core/planner/step_features.h"

#include <map>

#include "base/error.h"

namespace csdsim::host {

std::vector<StepFeatures> step_features(const BatchLengths& workload, const KvGrouping& grouping,
                                        const FlushSpill& spill) {
  workload.validate();
  if (grouping.page_tokens == 0) throw UserError("kv layout: a page holds no token");
  std::map<std::uint32_t, std::uint32_t> prompts;  // length -> sequences; a batch has few distinct lengths
  for (const std::uint32_t length : workload.prompt_tokens) ++prompts[length];

  const std::uint32_t n = grouping.page_tokens, window = grouping.window_tokens;
  const auto windowed = [&](std::uint64_t tokens) -> std::uint64_t {
    return grouping.windowed ? grouping.windowed(tokens) : tokens - tokens % window;
  };
  const double batch = static_cast<double>(workload.prompt_tokens.size());
  std::vector<StepFeatures> steps(workload.decode_steps());
  for (std::uint32_t s = 0; s < steps.size(); ++s) {
    StepFeatures& f = steps[s];
    for (const std::uint32_t first : grouping.breaks) f.segment += first <= s ? 1 : 0;
    for (const auto& [length, sequences] : prompts) {
      const double share = sequences / batch;
      for (std::uint32_t drive = 0; drive < grouping.division.token_parts(); ++drive) {
        const std::uint32_t context = grouping.division.tokens(DriveIndex{drive}, length, s + 1);
        const bool appends = grouping.division.appends(DriveIndex{drive}, s);
        f.flushed += share * (context - context % n);
        f.tail += share * (context % n);
        if (appends && context % n == 0) f.token_flushes += share;
        if (window != 0) {
          const std::uint64_t now = windowed(context);
          f.windowed += share * static_cast<double>(now);
          if (appends && now > windowed(context - 1)) f.window_flushes += share;
        }
      }
    }
    for (std::uint32_t back = 1; back <= s && back <= spill.token; ++back)
      f.recent_token_flushes += steps[s - back].token_flushes;
    for (std::uint32_t back = 1; back <= s && back <= spill.window; ++back)
      f.recent_window_flushes += steps[s - back].window_flushes;
  }
  return steps;
}

}  // namespace csdsim::host
