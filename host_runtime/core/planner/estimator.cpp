#include "host_runtime/core/planner/estimator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

GenerationEstimator::GenerationEstimator(const SamplingPlan& plan, const BatchLengths& workload)
    : plan_(plan), times_{.batch = workload.prompt_tokens.size(), .output_tokens = workload.output_tokens} {}

void GenerationEstimator::add_prefill(const ExecutionReport& report) {
  const StepRecord& prefill = report.steps.front();
  const std::size_t layers = prefill.layer_end.size();
  if (prefill.phase != Phase::prefill || layers != plan_.groups().front().layers)
    throw InternalError(
        fmt::format("prefill of {} layers recorded, {} planned", layers, plan_.groups().front().layers));
  times_.ttft_s = (prefill.end - report.start).seconds();
  if (layers == plan_.model_layers()) return;
  // The slowest stage sets the pace. Once buffers are full, layers are computed at its pace; before, the first two
  // layers show it by when K and V are in the drives, which the first decode step does not disturb yet.
  const SimTime computed = prefill.layer_computed[layers - 1] - prefill.layer_computed[layers - 2];
  const SimTime kept = prefill.layer_end[1] - prefill.layer_end[0];
  const double per_layer = std::max(computed, kept).seconds();
  times_.ttft_s += per_layer * static_cast<double>(plan_.model_layers() - layers);
}

/// Share of the time inside the simulated layers that repeats with every further layer. What happens at the two ends of
/// a step only (the pipeline of mini-batches fills and drains; flushes of the last layer drain beside the output
/// projection) is paid once, however many layers there are. From layer to layer the time shows without it.
double GenerationEstimator::repeated_share(const StepRecord& step, const PathBreakdown& path) {
  const std::size_t layers = step.layer_computed.size();
  SimTime layered;
  for (const SimTime part : path.layered) layered += part;
  if (layers < 2 || layered.ps <= 0) return 1;
  const SimTime between = step.layer_computed.back() - step.layer_computed.front();
  return between.seconds() / static_cast<double>(layers - 1) * static_cast<double>(layers) / layered.seconds();
}

void GenerationEstimator::add(const ExecutionReport& report) {
  const SampledGroup& group = plan_.groups().at(next_group_++);
  if (group.after_prefill) add_prefill(report);
  for (std::uint32_t i = 0; i < group.measured; ++i) {
    const std::size_t at = (group.after_prefill ? 1 : 0) + group.warmup + i;
    if (at == 0 || at >= report.steps.size() || !report.steps[at].ended ||
        report.steps[at].step != group.first_measured() + i)
      throw InternalError(fmt::format("decode step {} was to be measured after another, but is not in the report",
                                      group.first_measured() + i));
    const PathBreakdown path = report.step_path(at);
    const double repeated = repeated_share(report.steps[at], path);
    LayeredCost sum;
    for (std::size_t p = 0; p < kPathParts; ++p) {
      const double layered = path.layered[p].seconds();
      const LayeredCost cost{layered * repeated, path.fixed[p].seconds() + layered * (1 - repeated)};
      part_cost_[p].push_back(cost);
      sum.layered += cost.layered;
      sum.fixed += cost.fixed;
    }
    cost_.push_back(sum);
  }
}

GenerationEstimate GenerationEstimator::result() const {
  if (next_group_ != plan_.groups().size())
    throw InternalError(fmt::format("{} of {} groups were simulated", next_group_, plan_.groups().size()));
  GenerationEstimate estimate{.times = times_, .relative_error = 0, .statement = plan_.statement()};
  if (cost_.empty()) return estimate;
  estimate.times.decode_s = plan_.decode_total(cost_);
  for (std::size_t p = 0; p < kPathParts; ++p) estimate.times.decode_path_s[p] = plan_.decode_total(part_cost_[p]);
  estimate.relative_error = plan_.decode_error(cost_);
  estimate.error_estimated = plan_.exact() || plan_.estimates_error();
  if (!estimate.error_estimated)
    estimate.statement += "; the error of extrapolating layers is not estimated";
  else if (!plan_.exact())
    estimate.statement += fmt::format(
        "; estimated error of sampling steps {:.2f} % of the decode time (that of extrapolating layers and prefill is "
        "not estimated)",
        100 * estimate.relative_error);
  return estimate;
}

}  // namespace csdsim::host
