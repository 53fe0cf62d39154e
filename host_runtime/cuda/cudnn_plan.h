// Attention of prompts by cuDNN: a kernel that the library builds for one shape. cuDNN is loaded at run time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "host_runtime/cuda/device.h"
#include "host_runtime/cuda/stream.h"

namespace csdsim::host::cuda {

/// What a plan is made for: up to `longest` tokens of each of `sequences` sequences, whose rows are *_stride elements
/// apart. Queries, keys, values and output are fp16 or bf16.
struct CudnnShape {
  bool bf16 = false;
  std::int64_t sequences = 0, longest = 0, heads = 0, kv_heads = 0, d = 0;
  std::int64_t q_stride = 0, kv_stride = 0, out_stride = 0;
  auto operator<=>(const CudnnShape&) const = default;
};

/// Where the operands are, all on the device. The rows of sequence i begin q_offsets[i], kv_offsets[i] and
/// out_offsets[i] elements after the start; [sequences + 1] each.
struct CudnnOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  const std::int64_t* q_offsets = nullptr;
  const std::int64_t* kv_offsets = nullptr;
  const std::int64_t* out_offsets = nullptr;
  const std::int32_t* lengths = nullptr;  ///< [sequences]
};

/// Dense causal attention, scaled by 1/sqrt(d).
class CudnnPlan {
 public:
  virtual ~CudnnPlan() = default;
  /// Device memory that run() needs.
  virtual std::size_t workspace_bytes() const = 0;
  /// CudaError if cuDNN fails.
  virtual void run(const Stream& stream, const CudnnOperands& operands, void* workspace) const = 0;
};

/// Null if this program was built without cuDNN's headers, cuDNN is not installed, or it has no kernel for the shape on
/// this GPU.
std::unique_ptr<CudnnPlan> plan_with_cudnn(const CudnnShape& shape, const DeviceInfo& device);

}  // namespace csdsim::host::cuda
