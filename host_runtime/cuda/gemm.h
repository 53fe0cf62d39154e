// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>

#include "host_runtime/cuda/memory.h"

namespace csdsim::host::cuda {

/// Keeps the algorithm that cuBLASLt's heuristics chose for every shape. For one stream: the workspace is shared.
class Gemm {
 public:
  explicit Gemm(DevicePool& pool);

  /// out [rows][n] = x [rows][k] w [n][k]^T, + out where `accumulate`; fp32 accumulation. T is __half or
  /// __nv_bfloat16, Out is T or float. CudaError if cuBLASLt has no algorithm for the shape.
  template <class T, class Out>
  void multiply(const Stream& stream, const T* x, const T* w, std::size_t rows, std::size_t n, std::size_t k,
                bool accumulate, Out* out);

 private:
  struct Shape {
    std::size_t rows, n, k;
    cudaDataType in, out;
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan;

  const Plan& plan(const Shape& shape);

  std::unique_ptr<cublasLtContext, Destroy<cublasLtDestroy>> handle_;
  DeviceBuffer<> workspace_;
  std::map<Shape, std::shared_ptr<const Plan>> plans_;
};

}  // namespace csdsim::host::cuda
