#include "experiment/generation/kv_counts.h"

#include <fmt/format.h>

#include <utility>

#include "experiment/generation/generation_workload.h"
#include "ftl/core/block_manager.h"

namespace csdsim::experiment {

namespace {

using Value = std::optional<double>;

GenerationMetric count_metric(MetricInfo info, bool (*has)(const MeasuredGeneration&), auto count) {
  return {
      std::move(info),
      [has, count](const MeasuredGeneration& run) { return has(run) ? Value(double(count(run.out))) : std::nullopt; },
      true};
}

bool may_fail(const MeasuredGeneration& run) {
  return run.in_drives && run.scenario.platform.device.flash.reliability.has_value();
}

bool refreshes(const MeasuredGeneration& run) {
  return run.in_drives && run.scenario.platform.device.ftl.refresh_age.has_value();
}

bool levels(const MeasuredGeneration& run) {
  return run.in_drives && run.scenario.platform.device.ftl.wear_levelling.spread > 0;
}

bool recovers(const MeasuredGeneration& run) { return generation_of(run.scenario).lost_kv == host::LostKv::recompute; }

}  // namespace

GenerationMetric kv_count(std::uint64_t ftl::KvFtlStats::*count, std::string_view when,
                          bool (*has)(const MeasuredGeneration&), std::string name) {
  const CounterInfo& counter = ftl::kv_counter(count);
  if (name.empty()) name = fmt::format("kv_{}", counter.name);
  return count_metric(metric_of(counter, std::move(name), when), has,
                      [count](const GenerationOutcome& out) { return out.kv.*count; });
}

std::vector<GenerationMetric> error_metrics() {
  using Kv = ftl::KvFtlStats;
  constexpr const CounterInfo& grown_bad = ftl::BlockManager::kGrownBadBlocks;
  return {
      kv_count(&Kv::read_retries, "With flash.reliability, K and V in drives", may_fail),
      kv_count(&Kv::uncorrectable_reads, kSameRuns, may_fail),
      kv_count(&Kv::rows_dropped, kSameRuns, may_fail),
      kv_count(&Kv::program_failures, kSameRuns, may_fail),
      kv_count(&Kv::erase_failures, kSameRuns, may_fail),
      count_metric(metric_of(grown_bad, std::string(grown_bad.name), kSameRuns), may_fail,
                   [](const GenerationOutcome& out) { return out.grown_bad_blocks; }),
      kv_count(&Kv::refreshed_blocks, "With ftl.refresh_age, K and V in drives", refreshes, "kv_blocks_refreshed"),
      count_metric({"blocks_levelled", std::string(ftl::kv_counter(&Kv::levelled_blocks).unit),
                    "With ftl.wear_levelling.spread, K and V in drives: levelled_blocks of the KV namespaces and "
                    "wear_erases of the block namespaces."},
                   levels, [](const GenerationOutcome& out) { return out.kv.levelled_blocks + out.wear_erases; }),
      kv_count(&Kv::pages_rewritten, "With workload.lost_kv: recompute", recovers),
  };
}

}  // namespace csdsim::experiment
