// Helpers to measure operators: artificial inputs of any size, and the median of runs timed by CUDA events.
#pragma once

#include <functional>
#include <vector>

#include "host_runtime/cuda/cuda_backend.h"
#include "host_runtime/cuda/operators.h"
#include "host_runtime/cuda/timing.h"

namespace csdsim::host::cuda {

/// Repeating numbers between -1 and 1: with zeros the GPU would draw less power and raise its clocks.
DeviceBuffer<__half> made_up_values(Context& context, std::size_t count);

DeviceBuffer<std::uint32_t> on_device(Context& context, const std::vector<std::uint32_t>& values);

/// `work` over `runs` runs after `warm_ups`, see measure_seconds().
MeasuredSeconds seconds_of(Context& context, const std::function<void()>& work, int warm_ups, int runs, bool cold);
/// As an operator of a simulation is measured: from a cold L2 cache.
MeasuredSeconds operator_seconds(Context& context, const std::function<void()>& work);

/// A copy between pinned host memory and device memory.
MeasuredSeconds copy_seconds(Context& context, std::size_t bytes, bool to_device);
/// Bytes per second of copies from pinned host memory, and operations per second of products of `rows` rows of `k`
/// activations with n weights each (at least one tile of rows).
struct MeasuredRates {
  double link = 0, gemm = 0;
};
MeasuredRates recomputation_rates(Context& context, std::uint32_t k, std::uint32_t n, std::size_t rows);

/// Attention of one token of each of `sequences` over full caches.
class DecodeWork {
 public:
  DecodeWork(Context& context, std::size_t sequences, const CacheShape& shape);
  void run(std::uint32_t splits = 0) const;

 private:
  Context& context_;
  CacheShape shape_;
  DeviceBuffer<__half> q_, keys_, values_, out_;
  DeviceBuffer<std::uint32_t> lengths_;
  DecodeQuery<__half> query_;
};

/// Causal attention over one sequence; as many KV heads as heads.
class PrefillWork {
 public:
  PrefillWork(Context& context, std::uint32_t tokens, std::uint32_t heads, std::uint32_t d);
  /// As a prompt of a model would be computed.
  void run() const { attend_prompts(context_, query_); }
  void run(PrefillKernel kernel) const;
  /// False if cuDNN cannot.
  bool run_by_cudnn() const { return context_.cudnn.run(context_.stream, context_.device, query_); }

 private:
  Context& context_;
  DeviceBuffer<__half> q_, k_, v_, out_;
  DeviceBuffer<std::uint32_t> starts_;
  PrefillQuery<__half> query_;
};

}  // namespace csdsim::host::cuda
