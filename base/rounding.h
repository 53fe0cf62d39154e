// Division that rounds up.
#pragma once

#include <cstdint>

namespace csdsim {

/// Units that hold the amount, the last one perhaps in part. Precondition: unit is not zero, and amount + unit fits.
constexpr std::uint64_t ceil_div(std::uint64_t amount, std::uint64_t unit) { return (amount + unit - 1) / unit; }

}  // namespace csdsim
