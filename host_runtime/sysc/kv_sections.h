// Typed views of the buffers of KV commands.
#pragma once

#include <cstddef>
#include <span>

#include "base/fp16.h"
#include "nvme_if/spec/encode.h"

namespace csdsim::host {

inline constexpr nvme::NamespaceId kKvNamespace{1};

inline std::span<Half> halves(std::byte* at, std::size_t count) { return {reinterpret_cast<Half*>(at), count}; }
inline std::span<float> floats(std::byte* at, std::size_t count) { return {reinterpret_cast<float*>(at), count}; }

}  // namespace csdsim::host
