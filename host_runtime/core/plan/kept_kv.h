// K and V that are kept with few bits per element: their bytes, and the passes that convert them.
#pragma once

#include <cstdint>
#include <string>

#include "contracts/row_quantisation.h"
#include "host_runtime/core/model/model_shape.h"

namespace csdsim::host {

/// Says what is wrong with a format for heads of `head_dim` elements: "kv_group: groups of 48 elements ...". Empty if
/// nothing is.
std::string kept_kv_problem(const RowQuantisation& kv, std::uint32_t head_dim);

/// Bytes of K and V of a token and KV head.
Bytes kept_kv_bytes(const ModelShape& model, const RowQuantisation& kv);

/// K and V of `tokens` tokens of a layer are quantised: fp16 is read, integers and scales are written.
ComputeWork quantise_kv(const ModelShape& model, const RowQuantisation& kv, std::uint64_t tokens);
/// Attention of a layer, before which quantised K and V of `tokens` tokens are dequantised by a kernel of their own.
ComputeWork after_dequantising(ComputeWork attention, const ModelShape& model, const RowQuantisation& kv,
                               std::uint64_t tokens);

}  // namespace csdsim::host
