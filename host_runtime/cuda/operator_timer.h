// How long work of a class and size takes on the present GPU.
#pragma once

#include <functional>

#include "host_runtime/core/planner/operation.h"
#include "host_runtime/cuda/cuda_backend.h"

namespace csdsim::host::cuda {

/// Runs the kernels of the backend, in fp16, on shapes that have as many operations and bytes as the work: a planner's
/// work states no more than these. Products are square, `launches` of them; attention has heads of 128 elements; it is
/// a prompt if it does more than 64 operations per byte, otherwise single tokens.
class OperatorTimer {
 public:
  explicit OperatorTimer(Context& context) : context_(context) {}
  /// Seconds: the median of several runs, each from a cold L2 cache; a burst of `launches` kernels counts as one.
  double seconds(const ComputeWork& work);

 private:
  double median(const std::function<void()>& work);
  double product(const ComputeWork& work);
  double prompt_attention(const ComputeWork& work);
  double token_attention(const ComputeWork& work);
  double elementwise(const ComputeWork& work);

  Context& context_;
};

}  // namespace csdsim::host::cuda
