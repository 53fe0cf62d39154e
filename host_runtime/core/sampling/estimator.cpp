#include "host_runtime/core/sampling/estimator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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

void GenerationEstimator::add_prefill(const ExecutionReport& report, GroupTimes& group) const {
  const StepRecord& prefill = report.steps.front();
  const std::size_t layers = prefill.layer_end.size();
  if (prefill.phase != Phase::prefill || layers != plan_.groups().front().layers)
    throw InternalError(
        fmt::format("prefill of {} layers recorded, {} planned", layers, plan_.groups().front().layers));
  group.ttft_s = (prefill.end - report.start).seconds();
  if (layers == plan_.model_layers()) return;
  if (layers < 3) throw InternalError("a prefill of two layers shows no steady pace");
  // Buffers fill during the first layers; then the slowest stage sets the pace at which layers are computed.
  const Pace pace = pace_of(prefill.layer_computed, layers / 2, layers - 1);
  const auto further = static_cast<double>(plan_.model_layers() - layers);
  group.ttft_s += pace.per_layer * further;
  group.prefill_error_s = pace.error * further;
}

StepTimes GenerationEstimator::times_of(const StepRecord& step, const PathBreakdown& path, double work_s) const {
  const std::size_t layers = step.layer_computed.size();
  StepTimes times;
  double layered = 0, repeated = 1;
  for (const SimTime part : path.layered) layered += part.seconds();
  if (layers < plan_.model_layers() && layers >= 2 && layered > 0) {
    const bool judged = layers >= kJudgedLayers;
    Pace pace = judged ? pace_of(step.layer_computed, 1, layers - 2) : pace_of(step.layer_computed, 0, layers - 1);
    if (!judged) pace.error = std::numeric_limits<double>::infinity();
    pace.per_layer = std::max(pace.per_layer, work_s / static_cast<double>(layers));
    repeated = pace.per_layer * static_cast<double>(layers) / layered;
    const auto further = static_cast<double>(plan_.model_layers() - layers);
    times.layers_error = pace.error * further / (path.total().seconds() + pace.per_layer * further);
  }
  for (std::size_t p = 0; p < kPathParts; ++p) {
    const double in_layers = path.layered[p].seconds();
    times.parts[p] = {in_layers * repeated, path.fixed[p].seconds() + in_layers * (1 - repeated)};
    times.cost.layered += times.parts[p].layered;
    times.cost.fixed += times.parts[p].fixed;
  }
  for (std::size_t r = 0; r < kPathResources; ++r) {
    const double in_layers = path.layered_resources[r].seconds();
    times.resources[r] = {in_layers * repeated, path.fixed_resources[r].seconds() + in_layers * (1 - repeated)};
  }
  return times;
}

void GenerationEstimator::add(const ExecutionReport& report, std::span<const double> work_s) {
  const SampledGroup& group = plan_.groups().at(groups_.size());
  GroupTimes times;
  if (group.after_prefill) add_prefill(report, times);
  for (std::uint32_t i = 0; i < group.measured; ++i) {
    const std::size_t at = (group.after_prefill ? 1 : 0) + group.warmup + i;
    if (at == 0 || at >= report.steps.size() || !report.steps[at].ended ||
        report.steps[at].step != group.first_measured() + i)
      throw InternalError(fmt::format("decode step {} was to be measured after another, but is not in the report",
                                      group.first_measured() + i));
    times.steps.push_back(times_of(report.steps[at], report.step_path(at), work_s.empty() ? 0 : work_s[i]));
  }
  groups_.push_back(std::move(times));
}

void GenerationEstimator::add(GroupTimes group) {
  if (group.steps.size() != plan_.groups().at(groups_.size()).measured)
    throw InternalError(
        fmt::format("{} steps were measured, not {}", group.steps.size(), plan_.groups()[groups_.size()].measured));
  groups_.push_back(std::move(group));
}

template <class Read>
std::vector<LayeredCost> GenerationEstimator::costs(Read read) const {
  std::vector<LayeredCost> costs;
  for (const GroupTimes& group : groups_)
    for (const StepTimes& step : group.steps) costs.push_back(read(step));
  return costs;
}

SamplingError GenerationEstimator::error() const {
  SamplingError error;
  error.prefill = prefill_error();
  if (plan_.measured_steps().empty()) return error;
  error.by_places = plan_.decode_error(costs([](const StepTimes& step) { return step.cost; }));
  error.steps = error.by_places.relative;
  for (const GroupTimes& group : groups_)
    for (const StepTimes& step : group.steps)
      error.layers += step.layers_error / static_cast<double>(plan_.measured_steps().size());
  return error;
}

std::string to_string(const SamplingError& error) {
  const std::string prefill =
      fmt::format("estimated error (95 % confidence): time to the first token {:.2f} %", 100 * error.prefill);
  const std::string heads = error.heads > 0 ? fmt::format(", {:.2f} from heads", 100 * error.heads) : std::string();
  if (std::isinf(error.layers))
    return fmt::format("{}, decode {:.2f} % from steps{}; fewer than {} layers show no error of their own", prefill,
                       100 * error.steps, heads, kJudgedLayers);
  return fmt::format("{}, decode {:.2f} % ({:.2f} from steps, {:.2f} from layers{})", prefill, 100 * error.decode(),
                     100 * error.steps, 100 * error.layers, heads);
}

GenerationEstimate GenerationEstimator::result() const {
  if (groups_.size() != plan_.groups().size())
    throw InternalError(fmt::format("{} of {} groups were simulated", groups_.size(), plan_.groups().size()));
  GenerationEstimate estimate{.times = times_, .error = error()};
  estimate.times.ttft_s = groups_.front().ttft_s;
  if (plan_.measured_steps().empty()) return estimate;
  const auto total = [&](auto read) { return plan_.decode_total(costs(read)); };
  estimate.times.decode_s = total([](const StepTimes& step) { return step.cost; });
  for (std::size_t p = 0; p < kPathParts; ++p)
    estimate.times.decode_path_s[p] = total([p](const StepTimes& step) { return step.parts[p]; });
  for (std::size_t r = 0; r < kPathResources; ++r)
    estimate.times.decode_resource_s[r] = total([r](const StepTimes& step) { return step.resources[r]; });
  return estimate;
}

}  // namespace csdsim::host
