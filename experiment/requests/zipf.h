// Zipf-distributed ranks in constant time.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace csdsim::experiment::workload {

/// Draws k of [0, n) with a probability in proportion to (k+1)^-exponent by rejection-inversion (Hörmann, Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996): no table,
/// and few more than one draw of random bits on average for any n and exponent.
class ZipfSampler {
 public:
  /// Preconditions: n is at least 1, the exponent is positive.
  ZipfSampler(std::uint64_t n, double exponent);

  std::uint64_t operator()(Rng& rng) const;

 private:
  /// The hat: density x^-exponent, its integral and the inverse of that.
  double hat(double x) const;
  double integral(double x) const;
  double inverse(double u) const;

  double n_;
  double exponent_;
  double first_;    ///< integral below the first rank
  double last_;     ///< integral up to the last
  double squeeze_;  ///< ranks within it of their place under the hat need no test
};

}  // namespace csdsim::experiment::workload
