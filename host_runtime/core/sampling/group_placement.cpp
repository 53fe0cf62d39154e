#include "host_runtime/core/sampling/group_placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

namespace csdsim::host {

namespace {

/// Plain places from which on they may differ in their tails: fewer do not tell what the tail adds from what the
/// context adds.
constexpr std::uint32_t kPlacesForTails = 8;

// Penalty per measured step of a higher stratum; larger than any misfit, which is in tokens.
constexpr double kForeign = 1e9;

/// Van der Corput sequence, in base 2: 1/2, 1/4, 3/4, 1/8, ... Those of two bases spread two quantities at a time.
double van_der_corput(std::uint32_t i, std::uint32_t base = 2) {
  double value = 0, digit = 1.0 / base;
  for (++i; i != 0; i /= base, digit /= base) value += digit * (i % base);
  return value;
}

class Placement {
 public:
  Placement(const std::vector<StepFeatures>& features, const SamplingSettings& settings)
      : features_(features), settings_(settings), taken_(features.size(), false) {
    for (std::uint32_t s = 0; s <= settings.cooldown && s < features.size(); ++s) taken_[s] = true;
  }

  std::vector<SampledGroup> take() {
    std::sort(groups_.begin(), groups_.end(),
              [](const SampledGroup& a, const SampledGroup& b) { return a.first_step < b.first_step; });
    return std::move(groups_);
  }

  /// Distance of a step from the ideal of the i-th place, in tokens or flushes.
  using Misfit = std::function<double(std::uint32_t step, std::uint32_t i)>;

  /// Adds up to `places` groups, each of which measures a step of `stratum` and its spill, spread over the run. Each
  /// group is at the step of least misfit within `radius` steps of its target (more if none fits); of equal ones at the
  /// nearest.
  void place(Stratum stratum, std::uint32_t places, std::uint32_t spill, double radius, const Misfit& misfit) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> segments;
    std::size_t all = 0;
    for (std::uint32_t s = 1; s < features_.size(); ++s) {
      if (features_[s].stratum() != stratum) continue;
      segments[features_[s].segment].push_back(s);
      ++all;
    }
    for (const auto& [segment, steps] : segments) {
      // At least three in each: two follow the context, and one more shows the error.
      const double share = double(steps.size()) / double(all);
      const auto own = std::max(3U, static_cast<std::uint32_t>(std::lround(places * share)));
      place(steps, segments.size() == 1 ? places : own, spill, radius, misfit);
    }
  }

 private:
  void place(const std::vector<std::uint32_t>& steps, std::uint32_t places, std::uint32_t spill, double radius,
             const Misfit& misfit) {
    for (std::uint32_t i = 0; i < places; ++i) {
      // Targets are alternately early and late in their share of the steps, so that their distance has no period.
      const double at = (i + (i % 2 == 0 ? 0.25 : 0.75)) / places;
      const double target = steps[static_cast<std::size_t>(at * static_cast<double>(steps.size()))];
      std::optional<SampledGroup> best;
      double best_misfit = 0, best_distance = 0;
      for (double reach = radius; !best && reach < 4.0 * static_cast<double>(features_.size()); reach *= 2)
        for (const std::uint32_t s : steps) {
          const double distance = std::abs(s - target);
          if (distance > reach) continue;
          const std::optional<SampledGroup> candidate = group_at(s, spill);
          if (!candidate) continue;
          const double off = misfit(s, i) + kForeign * foreign_steps(*candidate);
          if (best && (off > best_misfit + 1e-9 || (off > best_misfit - 1e-9 && distance >= best_distance))) continue;
          best = candidate;
          best_misfit = off;
          best_distance = distance;
        }
      if (!best) return;
      for (std::uint32_t s = best->first_step; s < best->first_step + best->steps(); ++s) taken_[s] = true;
      groups_.push_back(*best);
    }
  }

  /// The group that measures `step` and its spill; none if a part of it is taken or outside the run.
  std::optional<SampledGroup> group_at(std::uint32_t step, std::uint32_t spill) const {
    const auto end = static_cast<std::uint32_t>(features_.size());
    if (step < settings_.warmup + 1) return std::nullopt;
    // Measures until this flush and further ones of its kind have drained, up to a limit.
    const std::uint32_t limit = std::min(step + 2 * (1 + spill), end);
    std::uint32_t measured_end = step + 1;
    while (spill > 0 && measured_end < limit && disturbed(measured_end, features_[step].stratum())) ++measured_end;
    const SampledGroup group{.first_step = step - settings_.warmup,
                             .warmup = settings_.warmup,
                             .measured = measured_end - step,
                             .cooldown = std::min(settings_.cooldown, end - measured_end),
                             .stratum = features_[step].stratum()};
    for (std::uint32_t s = group.first_step; s < group.first_step + group.steps(); ++s)
      if (taken_[s]) return std::nullopt;
    if (features_[measured_end - 1].segment != features_[step].segment) return std::nullopt;
    return group;
  }

  /// True if a flush of the kind of `stratum` happens in the step or shortly before it.
  bool disturbed(std::uint32_t step, Stratum stratum) const {
    const StepFeatures& f = features_[step];
    return stratum == Stratum::window_flush ? f.window_flushes + f.recent_window_flushes > 0
                                            : f.token_flushes + f.recent_token_flushes > 0;
  }

  /// Number of measured steps of a higher stratum.
  std::uint32_t foreign_steps(const SampledGroup& group) const {
    std::uint32_t count = 0;
    for (std::uint32_t s = group.first_measured(); s < group.first_measured() + group.measured; ++s)
      if (features_[s].stratum() > group.stratum) ++count;
    return count;
  }

  const std::vector<StepFeatures>& features_;
  const SamplingSettings& settings_;
  std::vector<bool> taken_;
  std::vector<SampledGroup> groups_;
};

struct Places {
  std::uint32_t plain = 0, token = 0, window = 0;
};

/// Divides `places` among the three strata in proportion to their `steps`. A stratum gets at least two places, or one
/// per step if it has fewer. Plain steps get the rest.
Places share_places(std::uint32_t places, const Places& steps) {
  const double all = steps.plain + steps.token + steps.window;
  std::uint32_t left = places;
  const auto take = [&](std::uint32_t count, std::uint32_t share) {
    const std::uint32_t given = std::min(count, std::max(2U, share));
    left -= std::min(left, given);
    return given;
  };
  const auto share = [&](std::uint32_t count) { return static_cast<std::uint32_t>(std::lround(places * count / all)); };
  Places given;
  given.window = take(steps.window, share(steps.window));
  given.token = take(steps.token, std::min(share(steps.token), left));
  given.plain = take(steps.plain, left);
  return given;
}

}  // namespace

std::vector<SampledGroup> place_groups(const std::vector<StepFeatures>& features, const KvGrouping& grouping,
                                       const SamplingSettings& settings) {
  std::vector<double> lag, tail, token, window;  // quantities in which the places of a stratum should differ, sorted
  for (std::uint32_t s = 1; s < features.size(); ++s) {
    const StepFeatures& f = features[s];
    if (f.stratum() == Stratum::plain) {
      lag.push_back(f.flushed - f.windowed);
      tail.push_back(f.tail);
    }
    if (f.stratum() == Stratum::token_flush) token.push_back(f.token_flushes);
    if (f.stratum() == Stratum::window_flush) window.push_back(f.window_flushes);
  }
  for (auto* levels : {&lag, &tail, &token, &window}) std::sort(levels->begin(), levels->end());
  const auto quantile = [](const std::vector<double>& levels, double at) {
    return levels[static_cast<std::size_t>(at * static_cast<double>(levels.size()))];
  };

  const auto size = [](const std::vector<double>& v) { return static_cast<std::uint32_t>(v.size()); };
  const Places places = share_places(settings.steps, {size(lag), size(token), size(window)});
  const double page = grouping.page_tokens, span = grouping.window_tokens;
  const double stride = static_cast<double>(features.size()) / std::max(1U, places.plain);

  // Each token of the tail costs the same, so that the mean tail stands for all. This is not so for a method that
  // always takes its newest tokens: where they are more than the tail, a step reads a page more.
  double mean_tail = 0;
  for (const double t : tail) mean_tail += t / static_cast<double>(tail.size());
  const auto tail_of = [&](std::uint32_t i) {
    return grouping.newest && places.plain >= kPlacesForTails ? quantile(tail, van_der_corput(i, 3)) : mean_tail;
  };

  Placement placement(features, settings);
  // Window flushes are few even in ragged batches; steps with many of them measure their cost best.
  placement.place(Stratum::window_flush, places.window, settings.spill.window, std::max(1.0, span / 2),
                  [&](std::uint32_t s, std::uint32_t i) {
                    return std::abs(features[s].window_flushes - quantile(window, 1 - van_der_corput(i) / 2));
                  });
  placement.place(Stratum::token_flush, places.token, settings.spill.token, page,
                  [&](std::uint32_t s, std::uint32_t i) {
                    return std::abs(features[s].token_flushes - quantile(token, van_der_corput(i)));
                  });
  placement.place(Stratum::plain, places.plain, 0, std::max(page, std::min(span, stride) / 2),
                  [&](std::uint32_t s, std::uint32_t i) {
                    const StepFeatures& f = features[s];
                    const double off = span == 0 ? 0 : f.flushed - f.windowed - quantile(lag, van_der_corput(i));
                    return std::abs(off) + std::abs(f.tail - tail_of(i));
                  });
  return placement.take();
}

}  // namespace csdsim::host
