#include "host_runtime/cuda/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string>
#include <type_traits>

namespace csdsim::host::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what cuBLAS itself takes on sm_90

void check_lt(cublasStatus_t status, const char* call, std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, "cuBLAS status " + std::to_string(status), where);
}

template <class T>
constexpr cudaDataType kType = std::is_same_v<T, float>    ? CUDA_R_32F
                               : std::is_same_v<T, __half> ? CUDA_R_16F
                                                           : CUDA_R_16BF;

template <class T, auto destroy>
using Owner = std::unique_ptr<std::remove_pointer_t<T>, Destroy<destroy>>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

// cuBLAS counts columns first: a row-major [rows][cols] matrix is its [cols][rows].
Layout layout(cudaDataType type, std::size_t rows, std::size_t cols) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&made, type, cols, rows, static_cast<std::int64_t>(cols)),
           "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

}  // namespace

struct Gemm::Plan {
  Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Layout w, x, out;
  cublasLtMatmulAlgo_t algorithm;
};

Gemm::Gemm(DevicePool& pool) : workspace_(pool, kWorkspaceBytes) {
  cublasLtHandle_t handle = nullptr;
  check_lt(cublasLtCreate(&handle), "cublasLtCreate");
  handle_.reset(handle);
}

const Gemm::Plan& Gemm::plan(const Shape& shape) {
  std::shared_ptr<const Plan>& kept = plans_[shape];
  if (kept) return *kept;
  auto plan = std::make_shared<Plan>();
  cublasLtMatmulDesc_t operation = nullptr;
  check_lt(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  plan->operation.reset(operation);
  // out^T [n][rows] = w [n][k] x^T, with w read as the transpose of its [k][n].
  const cublasOperation_t transpose = CUBLAS_OP_T;
  check_lt(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
           "cublasLtMatmulDescSetAttribute");
  plan->w = layout(shape.in, shape.n, shape.k);
  plan->x = layout(shape.in, shape.rows, shape.k);
  plan->out = layout(shape.out, shape.rows, shape.n);

  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owner(preference);
  check_lt(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                                sizeof kWorkspaceBytes),
           "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  check_lt(cublasLtMatmulAlgoGetHeuristic(handle_.get(), operation, plan->w.get(), plan->x.get(), plan->out.get(),
                                          plan->out.get(), preference, 1, &result, &found),
           "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) {
    fail("cublasLtMatmulAlgoGetHeuristic", "no algorithm for " + std::to_string(shape.rows) + " x " +
                                               std::to_string(shape.n) + " x " + std::to_string(shape.k));
  }
  plan->algorithm = result.algo;
  kept = std::move(plan);
  return *kept;
}

template <class T, class Out>
void Gemm::multiply(const Stream& stream, const T* x, const T* w, std::size_t rows, std::size_t n, std::size_t k,
                    bool accumulate, Out* out) {
  const Plan& p = plan({rows, n, k, kType<T>, kType<Out>});
  const float one = 1, old = accumulate ? 1.0f : 0.0f;
  check_lt(cublasLtMatmul(handle_.get(), p.operation.get(), &one, w, p.w.get(), x, p.x.get(), &old, out, p.out.get(),
                          out, p.out.get(), &p.algorithm, workspace_.data(), workspace_.size(), stream.get()),
           "cublasLtMatmul");
}

template void Gemm::multiply(const Stream&, const __half*, const __half*, std::size_t, std::size_t, std::size_t, bool,
                             __half*);
template void Gemm::multiply(const Stream&, const __half*, const __half*, std::size_t, std::size_t, std::size_t, bool,
                             float*);
template void Gemm::multiply(const Stream&, const __nv_bfloat16*, const __nv_bfloat16*, std::size_t, std::size_t,
                             std::size_t, bool, __nv_bfloat16*);
template void Gemm::multiply(const Stream&, const __nv_bfloat16*, const __nv_bfloat16*, std::size_t, std::size_t,
                             std::size_t, bool, float*);

}  // namespace csdsim::host::cuda
