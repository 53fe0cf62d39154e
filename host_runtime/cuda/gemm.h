// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "host_runtime/cuda/device.h"
#include "host_runtime/cuda/memory.h"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

/// Asks cuBLASLt for the algorithms that its heuristics propose for a shape, runs each on the first operands and keeps
/// the fastest: recorded work must have run once before. For one stream: the workspace is shared.
class Gemm {
 public:
  Gemm(DevicePool& pool, const DeviceInfo& device);

  /// out [rows][n] = x [rows][k] w [n][k]^T, with its epilogue, accumulated in fp32. A residual is the output itself,
  /// without ReLU. T is __half or __nv_bfloat16, Out is T or float; float has no bias. CudaError if cuBLASLt has no
  /// algorithm for the shape.
  template <class T, class Out>
  void multiply(const Stream& stream, const T* x, const T* w, std::size_t rows, std::size_t n, std::size_t k,
                const Epilogue<T, Out>& epilogue, Out* out);

 private:
  struct Shape {
    std::size_t rows, n, k;
    cudaDataType in, out;
    bool biased, relu, accumulates;
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan;
  struct Operands {
    const void* x;
    const void* w;
    void* out;
  };

  std::shared_ptr<Plan> make_plan(const Shape& shape) const;
  std::vector<cublasLtMatmulAlgo_t> proposals(const Shape& shape, const Plan& plan) const;
  void choose(const Stream& stream, const Shape& shape, Plan& plan, const Operands& operands);
  void run(const Stream& stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, bool accumulate,
           const Operands& operands) const;

  DevicePool& pool_;
  const DeviceInfo& device_;
  std::unique_ptr<cublasLtContext, Destroy<cublasLtDestroy>> handle_;
  DeviceBuffer<> workspace_;
  std::map<Shape, std::shared_ptr<Plan>> plans_;
};

}  // namespace csdsim::host::cuda
