#include "host_runtime/core/features/neurons/model/locality_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/golden_section.h"
#include "host_runtime/core/features/neurons/model/share_quantiles.h"

namespace csdsim::host {
namespace {

constexpr std::uint32_t kQuantiles = 256;       // s(k) depends on their number by less than 1 %
constexpr double kLeastLog = -5, kMostLog = 8;  // range of the logarithm of the concentration
constexpr double kMostPersistence = 0.999;

struct Errors {
  double squares = 0;
  double worst = 0;
};

Errors errors_of(std::span<const double> quantiles, double persistence, std::span<const double> shares) {
  Errors errors;
  for (std::uint32_t k = 1; k <= shares.size(); ++k) {
    const double error = active_within(quantiles, persistence, k) / shares[k - 1] - 1;
    errors.squares += error * error;
    errors.worst = std::max(errors.worst, std::abs(error));
  }
  return errors;
}

}  // namespace

LocalityFit fit_locality(std::span<const double> shares) {
  if (shares.size() < 2) throw UserError("a locality model is fitted to at least s(1) and s(2)");
  if (!(shares[0] > 0 && shares[0] < 1))
    throw UserError("a locality model needs neurons that are active for some tokens and not for all");
  // Below this concentration, less than one of the quantiles would be active.
  const double least = std::max(kLeastLog, shares[0] * kQuantiles < 2 ? 0.0 : kLeastLog);
  struct Best {
    double persistence = 0;
    Errors errors;
  };
  const auto best_of = [&](double log_concentration) -> Best {
    const std::vector<double> quantiles = share_quantiles(shares[0], std::exp(log_concentration), kQuantiles);
    const double persistence =
        least_at(0, kMostPersistence, 18, [&](double p) { return errors_of(quantiles, p, shares).squares; });
    return {persistence, errors_of(quantiles, persistence, shares)};
  };
  const double log_concentration = least_at(least, kMostLog, 22, [&](double c) { return best_of(c).errors.squares; });
  const Best best = best_of(log_concentration);
  return {{.active = shares[0], .concentration = std::exp(log_concentration), .persistence = best.persistence},
          best.errors.worst};
}

}  // namespace csdsim::host
