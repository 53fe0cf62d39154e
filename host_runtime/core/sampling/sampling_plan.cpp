#include "host_runtime/core/sampling/sampling_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/sampling/group_placement.h"

namespace csdsim::host {

namespace {

// A plan that would simulate a larger share of the layers of all steps simulates all of them.
constexpr double kWorthwhileShare = 1.0 / 3;
// Share of the runs in which a stated error may be exceeded.
constexpr double kExceeded = 0.05;

/// The steps before and after a measured one, with what copies that run ahead need.
SamplingSettings with_steps_around(SamplingSettings settings, std::uint32_t model_layers) {
  const std::uint32_t layers = std::max(1U, std::min(settings.layers, model_layers));
  const auto steps = [&](std::uint32_t of_layers) { return (of_layers + layers - 1) / layers; };
  settings.cooldown = std::max(settings.cooldown, steps(settings.ahead));
  if (settings.warmup > 0) settings.warmup = std::max(settings.warmup, steps(2 * settings.ahead));
  if (settings.cooldown_layers > 0) settings.cooldown_layers = std::max(settings.cooldown_layers, settings.ahead);
  if (settings.warmup_layers > 0) settings.warmup_layers = std::max(settings.warmup_layers, 2 * settings.ahead);
  return settings;
}

}  // namespace

void SampledGroup::set_layers(std::uint32_t simulated, const SamplingSettings& settings) {
  const auto at_most = [&](std::uint32_t most) { return most == 0 ? simulated : std::min(most, simulated); };
  layers = simulated;
  warmup_layers = at_most(settings.warmup_layers);
  cooldown_layers = at_most(settings.cooldown_layers);
}

SamplingPlan::SamplingPlan(const BatchLengths& workload, std::uint32_t model_layers, const KvGrouping& grouping,
                           const SamplingSettings& asked)
    : features_(step_features(workload, grouping, asked.spill)), model_layers_(model_layers) {
  const SamplingSettings settings = with_steps_around(asked, model_layers);
  if (model_layers == 0) throw UserError("sampling: the model has no layers");
  if (!settings.off && settings.layers < std::min(2U, model_layers))
    throw UserError(fmt::format("sampling: layers is {}, must be at least 2 to show the time from layer to layer",
                                settings.layers));
  if (!settings.off && settings.steps < 2)
    throw UserError(fmt::format("sampling: steps is {}, must be at least 2 to follow the context", settings.steps));
  if (!settings.off && settings.warmup == 0)
    throw UserError("sampling: warmup is 0, must be at least 1: a step is timed from the end of the one before");
  const std::uint32_t layers = std::min(settings.layers, model_layers);
  const std::uint32_t first_layers =
      settings.off ? model_layers : std::min(std::max(settings.layers, settings.prefill_layers), model_layers);

  std::vector<SampledGroup> placed;
  if (!settings.off) placed = place_groups(features_, settings);
  for (SampledGroup& g : placed) g.set_layers(layers, settings);
  const std::uint64_t whole = std::uint64_t{layers} * features_.size();
  std::uint64_t simulated = layers;  // the layers of the first step, so far
  for (const SampledGroup& g : placed) simulated += g.layer_steps();
  if (placed.size() < 2 || static_cast<double>(simulated) > kWorthwhileShare * static_cast<double>(whole)) {
    measure_everything(first_layers);
    return;
  }
  const auto cooldown = std::min<std::uint32_t>(settings.cooldown, workload.decode_steps() - 1);
  groups_.push_back({.measured = 1, .cooldown = cooldown, .after_prefill = true});
  groups_.back().set_layers(first_layers, settings);
  groups_.insert(groups_.end(), placed.begin(), placed.end());
  for (const SampledGroup& g : groups_)
    for (std::uint32_t i = 0; i < g.measured; ++i) {
      measured_.push_back(g.first_measured() + i);
      cost_layers_.push_back(g.layers);
    }

  add_parts(std::span(groups_).subspan(1));
}

void SamplingPlan::measure_everything(std::uint32_t layers) {
  all_steps_ = true;
  const auto steps = static_cast<std::uint32_t>(features_.size());
  groups_ = {{.measured = steps, .layers = layers, .after_prefill = true}};
  cost_layers_.assign(steps, layers);
  for (std::uint32_t s = 0; s < steps; ++s) measured_.push_back(s);
  weights_.assign(steps, {.scaled = 1});
  if (steps < 2) return;
  // The once-per-run cost of the first step is its difference to the next step of the same stratum.
  std::uint32_t like = 1;
  while (like + 1 < steps && features_[like].stratum() != features_[0].stratum()) ++like;
  if (features_[like].stratum() != features_[0].stratum()) like = 1;
  weights_[0] = {.scaled = 0, .once = 1};
  weights_[like] = {.scaled = 2, .once = -1};
}

void SamplingPlan::add_parts(std::span<const SampledGroup> used) {
  weights_.assign(measured_.size(), {});
  weights_[0].once = 1;
  for (std::size_t first = 0; first < features_.size();) {
    std::size_t end = first;
    while (end < features_.size() && features_[end].segment == features_[first].segment) ++end;
    std::vector<SampledGroup> own;
    for (const SampledGroup& g : used)
      if (g.first_measured() >= first && g.first_measured() < end) own.push_back(g);
    // A segment without a measured step is estimated from all others.
    const Steps segment{first, end};
    parts_.push_back(own.empty() ? part_of(used, segment, {0, features_.size()}) : part_of(own, segment, segment));
    first = end;
  }
  for (const Part& part : parts_)
    for (std::size_t i = 0; i < part.index.size(); ++i) weights_[part.index[i]].scaled += part.weights[i];
  // The first step is measured, at its own number of layers.
  const Part& first = parts_.front();
  const StepPredictor predictor = predictor_of(first);
  std::vector<double> unit(first.index.size());
  for (std::size_t i = 0; i < unit.size(); ++i) {
    unit[i] = 1;
    weights_[first.index[i]].once = -predictor.predict(first.groups, unit)[0];
    unit[i] = 0;
  }
}

StepPredictor SamplingPlan::predictor_of(const Part& part) const {
  return StepPredictor(std::span(features_).subspan(part.basis.first, part.basis.end - part.basis.first));
}

SamplingPlan::Part SamplingPlan::part_of(std::span<const SampledGroup> used, Steps wanted, Steps basis) const {
  Part part;
  part.basis = basis;
  std::array<std::uint32_t, kStrata> in_run{}, measured{};
  for (std::size_t s = std::max<std::size_t>(1, basis.first); s < basis.end; ++s)
    ++in_run[static_cast<std::size_t>(features_[s].stratum())];
  for (const SampledGroup& g : used) {
    part.groups.push_back({g.first_measured() - static_cast<std::uint32_t>(basis.first), g.measured});
    for (std::uint32_t s = g.first_measured(); s < g.first_measured() + g.measured; ++s) {
      const auto at = std::lower_bound(measured_.begin(), measured_.end(), s);
      part.index.push_back(static_cast<std::size_t>(at - measured_.begin()));
      ++measured[static_cast<std::size_t>(features_[s].stratum())];
    }
  }
  for (std::size_t k = 0; k < kStrata; ++k)
    if (in_run[k] > 0) part.left[k] = 1 - double(measured[k]) / in_run[k];
  const StepPredictor predictor = predictor_of(part);
  std::vector<double> unit(part.index.size());
  for (std::size_t i = 0; i < unit.size(); ++i) {
    unit[i] = 1;
    const std::vector<double> predicted = predictor.predict(part.groups, unit);
    unit[i] = 0;
    part.weights.push_back(std::accumulate(predicted.begin() + static_cast<std::ptrdiff_t>(wanted.first - basis.first),
                                           predicted.begin() + static_cast<std::ptrdiff_t>(wanted.end - basis.first),
                                           0.0));
  }
  return part;
}

double SamplingPlan::of_all_layers(std::size_t measured, const LayeredCost& cost) const {
  return cost.fixed + cost.layered / cost_layers_[measured] * model_layers_;
}

double SamplingPlan::decode_total(std::span<const LayeredCost> cost) const {
  if (cost.size() != weights_.size())
    throw InternalError(fmt::format("{} costs for {} measured steps", cost.size(), weights_.size()));
  double total = 0;
  for (std::size_t i = 0; i < cost.size(); ++i)
    total += weights_[i].scaled * of_all_layers(i, cost[i]) +
             weights_[i].once * (cost[i].fixed + cost[i].layered / cost_layers_[i] * groups_.front().layers);
  return total;
}

double SamplingPlan::decode_deviation(std::span<const double> variances) const {
  double sum = 0;
  for (std::size_t i = 0; i < variances.size(); ++i) {
    const double factor = weights_[i].scaled * model_layers_ + weights_[i].once * groups_.front().layers;
    sum += std::pow(factor / cost_layers_[i], 2) * variances[i];
  }
  return std::sqrt(sum);
}

StepsError SamplingPlan::decode_error(std::span<const LayeredCost> cost) const {
  StepsError error;
  const double total = decode_total(cost);
  if (total == 0) return error;
  double by_freedom = 0;
  for (const Part& part : parts_) {
    std::vector<double> of_part;
    for (const std::size_t i : part.index) of_part.push_back(of_all_layers(i, cost[i]));
    for (const StratumResiduals& residuals : predictor_of(part).residuals(part.groups, of_part)) {
      double squares = 0;  // sum of squares of the weights of the observations
      for (const std::vector<std::size_t>& steps : residuals.observations) {
        double weight = 0;
        for (const std::size_t step : steps) weight += part.weights[step];
        squares += weight * weight;
      }
      const double left = part.left[static_cast<std::size_t>(residuals.stratum)];
      const double own = residuals.variance * squares * left / (total * total);
      error.of(residuals.stratum) += own;
      by_freedom += own * own / residuals.freedom;
    }
  }
  const double variance = error.variance();
  if (variance == 0) return error;
  const boost::math::students_t t(variance * variance / by_freedom);
  error.relative = boost::math::quantile(t, 1 - kExceeded / 2) * std::sqrt(variance);
  return error;
}

SampledPlaces SamplingPlan::places() const {
  SampledPlaces places;
  if (all_steps_) return places;
  for (const SampledGroup& g : std::span(groups_).subspan(1)) {
    if (g.stratum == Stratum::plain) ++places.plain;
    if (g.stratum == Stratum::token_flush) ++places.token_flush;
    if (g.stratum == Stratum::window_flush) ++places.window_flush;
  }
  return places;
}

double SamplingPlan::share() const {
  double simulated = 0;
  for (const SampledGroup& g : groups_) simulated += g.layer_steps();
  return simulated / (double(features_.size() + 1) * model_layers_);
}

std::string SamplingPlan::statement() const {
  const std::uint32_t first_layers = groups_.front().layers;
  if (features_.empty()) return fmt::format("prefill: {} of {} layers simulated", first_layers, model_layers_);
  if (all_steps_)
    return fmt::format("prefill and all {} decode steps simulated, with {} of {} layers", features_.size(),
                       first_layers, model_layers_);
  std::uint64_t simulated = 0;
  for (const SampledGroup& g : groups_) simulated += g.steps();
  const SampledPlaces count = places();
  return fmt::format(
      "prefill simulated with {} of {} layers; {} of {} decode steps with {} ({} measured: the first, and {} plain, "
      "{} token-flush, {} window-flush places)",
      first_layers, model_layers_, simulated, features_.size(), groups_.back().layers, measured_.size(), count.plain,
      count.token_flush, count.window_flush);
}

}  // namespace csdsim::host
