// Prefill attention with instructions that only sm_90 has: bulk tensor copies and wgmma.
#pragma once

#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

inline constexpr std::uint32_t kHopperHead = 128;  ///< the one head size

/// See prefill_attention(); needs sm_90 and d = kHopperHead.
template <class T>
void prefill_hopper(const Stream& stream, const PrefillQuery<T>& query);

}  // namespace csdsim::host::cuda
