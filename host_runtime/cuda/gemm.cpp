#include "host_runtime/cuda/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "host_runtime/cuda/timing.h"

namespace csdsim::host::cuda {
namespace {

constexpr int kProposals = 6;
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

void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const auto& value) {
  check_lt(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute");
}

}  // namespace

struct Gemm::Plan {
  Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Layout w, x, out;
  cublasLtMatmulAlgo_t algorithm;
};

Gemm::Gemm(DevicePool& pool, const DeviceInfo& device)
    : pool_(pool), device_(device), workspace_(pool, kWorkspaceBytes) {
  cublasLtHandle_t handle = nullptr;
  check_lt(cublasLtCreate(&handle), "cublasLtCreate");
  handle_.reset(handle);
}

std::shared_ptr<Gemm::Plan> Gemm::make_plan(const Shape& shape) const {
  auto plan = std::make_shared<Plan>();
  cublasLtMatmulDesc_t operation = nullptr;
  check_lt(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  plan->operation.reset(operation);
  // out^T [n][rows] = w [n][k] x^T, with w read as the transpose of its [k][n].
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  // cuBLASLt adds a bias to every column of its matrix, which is a row of ours, before ReLU.
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
      shape.biased ? (shape.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                   : (shape.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT));
  if (shape.biased) set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, shape.in);
  plan->w = layout(shape.in, shape.n, shape.k);
  plan->x = layout(shape.in, shape.rows, shape.k);
  plan->out = layout(shape.out, shape.rows, shape.n);
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> Gemm::proposals(const Shape& shape, const Plan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owner(preference);
  check_lt(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                                sizeof kWorkspaceBytes),
           "cublasLtMatmulPreferenceSetAttribute");
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> results{};
  int found = 0;
  check_lt(
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.operation.get(), plan.w.get(), plan.x.get(), plan.out.get(),
                                     plan.out.get(), preference, kProposals, results.data(), &found),
      "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  if (algorithms.empty()) {
    fail("cublasLtMatmulAlgoGetHeuristic", "no algorithm for " + std::to_string(shape.rows) + " x " +
                                               std::to_string(shape.n) + " x " + std::to_string(shape.k));
  }
  return algorithms;
}

void Gemm::choose(const Stream& stream, const Shape& shape, Plan& plan, const Operands& operands) {
  const std::vector<cublasLtMatmulAlgo_t> algorithms = proposals(shape, plan);
  plan.algorithm = algorithms.front();
  if (algorithms.size() == 1) return;
  // The output may be what the product is added to: measure into another one.
  const DeviceBuffer<> out(pool_, shape.rows * shape.n * (shape.out == CUDA_R_32F ? 4 : 2));
  const Operands measured{operands.x, operands.w, out.data()};
  double least = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    const double seconds = measure_seconds(stream, pool_, device_, {.cold = true}, [&] {
                             run(stream, plan, algorithm, shape.accumulates, measured);
                           }).median;
    if (seconds < least) plan.algorithm = algorithm;
    least = std::min(least, seconds);
  }
}

void Gemm::run(const Stream& stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, bool accumulate,
               const Operands& o) const {
  const float one = 1, old = accumulate ? 1.0f : 0.0f;
  check_lt(cublasLtMatmul(handle_.get(), plan.operation.get(), &one, o.w, plan.w.get(), o.x, plan.x.get(), &old, o.out,
                          plan.out.get(), o.out, plan.out.get(), &algorithm, workspace_.data(), workspace_.size(),
                          stream.get()),
           "cublasLtMatmul");
}

template <class T, class Out>
void Gemm::multiply(const Stream& stream, const T* x, const T* w, std::size_t rows, std::size_t n, std::size_t k,
                    const Epilogue<T, Out>& epilogue, Out* out) {
  const bool accumulates = epilogue.residual != nullptr, biased = epilogue.bias != nullptr;
  if ((accumulates && (epilogue.residual != out || epilogue.relu)) || (biased && !std::is_same_v<T, Out>))
    throw InternalError("cuda: no such epilogue of a matrix product");
  const Shape shape{rows, n, k, kType<T>, kType<Out>, biased, epilogue.relu, accumulates};
  const auto known = plans_.find(shape);
  const std::shared_ptr<Plan> plan = known != plans_.end() ? known->second : make_plan(shape);
  if (biased) set(plan->operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
  if (known == plans_.end()) {
    choose(stream, shape, *plan, {x, w, out});
    plans_.emplace(shape, plan);
  }
  run(stream, *plan, plan->algorithm, accumulates, {x, w, out});
}

#define CSDSIM_INSTANTIATE(T, Out)                                                                       \
  template void Gemm::multiply(const Stream&, const T*, const T*, std::size_t, std::size_t, std::size_t, \
                               const Epilogue<T, Out>&, Out*);

CSDSIM_INSTANTIATE(__half, __half)
CSDSIM_INSTANTIATE(__half, float)
CSDSIM_INSTANTIATE(__nv_bfloat16, __nv_bfloat16)
CSDSIM_INSTANTIATE(__nv_bfloat16, float)

}  // namespace csdsim::host::cuda
