// Standard errors of what an evaluation measures.
#pragma once

#include <optional>
#include <span>

namespace csdsim::host {

/// Standard errors of means over windows, which are as good as independent of one another; tokens of one window are
/// not. Empty for fewer than two windows.
using Spread = std::optional<double>;

/// Standard error of the mean of `terms`.
Spread standard_error(std::span<const double> terms);

inline Spread times(Spread spread, double factor) { return spread ? Spread(*spread * factor) : spread; }

}  // namespace csdsim::host
