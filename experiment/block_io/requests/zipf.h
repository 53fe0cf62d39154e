// Draws Zipf-distributed ranks in constant time.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace csdsim::experiment::workload {

/// Draws k of [0, n) with probability proportional to (k+1)^-exponent by rejection-inversion (Hörmann, Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996). It needs no
/// table and, on average, only slightly more than one random number for any n and exponent.
class ZipfSampler {
 public:
  /// Preconditions: n is at least 1, the exponent is positive.
  ZipfSampler(std::uint64_t n, double exponent);

  std::uint64_t operator()(Rng& rng) const;

 private:
  /// The hat function x^-exponent, its integral, and the inverse of the integral.
  double hat(double x) const;
  double integral(double x) const;
  double inverse(double u) const;

  double n_;
  double exponent_;
  double first_;    ///< lower end of the range of u
  double last_;     ///< upper end of the range of u
  double squeeze_;  ///< rank k is accepted without a test if k - x is at most this
};

}  // namespace csdsim::experiment::workload
