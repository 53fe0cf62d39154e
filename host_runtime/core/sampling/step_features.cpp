#include "host_runtime/core/sampling/step_features.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// Sequences whose tokens are divided by shares. All parts grow when a group is written back: pages of the drives,
/// which the step attends to, and tokens elsewhere, which count like windows.
void add_shares(const KvGrouping& grouping, std::uint32_t prompt, std::uint32_t step, double share, StepFeatures& f) {
  const KvDivision& division = grouping.division;
  const std::uint32_t n = grouping.page_tokens;
  std::uint32_t in_drives = 0;
  bool fills_page = false;
  for (std::uint32_t drive = 0; drive < division.drives(); ++drive) {
    const std::uint32_t context = division.tokens(DriveIndex{drive}, prompt, step);
    fills_page = fills_page || division.tokens(DriveIndex{drive}, prompt, step + 1) / n > context / n;
    f.flushed += share * (context - context % n);
    f.tail += share * (context % n);
    in_drives += context;
  }
  f.tail += share * (division.newest(step) + 1);
  f.windowed += share * (prompt + step - division.newest(step) - in_drives);
  if (division.writes_back(step)) (fills_page ? f.token_flushes : f.window_flushes) += share;
}

}  // namespace

std::vector<StepFeatures> step_features(const BatchLengths& workload, const KvGrouping& grouping,
                                        const FlushSpill& spill) {
  workload.validate();
  if (grouping.page_tokens == 0) throw UserError("kv layout: a page holds no token");
  std::map<std::uint32_t, std::uint32_t> prompts;  // length -> sequences; a batch has few distinct lengths
  for (const Request& request : workload.requests) ++prompts[request.prompt];

  const std::uint32_t n = grouping.page_tokens, window = grouping.window_tokens;
  const auto windowed = [&](std::uint64_t tokens) -> std::uint64_t {
    return grouping.windowed ? grouping.windowed(tokens) : tokens - tokens % window;
  };
  const double batch = static_cast<double>(workload.size());
  std::vector<StepFeatures> steps(workload.decode_steps());
  for (std::uint32_t s = 0; s < steps.size(); ++s) {
    StepFeatures& f = steps[s];
    for (const std::uint32_t first : grouping.breaks) f.segment += first <= s ? 1 : 0;
    for (const auto& [length, sequences] : prompts) {
      const double share = sequences / batch;
      if (grouping.division.by_shares()) {
        add_shares(grouping, length, s, share, f);
        continue;
      }
      for (std::uint32_t drive = 0; drive < grouping.division.token_parts(); ++drive) {
        const std::uint32_t context = grouping.division.tokens(DriveIndex{drive}, length, s + 1);
        const bool appends = grouping.division.appends(DriveIndex{drive}, s);
        f.flushed += share * (context - context % n);
        f.tail += share * (context % n);
        if (appends && context % n == 0) f.token_flushes += share;
        if (grouping.newest) {
          const std::uint32_t newest = std::min(grouping.newest(length + s + 1), context), tail = context % n;
          f.newest_groups += share * (newest > tail ? (newest - tail + n - 1) / n : 0);
        }
        if (grouping.engine_share) f.engine_share += share * grouping.engine_share(context, length + s + 1);
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
