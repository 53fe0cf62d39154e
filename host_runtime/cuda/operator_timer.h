// Times of work of a class and size on the present GPU.
#pragma once

#include "host_runtime/core/plan/operation.h"
#include "host_runtime/cuda/cuda_backend.h"
#include "host_runtime/cuda/timing.h"

namespace csdsim::host::cuda {

/// Runs the kernels of the backend, in fp16, on shapes that have as many operations and bytes as the work: for work
/// that is no operator of a layer (see LayerTimer). Products are square, `launches` of them; attention has heads of 128
/// elements; it is a prompt if it does more than 64 operations per byte, otherwise single tokens.
class OperatorTimer {
 public:
  explicit OperatorTimer(Context& context) : context_(context) {}
  /// A burst of `launches` kernels counts as one.
  MeasuredSeconds seconds(const ComputeWork& work);

 private:
  MeasuredSeconds product(const ComputeWork& work);
  MeasuredSeconds prompt_attention(const ComputeWork& work);
  MeasuredSeconds token_attention(const ComputeWork& work);
  MeasuredSeconds elementwise(const ComputeWork& work);

  Context& context_;
};

}  // namespace csdsim::host::cuda
