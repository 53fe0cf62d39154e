// The minimum of a function of one variable.
#pragma once

#include <cmath>

namespace csdsim {

/// The argument in [low, high] at which a function of one valley is least, by golden section.
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

}  // namespace csdsim
