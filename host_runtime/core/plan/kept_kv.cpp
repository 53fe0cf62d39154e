#include "host_runtime/core/plan/kept_kv.h"

#include <fmt/format.h>

namespace csdsim::host {

namespace {

/// One side of a conversion is fp16, the other one has the format in which K and V are kept.
Bytes converted_bytes(const ModelShape& model, const RowQuantisation& kv, std::uint64_t tokens) {
  return (model.kv_bytes_per_token_and_head() + kept_kv_bytes(model, kv)) * (model.kv_heads * tokens);
}

}  // namespace

std::string kept_kv_problem(const RowQuantisation& kv, std::uint32_t head_dim) {
  if (!kv.quantised() || (kv.group > 0 && head_dim % kv.group == 0)) return "";
  return fmt::format("kv_group: groups of {} elements do not divide heads of {} elements", kv.group, head_dim);
}

Bytes kept_kv_bytes(const ModelShape& model, const RowQuantisation& kv) {
  return kv.row(model.head_dim, model.element_bytes) * 2;
}

ComputeWork quantise_kv(const ModelShape& model, const RowQuantisation& kv, std::uint64_t tokens) {
  return {.op = OperatorClass::elementwise, .activations = converted_bytes(model, kv, tokens), .launches = 1};
}

ComputeWork after_dequantising(ComputeWork attention, const ModelShape& model, const RowQuantisation& kv,
                               std::uint64_t tokens) {
  attention.activations += converted_bytes(model, kv, tokens);
  ++attention.launches;
  return attention;
}

}  // namespace csdsim::host
