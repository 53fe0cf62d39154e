#include "experiment/calibration/fit.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <nlopt.hpp>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::experiment {
namespace {

/// Samples of the ranges for each parameter.
constexpr std::size_t kSamples = 8;
/// Step of the search at its start and of derivatives, as a logarithm.
constexpr double kStep = 0.2;
/// Best samples from which a search starts.
constexpr std::size_t kStarts = 3;
/// A quadratic model needs few calls; a simplex gets past edges, where another part of a drive becomes the slowest.
constexpr nlopt::algorithm kQuick = nlopt::LN_BOBYQA, kRobust = nlopt::LN_SBPLX;
/// An error that needs no better fit.
constexpr double kGoodEnough = 5e-4;

using Values = std::vector<double>;

class Fitting {
 public:
  Fitting(const FitModel& model, const std::vector<FitParameter>& parameters, const Values& measured,
          const FitOptions& options)
      : model_(model), parameters_(parameters), measured_(measured), options_(options) {
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (parameters[p].choices.empty()) free_.push_back(p);
  }

  Fit run() {
    Values start(parameters_.size());
    std::ranges::transform(parameters_, start.begin(), &FitParameter::start);
    FitCandidate first{start, error_of(figures(start))};
    for (const Values& sample : best_samples(start))
      if (const FitCandidate from_it = search(kQuick, sample); from_it.error < first.error) first = from_it;
    fit_.candidates.push_back(first);
    for (const Values& choices : combinations(start)) {
      if (choices == start) continue;
      Values from = best().values;
      for (std::size_t p = 0; p < parameters_.size(); ++p)
        if (!parameters_[p].choices.empty()) from[p] = choices[p];
      fit_.candidates.push_back(search(kQuick, from));
    }
    FitCandidate& found = best();
    found = search(kRobust, found.values);
    fit_.values = found.values;
    fit_.error = found.error;
    fit_.figures = figures(fit_.values);
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      fit_.ranges.push_back(parameters_[p].choices.empty() ? range(p) : range_of_choices(p));
    find_trade_offs();
    return std::move(fit_);
  }

 private:
  FitCandidate& best() { return *std::ranges::min_element(fit_.candidates, {}, &FitCandidate::error); }

  const Values& figures(const Values& values) {
    const auto [at, is_new] = known_.try_emplace(values);
    if (!is_new) return at->second;
    at->second = model_(values);
    if (at->second.size() != measured_.size()) throw InternalError("fit: the model has another number of figures");
    least_error_ = std::min(least_error_, error_of(at->second));
    options_.progress(++fit_.calls, least_error_);
    return at->second;
  }

  double error_of(const Values& figures) const {
    double sum = 0;
    for (std::size_t i = 0; i < figures.size(); ++i) sum += std::pow(std::log(figures[i] / measured_[i]), 2);
    return std::sqrt(sum / static_cast<double>(figures.size()));
  }

  /// The best of the start and the points of a Latin hypercube over the free parameters.
  std::vector<Values> best_samples(const Values& start) {
    const std::size_t count = kSamples * free_.size();
    Rng rng(options_.seed, "calibration");
    std::vector<std::vector<std::size_t>> places(free_.size(), std::vector<std::size_t>(count));
    for (std::vector<std::size_t>& of_parameter : places) {
      std::iota(of_parameter.begin(), of_parameter.end(), std::size_t{0});
      for (std::size_t i = count; i > 1; --i) std::swap(of_parameter[i - 1], of_parameter[rng.below(i)]);
    }
    std::vector<FitCandidate> samples{{start, error_of(figures(start))}};
    for (std::size_t s = 0; s < count; ++s) {
      Values sample = start;
      for (std::size_t f = 0; f < free_.size(); ++f) {
        const FitParameter& p = parameters_[free_[f]];
        const double place = (static_cast<double>(places[f][s]) + 0.5) / static_cast<double>(count);
        sample[free_[f]] = p.low * std::pow(p.high / p.low, place);
      }
      samples.push_back({sample, error_of(figures(sample))});
    }
    std::ranges::stable_sort(samples, {}, &FitCandidate::error);
    std::vector<Values> found;
    for (std::size_t i = 0; i < std::min(kStarts, samples.size()); ++i) found.push_back(samples[i].values);
    return found;
  }

  /// Every combination of choices, those near the start first. Only the values of choices count.
  std::vector<Values> combinations(const Values& start) const {
    std::vector<Values> all{start};
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      if (parameters_[p].choices.empty()) continue;
      std::vector<Values> more;
      for (const Values& one : all)
        for (const double choice : parameters_[p].choices) {
          more.push_back(one);
          more.back()[p] = choice;
        }
      all = std::move(more);
    }
    const auto distance = [&](const Values& values) {
      double sum = 0;
      for (std::size_t p = 0; p < values.size(); ++p) sum += std::abs(std::log(values[p] / start[p]));
      return sum;
    };
    std::ranges::stable_sort(all, {}, distance);
    return all;
  }

  /// Searches over the free parameters.
  FitCandidate search(nlopt::algorithm algorithm, const Values& from) {
    FitCandidate found{from, error_of(figures(from))};
    if (free_.empty() || found.error < kGoodEnough) return found;
    nlopt::opt method(free_.size() < 2 ? kRobust : algorithm, static_cast<unsigned>(free_.size()));
    Values at, low, high;
    for (const std::size_t p : free_) {
      low.push_back(std::log(parameters_[p].low));
      high.push_back(std::log(parameters_[p].high));
      at.push_back(std::clamp(std::log(from[p]), low.back(), high.back()));
    }
    struct Objective {
      std::function<double(const Values&)> of;
      std::exception_ptr failure;  ///< NLopt would replace it by an exception of its own
    } objective{[&](const Values& logarithms) {
                  const Values values = with(from, logarithms);
                  const double error = error_of(figures(values));
                  if (error < found.error) found = {values, error};
                  return error * error;
                },
                {}};
    method.set_min_objective(
        [](const Values& logarithms, Values&, void* data) {
          auto& state = *static_cast<Objective*>(data);
          try {
            return state.of(logarithms);
          } catch (...) {
            state.failure = std::current_exception();
            throw nlopt::forced_stop();
          }
        },
        &objective);
    method.set_lower_bounds(low);
    method.set_upper_bounds(high);
    method.set_initial_step(kStep);
    method.set_xtol_abs(0.002);
    method.set_ftol_rel(0.001);
    method.set_stopval(kGoodEnough * kGoodEnough);
    method.set_maxeval(static_cast<int>(options_.calls_per_parameter * free_.size()));
    double least = 0;
    try {
      method.optimize(at, least);
    } catch (const nlopt::roundoff_limited&) {  // what was found counts
    } catch (const nlopt::forced_stop&) {
      std::rethrow_exception(objective.failure);
    }
    return found;
  }

  Values with(Values values, const Values& logarithms) const {
    for (std::size_t f = 0; f < free_.size(); ++f) {
      const FitParameter& p = parameters_[free_[f]];
      values[free_[f]] = std::clamp(std::exp(logarithms[f]), p.low, p.high);
    }
    return values;
  }

  bool unseen(const Values& values) {
    const Values& moved = figures(values);
    for (std::size_t i = 0; i < moved.size(); ++i)
      if (std::abs(std::log(moved[i] / fit_.figures[i])) > options_.tolerance) return false;
    return true;
  }

  /// How far one parameter can move up (sign 1) or down (-1) unseen, as a logarithm, and whether that is to the end.
  std::pair<double, bool> reach(std::size_t p, int sign) {
    const FitParameter& parameter = parameters_[p];
    const double limit = std::abs(std::log((sign > 0 ? parameter.high : parameter.low) / fit_.values[p]));
    const auto unseen_at = [&](double distance) {
      Values values = fit_.values;
      values[p] = std::clamp(values[p] * std::exp(sign * distance), parameter.low, parameter.high);
      return unseen(values);
    };
    double inside = 0, outside = std::min(options_.tolerance, limit);
    while (unseen_at(outside)) {
      inside = outside;
      if (inside >= limit) return {limit, true};
      outside = std::min(3 * outside, limit);
    }
    for (int halved = 0; halved < 5; ++halved) {
      const double middle = (inside + outside) / 2;
      (unseen_at(middle) ? inside : outside) = middle;
    }
    return {inside, false};
  }

  FitRange range(std::size_t p) {
    const auto [down, to_low_end] = reach(p, -1);
    const auto [up, to_high_end] = reach(p, 1);
    return {fit_.values[p] * std::exp(-down), fit_.values[p] * std::exp(up), to_low_end, to_high_end};
  }

  /// From the lowest to the highest choice whose best fit is about as good as the best one.
  FitRange range_of_choices(std::size_t p) const {
    const std::vector<double>& choices = parameters_[p].choices;
    FitRange range{fit_.values[p], fit_.values[p]};
    for (const FitCandidate& candidate : fit_.candidates) {
      if (candidate.error > fit_.error + options_.tolerance / 4) continue;
      range.low = std::min(range.low, candidate.values[p]);
      range.high = std::max(range.high, candidate.values[p]);
    }
    range.to_low_end = range.low <= std::ranges::min(choices);
    range.to_high_end = range.high >= std::ranges::max(choices);
    return range;
  }

  /// Derivatives of the logarithms of all figures to that of a parameter.
  Values slopes(std::size_t p) {
    const double up = std::min(kStep, std::log(parameters_[p].high / fit_.values[p]));
    const double down = std::min(kStep, std::log(fit_.values[p] / parameters_[p].low));
    Values above = fit_.values, below = fit_.values;
    above[p] *= std::exp(up);
    below[p] *= std::exp(-down);
    const Values high = figures(above), low = figures(below);
    Values all(high.size(), 0);
    if (up + down > 0)
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::log(high[i] / low[i]) / (up + down);
    return all;
  }

  /// A pair trades off if what the slopes suggest is confirmed by the model.
  void find_trade_offs() {
    std::vector<Values> slope;
    for (const std::size_t p : free_) slope.push_back(slopes(p));
    const auto product = [](const Values& a, const Values& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    for (std::size_t a = 0; a < free_.size(); ++a)
      for (std::size_t b = 0; b < free_.size(); ++b) {
        const double square = product(slope[b], slope[b]);
        if (a == b || square == 0 || fit_.ranges[free_[b]].to_low_end || fit_.ranges[free_[b]].to_high_end) continue;
        // Twice what alone is not seen.
        const FitRange& alone = fit_.ranges[free_[a]];
        const double value = fit_.values[free_[a]];
        for (const double change : {2 * std::log(alone.high / value), 2 * std::log(alone.low / value)})
          if (try_trade_off(free_[a], change, free_[b], -change * product(slope[a], slope[b]) / square)) break;
      }
  }

  bool try_trade_off(std::size_t p, double change, std::size_t other, double other_change) {
    const auto inside = [&](std::size_t q, const Values& values) {
      return values[q] >= parameters_[q].low && values[q] <= parameters_[q].high;
    };
    const auto listed = [&](const FitTradeOff& t) { return t.parameter == other && t.other == p; };
    if (std::ranges::any_of(fit_.trade_offs, listed)) return false;
    Values values = fit_.values;
    values[p] *= std::exp(change);
    if (!inside(p, values) || unseen(values)) return false;
    values[other] *= std::exp(other_change);
    if (!inside(other, values) || !unseen(values)) return false;
    fit_.trade_offs.push_back({p, other, std::exp(change), std::exp(other_change)});
    return true;
  }

  const FitModel& model_;
  const std::vector<FitParameter>& parameters_;
  const Values& measured_;
  const FitOptions& options_;
  std::vector<std::size_t> free_;  ///< parameters without choices
  std::map<Values, Values> known_;
  double least_error_ = INFINITY;
  Fit fit_;
};

}  // namespace

Fit fit_model(const FitModel& model, const std::vector<FitParameter>& parameters, const std::vector<double>& measured,
              const FitOptions& options) {
  return Fitting(model, parameters, measured, options).run();
}

}  // namespace csdsim::experiment
