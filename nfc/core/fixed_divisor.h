// Makes base/fixed_divisor.h known by the name that the timeline uses.
#pragma once

#include "base/fixed_divisor.h"

namespace csdsim::nfc {
using csdsim::FixedDivisor;
}  // namespace csdsim::nfc
