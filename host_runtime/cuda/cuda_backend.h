// The operators of a decoder on a CUDA GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "host_runtime/core/decoder/backend.h"
#include "host_runtime/cuda/cudnn_attention.h"
#include "host_runtime/cuda/device.h"
#include "host_runtime/cuda/gemm.h"
#include "host_runtime/cuda/host_copies.h"
#include "host_runtime/cuda/memory.h"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

/// Activations in T (__half or __nv_bfloat16).
template <class T>
struct CudaTensor final : Storage {
  DeviceBuffer<T> values;
};

/// A matrix in T; a vector in fp32 too, as norms, biases and rotation read it.
template <class T>
struct CudaWeight final : Storage {
  DeviceBuffer<T> values;
  DeviceBuffer<float> full;
};

/// What this process uses on the current GPU: a stream, a memory pool in the order of that stream, a handle each of
/// cuBLASLt and cuDNN, and streams for copies between GPU and host.
class Context {
 public:
  /// UserError if there is no GPU.
  Context() : device(require_device()), pool(stream), gemm(pool, device), cudnn(pool), copies(stream) {}

  DeviceInfo device;
  Stream stream;
  DevicePool pool;
  Gemm gemm;
  CudnnAttention cudnn;
  HostCopies copies;
};

/// Attention of prompts: by cuDNN where it is installed and has a kernel for the shape, by an own kernel otherwise.
template <class T>
void attend_prompts(Context& context, const PrefillQuery<T>& query) {
  if (context.cudnn.run(context.stream, context.device, query)) return;
  prefill_attention(context.stream, context.device, query);
}

/// Loads the values of a stored tensor in T, or in fp32.
template <class T>
DeviceBuffer<T> load_values(Context& context, const StoredTensor& tensor);

/// Activations and matrices in T, sums in fp32. Up to kGemvRows rows use a kernel of our own, more rows cuBLASLt;
/// the bits of a row depend on the number of rows. CudaError when a call into CUDA fails.
template <class T>
class CudaBackend final : public Backend {
 public:
  /// UserError if T is bf16 and the GPU older than sm_80. `context` must outlive the backend and all it made.
  explicit CudaBackend(Context& context);

  std::string_view name() const override { return "cuda"; }
  bool supports(Operator op) const override { return op != Operator::mask && op != Operator::fatrelu; }
  /// Heads of up to 256 elements; importance scores need a multiple of 4.
  bool supports(const MethodOptions& method, const ModelConfig& config) const override;
  /// Attention on the GPU, with the KV cache in its memory; queries are fp16 whatever the precision.
  std::unique_ptr<MethodAttention> make_attention(const ModelConfig& config, ConfiguredMethod method,
                                                  QueryPrecision precision) override;
  Weight load(const StoredTensor& tensor) override;
  Tensor allocate(std::size_t rows, std::size_t cols) override;
  void upload(std::span<const Half> values, Tensor& to) override;
  void download(const Tensor& from, std::span<Half> values) override;
  void download(const Tensor& from, std::span<float> values) override;
  std::unique_ptr<Download> start_download(const Tensor& from) override;
  /// Times of products and attention, and of whatever a FusedDecoder computes.
  std::optional<DeviceTimes> device_times() override { return context_.copies.times(); }
  void embedding(const Weight& table, std::span<const std::uint32_t> ids, Tensor& out) override;
  void linear(const Tensor& x, const Weight& w, const Weight* bias, Tensor& out) override;
  void layer_norm(const Tensor& x, const Weight& gamma, const Weight& beta, float epsilon, Tensor& out) override;
  void rms_norm(const Tensor& x, const Weight& gamma, float epsilon, Tensor& out) override;
  void rotate(Tensor& x, std::span<const std::uint32_t> positions, const Weight& inverse_frequencies,
              float magnitude) override;
  void relu(Tensor& x) override;
  void swiglu(Tensor& gate, const Tensor& up) override;
  void add(Tensor& x, const Tensor& y) override;
  void round_to_half(Tensor& x) override;
  void select_rows(const Tensor& x, std::span<const std::uint32_t> rows, Tensor& out) override;
  /// Heads of up to 256 elements.
  void causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionShape shape,
                        std::span<const std::uint32_t> lengths, Tensor& out) override;

 private:
  DeviceBuffer<std::uint32_t> on_device(std::span<const std::uint32_t> values);

  Context& context_;
};

}  // namespace csdsim::host::cuda
