// Attention of prompts by cuDNN, where it is installed.
#pragma once

#include <map>
#include <memory>

#include "host_runtime/cuda/cudnn_plan.h"
#include "host_runtime/cuda/memory.h"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

/// Keeps a plan per shape. Lengths are rounded up, so that prompts of many lengths share a few plans: a plan takes
/// seconds to build.
class CudnnAttention {
 public:
  explicit CudnnAttention(DevicePool& pool) : pool_(pool) {}

  /// Runs the query; false if cuDNN cannot, then nothing has happened.
  template <class T>
  bool run(const Stream& stream, const DeviceInfo& device, const PrefillQuery<T>& query);

 private:
  const CudnnPlan* plan(const CudnnShape& shape, const DeviceInfo& device);

  DevicePool& pool_;
  std::map<CudnnShape, std::unique_ptr<CudnnPlan>> plans_;  ///< null where cuDNN has no kernel
};

}  // namespace csdsim::host::cuda
