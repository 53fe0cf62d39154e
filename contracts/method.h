// Methods that an engine computes of a KV head.
#pragma once

#include <cstdint>

namespace csdsim {

enum class Method : std::uint8_t {
  dense,  ///< attention to every token
  sparf,  ///< attention to chosen tokens, SparQ on flash pages in two steps (InstInfer)
  score   ///< HillInfer's token scores of this head
};

}  // namespace csdsim
