// Fits the locality model to recorded neurons.
#pragma once

#include <span>

#include "host_runtime/core/features/neurons/model/locality_model.h"

namespace csdsim::host {

struct LocalityFit {
  LocalityParams params;
  double worst = 0;  ///< largest |model s(k) / recorded s(k) - 1|
};

/// The constants whose s(k) is closest to `shares`, which are s(1), s(2), ...: `active` is s(1), the others minimise
/// the sum of the squared relative errors by nested golden-section searches, which find the only valley if there is
/// one. UserError for fewer than two values, or if s(1) is not between 0 and 1.
LocalityFit fit_locality(std::span<const double> shares);

}  // namespace csdsim::host
