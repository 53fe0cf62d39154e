// A model small enough for tests of plans.
#pragma once

#include "host_runtime/core/model/model_shape.h"

namespace csdsim::host::test {

inline ModelShape small_model(std::uint32_t layers = 4) {
  return {.layers = layers, .width = 64, .heads = 8, .kv_heads = 4, .head_dim = 8, .ffn = 256, .vocab = 1000};
}

}  // namespace csdsim::host::test
