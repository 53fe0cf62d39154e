#include "host_runtime/core/sampling/sampling_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "host_runtime/core/sampling/group_placement.h"

namespace csdsim::host {

namespace {

// A plan that would simulate a larger share of the steps simulates all of them.
constexpr double kWorthwhileShare = 1.0 / 3;

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
  if (!settings.off) placed = place_groups(features_, grouping, settings);
  std::uint64_t simulated = 1 + settings.cooldown;
  for (const SampledGroup& g : placed) simulated += g.steps();
  if (placed.size() < 2 || static_cast<double>(simulated) > kWorthwhileShare * static_cast<double>(features_.size())) {
    measure_everything(first_layers);
    return;
  }
  const auto cooldown = std::min<std::uint32_t>(settings.cooldown, workload.decode_steps() - 1);
  groups_.push_back({.measured = 1, .cooldown = cooldown, .after_prefill = true});
  groups_.back().set_layers(first_layers, settings);
  for (SampledGroup& g : placed) {
    g.set_layers(layers, settings);
    groups_.push_back(g);
  }
  for (const SampledGroup& g : groups_)
    for (std::uint32_t i = 0; i < g.measured; ++i) {
      measured_.push_back(g.first_measured() + i);
      cost_layers_.push_back(g.layers);
    }

  const std::span<const SampledGroup> used = std::span(groups_).subspan(1);
  weights_ = predictor_weights(used);
  leave_out(used);
}

/// A stratum of which every step is measured is no sample and adds no error: none of its groups is left out.
void SamplingPlan::leave_out(std::span<const SampledGroup> used) {
  std::array<std::uint32_t, kStrata> in_run{}, measured{};
  for (std::uint32_t s = 1; s < features_.size(); ++s) ++in_run[static_cast<std::size_t>(features_[s].stratum())];
  for (const SampledGroup& g : used)
    for (std::uint32_t s = g.first_measured(); s < g.first_measured() + g.measured; ++s)
      ++measured[static_cast<std::size_t>(features_[s].stratum())];
  for (std::size_t out = 0; out < used.size(); ++out) {
    const auto stratum = static_cast<std::size_t>(used[out].stratum);
    if (measured[stratum] == in_run[stratum]) continue;
    std::vector<SampledGroup> kept(used.begin(), used.end());
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(out));
    left_out_[stratum].push_back(predictor_weights(kept));
  }
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

SamplingPlan::Weights SamplingPlan::predictor_weights(std::span<const SampledGroup> used) const {
  Weights weights(measured_.size());
  weights[0].once = 1;
  for (std::size_t first = 0; first < features_.size();) {
    std::size_t end = first;
    while (end < features_.size() && features_[end].segment == features_[first].segment) ++end;
    std::vector<SampledGroup> own;
    for (const SampledGroup& g : used)
      if (g.first_measured() >= first && g.first_measured() < end) own.push_back(g);
    // A segment without a measured step is estimated from all others.
    if (own.empty())
      add_weights(used, {first, end}, {0, features_.size()}, weights);
    else
      add_weights(own, {first, end}, {first, end}, weights);
    first = end;
  }
  return weights;
}

void SamplingPlan::add_weights(std::span<const SampledGroup> used, Steps wanted, Steps basis, Weights& weights) const {
  std::vector<MeasuredGroup> groups;
  std::vector<std::size_t> index;  // position in measured_ of each cost that the predictor sees
  for (const SampledGroup& g : used) {
    groups.push_back({g.first_measured() - static_cast<std::uint32_t>(basis.first), g.measured});
    for (std::uint32_t i = 0; i < g.measured; ++i) {
      const auto at = std::lower_bound(measured_.begin(), measured_.end(), g.first_measured() + i);
      index.push_back(static_cast<std::size_t>(at - measured_.begin()));
    }
  }
  const StepPredictor predictor(std::span<const StepFeatures>(features_).subspan(basis.first, basis.end - basis.first));
  std::vector<double> unit(index.size());
  for (std::size_t i = 0; i < index.size(); ++i) {
    unit[i] = 1;
    const std::vector<double> predicted = predictor.predict(groups, unit);
    unit[i] = 0;
    for (std::size_t s = wanted.first; s < wanted.end; ++s) weights[index[i]].scaled += predicted[s - basis.first];
    if (wanted.first == 0) weights[index[i]].once = -predicted[0];
  }
}

double SamplingPlan::apply(const Weights& weights, std::span<const LayeredCost> cost) const {
  if (cost.size() != weights.size())
    throw InternalError(fmt::format("{} costs for {} measured steps", cost.size(), weights.size()));
  double total = 0;
  for (std::size_t i = 0; i < cost.size(); ++i) {
    const double per_layer = cost[i].layered / cost_layers_[i];
    total += weights[i].scaled * (cost[i].fixed + per_layer * model_layers_) +
             weights[i].once * (cost[i].fixed + per_layer * groups_.front().layers);
  }
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

double SamplingPlan::decode_error(std::span<const LayeredCost> cost) const {
  const double total = decode_total(cost);
  if (total == 0) return 0;
  double variance = 0;
  for (const std::vector<Weights>& stratum : left_out_) {
    if (stratum.empty()) continue;
    std::vector<double> totals;
    double mean = 0;
    for (const Weights& weights : stratum) totals.push_back(apply(weights, cost));
    for (const double t : totals) mean += t / static_cast<double>(totals.size());
    // The only place of a stratum is compared with the total over all places.
    if (totals.size() == 1) mean = total;
    double squares = 0;
    for (const double t : totals) squares += std::pow(t - mean, 2);
    const auto places = static_cast<double>(totals.size());
    variance += places > 1 ? (places - 1) / places * squares : squares;
  }
  return 2 * std::sqrt(variance) / std::abs(total);
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
  std::array<std::uint32_t, kStrata> places{};
  for (const SampledGroup& g : groups_) simulated += g.steps();
  for (const SampledGroup& g : std::span(groups_).subspan(1)) ++places[static_cast<std::size_t>(g.stratum)];
  const auto count = [&](Stratum s) { return places[static_cast<std::size_t>(s)]; };
  return fmt::format(
      "prefill simulated with {} of {} layers; {} of {} decode steps with {} ({} measured: the first, and {} plain, "
      "{} token-flush, {} window-flush places)",
      first_layers, model_layers_, simulated, features_.size(), groups_.back().layers, measured_.size(),
      count(Stratum::plain), count(Stratum::token_flush), count(Stratum::window_flush));
}

}  // namespace csdsim::host
