#include "host_runtime/core/features/token_pools/model/token_locality_fit.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/golden_section.h"

namespace csdsim::host {
namespace {

constexpr double kLeastLog = -3, kMostLog = 6;  // range of the logarithm of the concentration
constexpr double kMostPersistence = 0.999, kMostDrift = 0.2;

/// What overlaps are compared at.
struct Recorded {
  TokenStatistics statistics;
  double context = 0;
};

double squared_errors(const Recorded& recorded, const ShareProducts& products, double persistence, double drift) {
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (recorded.statistics.overlap[i] == 0) continue;
    const double error =
        expected_overlap(products, persistence, drift, recorded.statistics.share, recorded.context, kOverlapSteps[i]) -
        recorded.statistics.overlap[i];
    sum += error * error;
  }
  return sum;
}

/// Where a function of several valleys is least: the lowest of 24 places, then golden section around it.
template <class Function>
double least_from(double low, double high, const Function& function) {
  constexpr int kPlaces = 24;
  const double step = (high - low) / kPlaces;
  double best = low, least = function(low);
  for (int i = 1; i <= kPlaces; ++i) {
    const double value = function(low + i * step);
    if (value < least) least = value, best = low + i * step;
  }
  return least_at(std::max(low, best - step), std::min(high, best + step), 16, function);
}

}  // namespace

TokenLocalityParams fit_token_locality(const TokenRecording& recording) {
  if (recording.steps() <= kOverlapSteps[1])
    throw UserError("a locality model of tokens is fitted to at least 9 steps");
  const Recorded recorded{statistics(recording),
                          (recording.context(0) + recording.context(recording.steps() - 1)) / 2.0};
  const double recent = recorded.statistics.recent;
  if (!(recent > 0 && recent < 1 && recorded.statistics.share < 1))
    throw UserError("a locality model of tokens needs important tokens among the newest and among the others");
  struct Best {
    double persistence = 0, drift = 0, error = 0;
  };
  const auto best_of = [&](double log_concentration) -> Best {
    const ShareProducts products = share_products(recorded.statistics.share, recent, std::exp(log_concentration));
    const auto drift_of = [&](double persistence) {
      return least_at(0, kMostDrift, 24, [&](double d) { return squared_errors(recorded, products, persistence, d); });
    };
    const double persistence =
        least_from(0, kMostPersistence, [&](double p) { return squared_errors(recorded, products, p, drift_of(p)); });
    const double drift = drift_of(persistence);
    return {persistence, drift, squared_errors(recorded, products, persistence, drift)};
  };
  const double log_concentration = least_from(kLeastLog, kMostLog, [&](double c) { return best_of(c).error; });
  const Best best = best_of(log_concentration);
  return {.recent = recent,
          .concentration = std::exp(log_concentration),
          .persistence = best.persistence,
          .drift = best.drift};
}

TokenRecording model_recording(const TokenRecording& recording, const TokenLocalityParams& params, std::uint64_t seed) {
  TokenRecording result = recording;
  TokenLocalityModel model(params, seed);
  std::uint32_t sequence = 0;
  for (auto& window : result.windows) {
    for (std::uint32_t layer = 0; layer < window.size(); ++layer) {
      for (TokenRecording::Steps& steps : window[layer]) {
        for (std::size_t step = 0; step < steps.size(); ++step)
          model.next(SequenceId{sequence}, LayerId{layer}, recording.context(step),
                     static_cast<std::uint32_t>(steps[step].size()), steps[step]);
        ++sequence;
      }
    }
  }
  return result;
}

}  // namespace csdsim::host
