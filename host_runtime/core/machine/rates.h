// Sizes and rates as real numbers, for sums of work over rates.
#pragma once

#include "base/units.h"

namespace csdsim::host {

inline double bytes(Bytes of) { return static_cast<double>(of.value); }
inline double per_second(Bandwidth rate) { return static_cast<double>(rate.bytes_per_second); }

}  // namespace csdsim::host
