// As much of the CUDA runtime and of cuBLASLt as the backend calls, on the host: memory is memory, streams and events
// are those of streams.h.
#include <cublasLt.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "host_runtime/cuda/attention/choosing.h"
#include "host_runtime/cuda/kernels/prefill_hopper.cuh"
#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/prefill_hopper.h"

namespace {

cudaError_t last_error = cudaSuccess;

cudaError_t result(bool good) { return last_error = good ? cudaSuccess : cudaErrorInvalidValue; }

/// Pinned host memory by its start: [start, end). Never destroyed.
std::map<const char*, const char*>& pinned() {
  static auto* const ranges = new std::map<const char*, const char*>;
  return *ranges;
}
bool is_pinned(const void* pointer) {
  const auto* const at = static_cast<const char*>(pointer);
  auto after = pinned().upper_bound(at);
  return after != pinned().begin() && at < (--after)->second;
}

/// A copy of `rows` rows. Only between the device and pinned memory it is asynchronous: what is read from pageable
/// memory is read before the call returns, and what is written to it is written before.
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
               std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  std::shared_ptr<std::vector<char>> staged;
  if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {
    staged = std::make_shared<std::vector<char>>(width * rows);
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(staged->data() + row * width, static_cast<const char*>(from) + row * from_pitch, width);
    from = staged->data();
    from_pitch = width;
  }
  emulation::submit(
      stream,
      [=] {
        const auto kept = staged;
        for (std::size_t row = 0; row < rows; ++row)
          std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                      width);
      },
      emulation::time_to_copy(width * rows));
  if (kind == cudaMemcpyDeviceToHost && !is_pinned(to)) emulation::synchronise(stream);
}

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
  return result(!emulation::recording() && *pointer != nullptr);
}
cudaError_t cudaFree(void* pointer) {
  emulation::synchronise_device();
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  const cudaError_t status = cudaMalloc(pointer, bytes);
  const auto* const start = static_cast<const char*>(*pointer);
  if (status == cudaSuccess) pinned().emplace(start, start + bytes);
  return status;
}
cudaError_t cudaFreeHost(void* pointer) {
  pinned().erase(static_cast<const char*>(pointer));
  return cudaFree(pointer);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (to == nullptr || from == nullptr) return result(false);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes > 0) copy_rows(to, bytes, from, bytes, bytes, 1, kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return result(false);
  if (width > 0 && height > 0) copy_rows(to, to_pitch, from, from_pitch, width, height, kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  emulation::submit(stream, [=] { std::memset(to, value, bytes); });
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
                              cudaStream_t stream) {
  const Matrix ma = *reinterpret_cast<Matrix*>(a_layout), mb = *reinterpret_cast<Matrix*>(b_layout),
               md = *reinterpret_cast<Matrix*>(d_layout);
  if (ma.rows != mb.rows || md.rows != ma.cols || md.cols != mb.cols) return CUBLAS_STATUS_INVALID_VALUE;
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
        set_value(d, md.type, at, scale * static_cast<float>(sum) + before);
      }
    }
  };
  emulation::submit(stream, multiply, {2 * md.rows * md.cols * ma.rows});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

namespace csdsim::host::cuda {

// In place of sort_lists.cu, which needs CUB.
void sort_lists(const Stream& stream, DevicePool&, const float* scores, const std::uint32_t* indices, std::size_t,
                std::size_t segments, const int* begins, const int* ends, std::uint32_t* sorted) {
  emulation::submit(stream.get(), [=] {
    for (std::size_t s = 0; s < segments; ++s) {
      std::vector<int> order;
      for (int i = begins[s]; i < ends[s]; ++i) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
      for (std::size_t i = 0; i < order.size(); ++i) sorted[begins[s] + static_cast<int>(i)] = indices[order[i]];
    }
  });
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
