#include "host_runtime/core/planner/group_placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace csdsim::host {

namespace {

/// Van der Corput sequence in base 2: 1/2, 1/4, 3/4, 1/8, ...
double van_der_corput(std::uint32_t i) {
  double value = 0, digit = 0.5;
  for (++i; i != 0; i >>= 1, digit /= 2)
    if (i & 1) value += digit;
  return value;
}

class Placement {
 public:
  Placement(const std::vector<StepFeatures>& features, const SamplingSettings& settings)
      : features_(features), settings_(settings), taken_(features.size(), false) {
    for (std::uint32_t s = 0; s <= settings.cooldown && s < features.size(); ++s) taken_[s] = true;
  }

  /// Puts `places` groups of `1 + spill` measured steps over the steps of `stratum`. Around each target, within
  /// `radius` steps, the step with `level` nearest to the i-th of `wanted` is taken, the nearest to the target first.
  void place(Stratum stratum, std::uint32_t places, std::uint32_t spill, std::uint32_t radius,
             double StepFeatures::*level, const std::function<double(std::uint32_t)>& wanted) {
    std::vector<std::uint32_t> steps;
    for (std::uint32_t s = 1; s < features_.size(); ++s)
      if (features_[s].stratum() == stratum) steps.push_back(s);
    if (steps.empty()) return;
    for (std::uint32_t i = 0; i < places; ++i) {
      // Alternately early and late in its share, so that the distance between places has no period.
      const double at = (i + (i % 2 == 0 ? 0.25 : 0.75)) / places;
      const double target = steps[static_cast<std::size_t>(at * static_cast<double>(steps.size()))];
      const SampledGroup* best = nullptr;
      SampledGroup candidate, chosen;
      double best_level = 0, best_distance = 0;
      for (double reach = radius; best == nullptr && reach < 4.0 * static_cast<double>(features_.size()); reach *= 2)
        for (const std::uint32_t s : steps) {
          const double distance = std::abs(s - target);
          if (distance > reach || !fits(s, spill, candidate)) continue;
          const double off = std::abs(features_[s].*level - wanted(i));
          if (best != nullptr && (off > best_level + 1e-9 || (off > best_level - 1e-9 && distance >= best_distance)))
            continue;
          chosen = candidate;
          best = &chosen;
          best_level = off;
          best_distance = distance;
        }
      if (best == nullptr) return;
      for (std::uint32_t s = chosen.first_step; s < chosen.first_step + chosen.steps(); ++s) taken_[s] = true;
      groups_.push_back(chosen);
    }
  }

  std::vector<SampledGroup> take() {
    std::sort(groups_.begin(), groups_.end(),
              [](const SampledGroup& a, const SampledGroup& b) { return a.first_step < b.first_step; });
    return std::move(groups_);
  }

 private:
  bool fits(std::uint32_t step, std::uint32_t spill, SampledGroup& group) const {
    const auto end = static_cast<std::uint32_t>(features_.size());
    if (step < settings_.warmup + 1) return false;
    const std::uint32_t measured_end = std::min(step + 1 + spill, end);
    group = {.first_step = step - settings_.warmup,
             .warmup = settings_.warmup,
             .measured = measured_end - step,
             .cooldown = std::min(settings_.cooldown, end - measured_end)};
    for (std::uint32_t s = group.first_step; s < group.first_step + group.steps(); ++s)
      if (taken_[s]) return false;
    for (std::uint32_t s = step; s < measured_end; ++s) group.stratum = std::max(group.stratum, features_[s].stratum());
    return group.stratum == features_[step].stratum();
  }

  const std::vector<StepFeatures>& features_;
  const SamplingSettings& settings_;
  std::vector<bool> taken_;
  std::vector<SampledGroup> groups_;
};

}  // namespace

std::vector<SampledGroup> place_groups(const std::vector<StepFeatures>& features, const KvGrouping& grouping,
                                       const SamplingSettings& settings) {
  std::array<std::uint32_t, kStrata> count{};
  std::array<std::vector<double>, kStrata> levels;  // flushes of the stratum's steps, sorted
  double tail = 0;
  for (std::uint32_t s = 1; s < features.size(); ++s) {
    const StepFeatures& f = features[s];
    const auto stratum = static_cast<std::size_t>(f.stratum());
    ++count[stratum];
    levels[stratum].push_back(f.stratum() == Stratum::window_flush ? f.window_flushes : f.token_flushes);
    if (f.stratum() == Stratum::plain) tail += f.tail;
  }
  const auto [plain, token, window] = count;
  if (plain > 0) tail /= plain;
  for (auto& l : levels) std::sort(l.begin(), l.end());
  const auto quantile = [&](Stratum stratum) {
    return [&l = levels[static_cast<std::size_t>(stratum)]](std::uint32_t i) {
      return l[static_cast<std::size_t>(van_der_corput(i) * static_cast<double>(l.size()))];
    };
  };

  const std::uint32_t window_places = std::min(window, 2U);
  const std::uint32_t rest = settings.steps - std::min(settings.steps, window_places);
  std::uint32_t token_places = 0;
  if (token > 0) {
    const double share = static_cast<double>(token) / (static_cast<double>(token) + plain);
    token_places = std::max(2U, static_cast<std::uint32_t>(std::lround(share * rest)));
    if (plain > 0) token_places = std::min(token_places, std::max(rest, 3U) - 2);
  }
  const std::uint32_t plain_places = plain == 0 ? 0 : std::max(2U, rest - std::min(rest, token_places));

  Placement placement(features, settings);
  placement.place(Stratum::window_flush, window_places, settings.window_spill, std::max(1U, grouping.window_tokens / 2),
                  &StepFeatures::window_flushes, quantile(Stratum::window_flush));
  placement.place(Stratum::token_flush, std::min(token_places, token), settings.token_spill, grouping.page_tokens,
                  &StepFeatures::token_flushes, quantile(Stratum::token_flush));
  placement.place(Stratum::plain, std::min(plain_places, plain), 0, grouping.page_tokens, &StepFeatures::tail,
                  [tail](std::uint32_t) { return tail; });
  return placement.take();
}

}  // namespace csdsim::host
