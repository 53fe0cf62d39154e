#include "host_runtime/core/sampling/group_placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <random>

namespace csdsim::host {

namespace {

/// Least number of places of a stratum: fewer give no useful variance.
constexpr std::uint32_t kLeastPlaces = 3;
/// Least number of plain places: their fit has a slope over the context, too.
constexpr std::uint32_t kLeastPlain = 4;

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

  /// Adds up to `places` groups, each of which measures a step of `stratum` and its spill.
  void place(Stratum stratum, std::uint32_t places, std::uint32_t spill) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> segments;
    std::size_t all = 0;
    for (std::uint32_t s = 1; s < features_.size(); ++s) {
      if (features_[s].stratum() != stratum) continue;
      segments[features_[s].segment].push_back(s);
      ++all;
    }
    for (const auto& [segment, steps] : segments) {
      const double share = double(steps.size()) / double(all);
      const auto own = std::max(kLeastPlain, static_cast<std::uint32_t>(std::lround(places * share)));
      if (places > 0) place(steps, segments.size() == 1 ? places : own, spill);
    }
  }

 private:
  /// A random step of each of `places` equal shares of the steps; where it is taken, another one of the share, or the
  /// next one beside it: a share without a place would be estimated from the others.
  void place(const std::vector<std::uint32_t>& steps, std::uint32_t places, std::uint32_t spill) {
    const std::size_t count = steps.size();
    places = std::min(places, static_cast<std::uint32_t>(count));
    for (std::uint32_t i = 0; i < places; ++i) {
      const std::size_t from = i * count / places, to = (i + 1) * count / places, share = to - from;
      const std::size_t first = random_() % share;
      const auto tried_as = [&](std::size_t tried) {
        if (tried < share) return from + (first + tried) % share;
        return from + to > count ? (to - 1 + count - tried) % count : (from + tried) % count;
      };
      for (std::size_t tried = 0; tried < count; ++tried)
        if (const auto group = group_at(steps[tried_as(tried)], spill)) {
          for (std::uint32_t s = group->first_step; s < group->first_step + group->steps(); ++s) taken_[s] = true;
          groups_.push_back(*group);
          break;
        }
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
    if (settings_.settled && spill > 0 && measured_end < end && features_[measured_end].stratum() == Stratum::plain &&
        features_[measured_end].segment == features_[step].segment)
      ++measured_end;
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

  const std::vector<StepFeatures>& features_;
  const SamplingSettings& settings_;
  std::vector<bool> taken_;
  std::vector<SampledGroup> groups_;
  std::mt19937 random_;  // has the same seed in every run: equal inputs have equal samples
};

}  // namespace

std::vector<SampledGroup> place_groups(const std::vector<StepFeatures>& features, const SamplingSettings& settings) {
  std::array<std::uint32_t, kStrata> steps{};
  for (std::uint32_t s = 1; s < features.size(); ++s) ++steps[static_cast<std::size_t>(features[s].stratum())];
  const auto of = [&](Stratum stratum) { return steps[static_cast<std::size_t>(stratum)]; };
  const std::uint32_t plain = of(Stratum::plain), token = of(Stratum::token_flush), window = of(Stratum::window_flush);
  // Each stratum gets places in proportion to its steps, and at least its least number. Plain steps get the rest.
  const double all = std::max(1U, plain + token + window);
  std::uint32_t left = settings.steps;
  const auto take = [&](std::uint32_t in_run) {
    const auto share = static_cast<std::uint32_t>(std::lround(settings.steps * in_run / all));
    const std::uint32_t taken = std::min(in_run, std::max(kLeastPlaces, share));
    left -= std::min(left, taken);
    return taken;
  };
  Placement placement(features, settings);
  // Flushes are rare: they are placed first.
  const auto place = [&](const SampledPlaces& places) {
    placement.place(Stratum::window_flush, places.window_flush, settings.spill.window);
    placement.place(Stratum::token_flush, places.token_flush, settings.spill.token);
    placement.place(Stratum::plain, places.plain, 0);
  };
  SampledPlaces first{.window_flush = take(window)};
  first.token_flush = take(token);
  first.plain = std::max(kLeastPlain, left);
  place(first);
  for (const SampledPlaces& places : settings.further) place(places);
  return placement.take();
}

}  // namespace csdsim::host
