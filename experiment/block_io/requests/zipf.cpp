#include "experiment/block_io/requests/zipf.h"

#include <algorithm>
#include <cmath>

namespace csdsim::experiment::workload {
namespace {

/// log(1+x)/x and (exp(x)-1)/x, with their series near 0, where plain division fails.
double log1p_over(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }
double expm1_over(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }

}  // namespace

ZipfSampler::ZipfSampler(std::uint64_t n, double exponent) : n_(static_cast<double>(n)), exponent_(exponent) {
  first_ = integral(1.5) - 1;
  last_ = integral(n_ + 0.5);
  squeeze_ = 2 - inverse(integral(2.5) - hat(2));
}

double ZipfSampler::hat(double x) const { return std::exp(-exponent_ * std::log(x)); }

double ZipfSampler::integral(double x) const {
  const double log_x = std::log(x);
  return expm1_over((1 - exponent_) * log_x) * log_x;
}

double ZipfSampler::inverse(double u) const { return std::exp(log1p_over(std::max(u * (1 - exponent_), -1.0)) * u); }

std::uint64_t ZipfSampler::operator()(Rng& rng) const {
  for (;;) {
    const double u = last_ + rng.unit() * (first_ - last_);
    const double x = inverse(u);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, n_);
    if (k - x <= squeeze_ || u >= integral(k + 0.5) - hat(k)) return static_cast<std::uint64_t>(k) - 1;
  }
}

}  // namespace csdsim::experiment::workload
