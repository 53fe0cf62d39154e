// The graph by which cuDNN is asked for attention of prompts. Needs the headers of cuDNN and of its frontend.
#pragma once

#include <cudnn_frontend.h>

#include <cmath>
#include <memory>

#include "host_runtime/cuda/cudnn_plan.h"

namespace csdsim::host::cuda {

/// What the tensors of the graph are called when it runs.
enum CudnnTensor : std::int64_t {
  kCudnnQ = 1,
  kCudnnK,
  kCudnnV,
  kCudnnOut,
  kCudnnQOffsets,
  kCudnnKvOffsets,
  kCudnnOutOffsets,
  kCudnnLengths
};

/// Sequences lie one after another in the rows: each begins at an offset and has a length of its own.
/// `compute_capability` is that of the GPU, 90 for 9.0.
inline std::shared_ptr<cudnn_frontend::graph::Graph> cudnn_graph(const CudnnShape& s, int compute_capability) {
  namespace fe = cudnn_frontend;
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_sm_version(compute_capability)
      .set_io_data_type(s.bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto list = [&](CudnnTensor id, std::int64_t count, fe::DataType_t type) {
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
  };
  const auto offsets = [&](CudnnTensor id) { return list(id, s.sequences + 1, fe::DataType_t::INT64); };
  const auto q_offsets = offsets(kCudnnQOffsets), kv_offsets = offsets(kCudnnKvOffsets);
  const auto lengths = list(kCudnnLengths, s.sequences, fe::DataType_t::INT32);
  const auto rows = [&](CudnnTensor id, std::int64_t heads, std::int64_t stride, const auto& at) {
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_dim({s.sequences, heads, s.longest, s.d})
                             .set_stride({s.longest * stride, s.d, stride, 1})
                             .set_ragged_offset(at));
  };
  const auto q = rows(kCudnnQ, s.heads, s.q_stride, q_offsets);
  const auto k = rows(kCudnnK, s.kv_heads, s.kv_stride, kv_offsets);
  const auto v = rows(kCudnnV, s.kv_heads, s.kv_stride, kv_offsets);
  auto attention = fe::graph::SDPA_attributes()
                       .set_generate_stats(false)
                       .set_causal_mask(true)
                       .set_padding_mask(true)
                       .set_seq_len_q(lengths)
                       .set_seq_len_kv(lengths)
                       .set_attn_scale(1.0f / std::sqrt(static_cast<float>(s.d)));
  const auto out = graph->sdpa(q, k, v, attention)[0];
  out->set_output(true)
      .set_uid(kCudnnOut)
      .set_dim({s.sequences, s.heads, s.longest, s.d})
      .set_stride({s.longest * s.out_stride, s.d, s.out_stride, 1})
      .set_ragged_offset(offsets(kCudnnOutOffsets));
  return graph;
}

}  // namespace csdsim::host::cuda
