// The CPU backend: OpenBLAS for matrices, SIMD chosen at run time on fp16 rows for small batches. Other backends are
// tested against it.
#pragma once

#include "host_runtime/core/decoder/backend.h"

namespace csdsim::host {

/// Arithmetic is fp32. Matrices of fp16 and bf16 stay as they are in memory and are widened in registers. Up to
/// kRowwiseBatch rows every row is computed by itself, so its bits do not depend on the batch.
class CpuBackend : public Backend {
 public:
  static constexpr std::size_t kRowwiseBatch = 16;

  /// `threads` of OpenBLAS, a setting of the whole process; results are reproducible for a given number.
  explicit CpuBackend(int threads = 1);

  std::string_view name() const override { return "cpu"; }
  bool supports(Operator) const override { return true; }
  Weight load(const StoredTensor& tensor) override;
  Tensor allocate(std::size_t rows, std::size_t cols) override;
  void upload(std::span<const Half> values, Tensor& to) override;
  void download(const Tensor& from, std::span<Half> values) override;
  void download(const Tensor& from, std::span<float> values) override;
  void embedding(const Weight& table, std::span<const std::uint32_t> ids, Tensor& out) override;
  void linear(const Tensor& x, const Weight& w, const Weight* bias, Tensor& out) override;
  void layer_norm(const Tensor& x, const Weight& gamma, const Weight& beta, float epsilon, Tensor& out) override;
  void rms_norm(const Tensor& x, const Weight& gamma, float epsilon, Tensor& out) override;
  void rotate(Tensor& x, std::span<const std::uint32_t> positions, const Weight& inverse_frequencies,
              float magnitude) override;
  void relu(Tensor& x) override;
  void swiglu(Tensor& gate, const Tensor& up) override;
  void fatrelu(Tensor& gate, const Tensor& up, float threshold) override;
  void add(Tensor& x, const Tensor& y) override;
  void mask(Tensor& x, std::span<const std::uint8_t> kept) override;
  void round_to_half(Tensor& x) override;
  void select_rows(const Tensor& x, std::span<const std::uint32_t> rows, Tensor& out) override;
  void causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionShape shape,
                        std::span<const std::uint32_t> lengths, Tensor& out) override;
};

}  // namespace csdsim::host
