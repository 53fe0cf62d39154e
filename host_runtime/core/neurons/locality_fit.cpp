#include "host_runtime/core/neurons/locality_fit.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {
namespace {

constexpr std::uint32_t kQuantiles = 256;       // s(k) depends on their number by less than 1 %
constexpr double kLeastLog = -5, kMostLog = 8;  // of the logarithm of the concentration
constexpr double kMostPersistence = 0.999;

struct Errors {
  double squares = 0;
  double worst = 0;
};

Errors errors_of(const LocalityParams& params, std::span<const double> shares) {
  const LocalityModel model(params, kQuantiles, 1);
  Errors errors;
  for (std::uint32_t k = 1; k <= shares.size(); ++k) {
    const double error = model.active_within(k) / shares[k - 1] - 1;
    errors.squares += error * error;
    errors.worst = std::max(errors.worst, std::abs(error));
  }
  return errors;
}

/// Where a function of one valley is least in [low, high], by golden section.
template <class Function>
double least_at(double low, double high, int steps, const Function& function) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double left = high - golden * (high - low), right = low + golden * (high - low);
  double at_left = function(left), at_right = function(right);
  for (int step = 0; step < steps; ++step) {
    if (at_left < at_right) {
      high = right;
      right = left, at_right = at_left;
      left = high - golden * (high - low), at_left = function(left);
    } else {
      low = left;
      left = right, at_left = at_right;
      right = low + golden * (high - low), at_right = function(right);
    }
  }
  return at_left < at_right ? left : right;
}

}  // namespace

LocalityFit fit_locality(std::span<const double> shares) {
  if (shares.size() < 2) throw UserError("a locality model is fitted to at least s(1) and s(2)");
  if (!(shares[0] > 0 && shares[0] < 1))
    throw UserError("a locality model needs neurons that are active for some tokens and not for all");
  const auto params = [&](double log_concentration, double persistence) {
    return LocalityParams{
        .active = shares[0], .concentration = std::exp(log_concentration), .persistence = persistence};
  };
  const auto best_persistence = [&](double log_concentration) {
    return least_at(0, kMostPersistence, 18,
                    [&](double p) { return errors_of(params(log_concentration, p), shares).squares; });
  };
  const double log_concentration = least_at(
      kLeastLog, kMostLog, 22, [&](double c) { return errors_of(params(c, best_persistence(c)), shares).squares; });
  const LocalityParams best = params(log_concentration, best_persistence(log_concentration));
  return {best, errors_of(best, shares).worst};
}

}  // namespace csdsim::host
