#include "host_runtime/core/sampling/estimator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// The mean time per layer, and its estimated error.
struct Pace {
  double per_layer = 0;  ///< seconds
  double error = 0;      ///< seconds per layer
};

/// Mean over the layers after `first` up to `last`; `ended` is when each layer ended. If all layers took equally long,
/// the ends would lie on a line from the first to the last. The largest distance from that line shows how far the first
/// and the last end may be off, hence twice that distance as the error.
Pace pace_of(const std::vector<SimTime>& ended, std::size_t first, std::size_t last) {
  const double layers = static_cast<double>(last - first);
  const double per_layer = (ended[last] - ended[first]).seconds() / layers;
  double stray = 0;
  for (std::size_t l = first; l <= last; ++l)
    stray = std::max(stray, std::abs((ended[l] - ended[first]).seconds() - per_layer * static_cast<double>(l - first)));
  return {per_layer, 2 * stray / layers};
}

}  // namespace

GenerationEstimator::GenerationEstimator(const SamplingPlan& plan, const BatchLengths& workload)
    : plan_(plan),
      times_{.batch = workload.size(),
             .output_tokens = workload.output_tokens,
             .decode_steps = workload.decode_steps(),
             .missing_tokens = missing_tokens(workload)} {}

void GenerationEstimator::add_prefill(const ExecutionReport& report) {
  const StepRecord& prefill = report.steps.front();
  const std::size_t layers = prefill.layer_end.size();
  if (prefill.phase != Phase::prefill || layers != plan_.groups().front().layers)
    throw InternalError(
        fmt::format("prefill of {} layers recorded, {} planned", layers, plan_.groups().front().layers));
  times_.ttft_s = (prefill.end - report.start).seconds();
  if (layers == plan_.model_layers()) return;
  if (layers < 3) throw InternalError("a prefill of two layers shows no steady pace");
  // Buffers fill during the first layers; then the slowest stage sets the pace at which layers are computed.
  const Pace pace = pace_of(prefill.layer_computed, layers / 2, layers - 1);
  const auto further = static_cast<double>(plan_.model_layers() - layers);
  times_.ttft_s += pace.per_layer * further;
  prefill_error_s_ = pace.error * further;
}

void GenerationEstimator::add_step(const StepRecord& step, const PathBreakdown& path) {
  const std::size_t layers = step.layer_computed.size();
  double layered = 0, repeated = 1;
  for (const SimTime part : path.layered) layered += part.seconds();
  layers_error_.push_back(0);
  if (layers < plan_.model_layers() && layers >= 2 && layered > 0) {
    const bool judged = layers >= kJudgedLayers;
    Pace pace = judged ? pace_of(step.layer_computed, 1, layers - 2) : pace_of(step.layer_computed, 0, layers - 1);
    if (!judged) pace.error = std::numeric_limits<double>::infinity();
    repeated = pace.per_layer * static_cast<double>(layers) / layered;
    const auto further = static_cast<double>(plan_.model_layers() - layers);
    layers_error_.back() = pace.error * further / (path.total().seconds() + pace.per_layer * further);
  }
  LayeredCost sum;
  for (std::size_t p = 0; p < kPathParts; ++p) {
    const double in_layers = path.layered[p].seconds();
    const LayeredCost cost{in_layers * repeated, path.fixed[p].seconds() + in_layers * (1 - repeated)};
    part_cost_[p].push_back(cost);
    sum.layered += cost.layered;
    sum.fixed += cost.fixed;
  }
  for (std::size_t r = 0; r < kPathResources; ++r) {
    const double in_layers = path.layered_resources[r].seconds();
    resource_cost_[r].push_back({in_layers * repeated, path.fixed_resources[r].seconds() + in_layers * (1 - repeated)});
  }
  cost_.push_back(sum);
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
    add_step(report.steps[at], report.step_path(at));
  }
}

SamplingError GenerationEstimator::error() const {
  SamplingError error;
  error.prefill = prefill_error();
  if (cost_.empty()) return error;
  error.by_places = plan_.decode_error(cost_);
  error.steps = error.by_places.relative;
  for (const double layers : layers_error_) error.layers += layers / static_cast<double>(layers_error_.size());
  return error;
}

std::string to_string(const SamplingError& error) {
  const std::string prefill = fmt::format("estimated error: time to the first token {:.2f} %", 100 * error.prefill);
  const std::string heads = error.heads > 0 ? fmt::format(", {:.2f} from heads", 100 * error.heads) : std::string();
  if (std::isinf(error.layers))
    return fmt::format("{}, decode {:.2f} % from steps{}; fewer than {} layers show no error of their own", prefill,
                       100 * error.steps, heads, kJudgedLayers);
  return fmt::format("{}, decode {:.2f} % ({:.2f} from steps, {:.2f} from layers{})", prefill, 100 * error.decode(),
                     100 * error.steps, 100 * error.layers, heads);
}

GenerationEstimate GenerationEstimator::result() const {
  if (next_group_ != plan_.groups().size())
    throw InternalError(fmt::format("{} of {} groups were simulated", next_group_, plan_.groups().size()));
  GenerationEstimate estimate{.times = times_, .error = error()};
  if (cost_.empty()) return estimate;
  estimate.times.decode_s = plan_.decode_total(cost_);
  for (std::size_t p = 0; p < kPathParts; ++p) estimate.times.decode_path_s[p] = plan_.decode_total(part_cost_[p]);
  for (std::size_t r = 0; r < kPathResources; ++r)
    estimate.times.decode_resource_s[r] = plan_.decode_total(resource_cost_[r]);
  return estimate;
}

}  // namespace csdsim::host
