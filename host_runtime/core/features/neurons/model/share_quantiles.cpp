#include "host_runtime/core/features/neurons/model/share_quantiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {

std::vector<double> share_quantiles(double active, double concentration, std::uint32_t neurons) {
  const double a = active * concentration, b = (1 - active) * concentration;
  std::vector<double> quantiles(neurons);
  for (std::uint32_t i = 0; i < neurons; ++i) quantiles[i] = boost::math::ibeta_inv(a, b, (i + 0.5) / neurons);
  // Midpoints of steep ends miss the mean a little; this restores it.
  const double mean = std::accumulate(quantiles.begin(), quantiles.end(), 0.0) / neurons;
  if (!(mean > 0))
    throw UserError(fmt::format("active share {} and concentration {} leave all of {} neurons inactive", active,
                                concentration, neurons));
  for (double& share : quantiles) share = std::min(1.0, share * active / mean);
  return quantiles;
}

double active_within(std::span<const double> shares, double persistence, std::uint32_t tokens,
                     std::uint32_t sequences) {
  if (tokens == 0) return 0;
  // Never active: inactive at first, then inactive again k - 1 times.
  double never = 0;
  for (const double p : shares) never += std::pow((1 - p) * std::pow(1 - p * (1 - persistence), tokens - 1), sequences);
  return 1 - never / static_cast<double>(shares.size());
}

}  // namespace csdsim::host
