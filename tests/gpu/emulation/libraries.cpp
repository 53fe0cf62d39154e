// As much of cuBLASLt as the backend calls, on the host.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/gpu/emulation/streams.h"

namespace emulation {

std::vector<unsigned>& product_times() {
  static std::vector<unsigned> times{1};
  return times;
}

}  // namespace emulation

namespace {

struct Matrix {
  cudaDataType type;
  std::uint64_t rows, cols;
};

float value_at(const void* data, cudaDataType type, std::size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(data)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
}
void set_value(void* data, cudaDataType type, std::size_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else if (type == CUDA_R_16F) {
    static_cast<__half*>(data)[i] = __float2half_rn(value);
  } else {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
  }
}

std::vector<float> values_of(const void* data, const Matrix& matrix) {
  std::vector<float> values(matrix.rows * matrix.cols);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(data, matrix.type, i);
  return values;
}

struct Operation {
  cublasOperation_t transpose = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType bias_type = CUDA_R_32F;
  const void* bias = nullptr;
};

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t stride) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Matrix{type, rows, cols});
  return stride == static_cast<std::int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Matrix*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t, cudaDataType_t) {
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete reinterpret_cast<Operation*>(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  Operation& operation = *reinterpret_cast<Operation*>(handle);
  const auto take = [&](auto& to) {
    if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return take(operation.transpose);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) return take(operation.epilogue);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) return take(operation.bias_type);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) return take(operation.bias);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const std::vector<unsigned>& times = emulation::product_times();
  *found = std::min<int>(most, static_cast<int>(times.size()));
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algo.data[0] = times[static_cast<std::size_t>(i)];
  }
  return CUBLAS_STATUS_SUCCESS;
}
// The one form in use: a is transposed, all matrices are packed, columns first.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t handle, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*,
                              std::size_t, cudaStream_t stream) {
  const Matrix ma = *reinterpret_cast<Matrix*>(a_layout), mb = *reinterpret_cast<Matrix*>(b_layout),
               md = *reinterpret_cast<Matrix*>(d_layout);
  if (ma.rows != mb.rows || md.rows != ma.cols || md.cols != mb.cols) return CUBLAS_STATUS_INVALID_VALUE;
  const Operation operation = *reinterpret_cast<Operation*>(handle);
  if (operation.transpose != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool biased = (operation.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  const bool relu = (operation.epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
  if (biased && (operation.bias == nullptr || operation.bias_type != md.type)) return CUBLAS_STATUS_INVALID_VALUE;
  const float scale = *static_cast<const float*>(alpha), old = *static_cast<const float*>(beta);
  const auto multiply = [=] {
    const std::vector<float> left = values_of(a, ma), right = values_of(b, mb);
    for (std::size_t column = 0; column < md.cols; ++column) {
      for (std::size_t row = 0; row < md.rows; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k < ma.rows; ++k) {
          sum += double{left[row * ma.rows + k]} * double{right[column * mb.rows + k]};
        }
        const std::size_t at = column * md.rows + row;
        const float before = old == 0 ? 0.0f : old * value_at(d, md.type, at);
        float value = scale * static_cast<float>(sum) + before;
        if (biased) value += value_at(operation.bias, operation.bias_type, row);
        set_value(d, md.type, at, relu ? std::max(value, 0.0f) : value);
      }
    }
  };
  emulation::submit(stream, multiply, {algorithm->data[0] * 2 * md.rows * md.cols * ma.rows});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
