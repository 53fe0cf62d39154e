// As much of the CUDA runtime and of cuBLASLt as the backend calls, on the host: memory is memory, streams do their
// work at once, a graph is a list of what was submitted.
#include <cublasLt.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "host_runtime/cuda/attention/choosing.h"
#include "host_runtime/cuda/kernels/prefill_hopper.cuh"
#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/prefill_hopper.h"

namespace {

cudaError_t last_error = cudaSuccess;

cudaError_t result(bool good) { return last_error = good ? cudaSuccess : cudaErrorInvalidValue; }

using WorkList = std::vector<std::function<void()>>;

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

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "emulated GPU");
  p->major = 9;
  p->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "emulated error"; }
const char* cudaGetErrorName(cudaError_t) { return "emulated"; }

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  // What new memory holds is not known: NaN in every type.
  if (*pointer != nullptr) std::memset(*pointer, 0xFF, bytes);
  return result(emulation::recording() == nullptr && *pointer != nullptr);
}
cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) { return cudaMalloc(pointer, bytes); }
cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (to == nullptr || from == nullptr) return result(false);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  emulation::submit([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t) {
  if (width > to_pitch || width > from_pitch) return result(false);
  emulation::submit([=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return result(emulation::recording() == nullptr); }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  emulation::recording() = new WorkList;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(emulation::recording(), nullptr));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new WorkList(*reinterpret_cast<WorkList*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<WorkList*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<WorkList*>(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  for (const auto& work : *reinterpret_cast<WorkList*>(executable)) work();
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  emulation::submit([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

// Time stands still.
cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

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
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete reinterpret_cast<int*>(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                              std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
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
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t*,
                                              int* found) {
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
// The one form in use: a is transposed, all matrices are packed, columns first.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*, std::size_t,
                              cudaStream_t) {
  const Matrix ma = *reinterpret_cast<Matrix*>(a_layout), mb = *reinterpret_cast<Matrix*>(b_layout),
               md = *reinterpret_cast<Matrix*>(d_layout);
  if (ma.rows != mb.rows || md.rows != ma.cols || md.cols != mb.cols) return CUBLAS_STATUS_INVALID_VALUE;
  const float scale = *static_cast<const float*>(alpha), old = *static_cast<const float*>(beta);
  emulation::submit([=] {
    for (std::size_t column = 0; column < md.cols; ++column) {
      for (std::size_t row = 0; row < md.rows; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k < ma.rows; ++k) {
          sum += double{value_at(a, ma.type, row * ma.rows + k)} * double{value_at(b, mb.type, column * mb.rows + k)};
        }
        const std::size_t at = column * md.rows + row;
        const float before = old == 0 ? 0.0f : old * value_at(d, md.type, at);
        set_value(d, md.type, at, scale * static_cast<float>(sum) + before);
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

namespace csdsim::host::cuda {

// In place of sort_lists.cu, which needs CUB.
void sort_lists(const Stream&, DevicePool&, const float* scores, const std::uint32_t* indices, std::size_t,
                std::size_t segments, const int* begins, const int* ends, std::uint32_t* sorted) {
  for (std::size_t s = 0; s < segments; ++s) {
    std::vector<int> order;
    for (int i = begins[s]; i < ends[s]; ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
    for (std::size_t i = 0; i < order.size(); ++i) sorted[begins[s] + static_cast<int>(i)] = indices[order[i]];
  }
}

// In place of prefill_hopper.cu, which asks the driver for tensor maps.
template <class T>
void prefill_hopper(const Stream& stream, const PrefillQuery<T>& q) {
  const auto map = [&](const T* values, std::uint32_t heads, std::size_t stride) {
    return TensorMap{reinterpret_cast<const std::uint16_t*>(values), stride, q.d, heads, q.rows, kHopperTile};
  };
  const HopperArguments<T> arguments{q.out, q.starts, q.out_stride, q.heads / q.kv_heads,
                                     1.4426950408889634f / std::sqrt(static_cast<float>(q.d))};
  launch("prefill_hopper", prefill_hopper_kernel<T>,
         dim3((q.longest + kHopperTile - 1) / kHopperTile, q.heads, static_cast<unsigned>(q.sequences)), kHopperThreads,
         kHopperSharedBytes, stream, map(q.q, q.heads, q.q_stride), map(q.k, q.kv_heads, q.kv_stride),
         map(q.v, q.kv_heads, q.kv_stride), arguments);
}
template void prefill_hopper(const Stream&, const PrefillQuery<__half>&);
template void prefill_hopper(const Stream&, const PrefillQuery<__nv_bfloat16>&);

}  // namespace csdsim::host::cuda
