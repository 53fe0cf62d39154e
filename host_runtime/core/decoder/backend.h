// The operators that a decoder needs from a processor. Activations and weights are opaque handles, so that they may
// live in another memory than the host's; only fp16 rows (what travels to a drive) and logits come back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/fp16.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/attention/attention_provider.h"
#include "host_runtime/core/model/weight_source.h"

namespace csdsim::host {

/// Memory that a backend owns; each backend derives its own.
class Storage {
 public:
  virtual ~Storage() = default;
};

/// Activations [rows][cols] in a backend's memory and format.
struct Tensor {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::unique_ptr<Storage> storage;
};

/// Rows of a tensor that are on their way to the host, in fp16. The tensor must exist and keep its values until they
/// have arrived, or until this object is gone.
class Download {
 public:
  virtual ~Download() = default;
  /// Returns when they have arrived. Valid as long as this object.
  virtual std::span<const Half> wait() = 0;
};

/// What a processor with a memory of its own has done so far, by its own clock, and how long the host has waited for
/// it.
struct DeviceTimes {
  double compute_s = 0;
  double copies_in_s = 0, copies_out_s = 0;  ///< rows of activations, to the processor and from it
  std::uint64_t bytes_in = 0, bytes_out = 0;
  double host_waited_s = 0;
};

/// A parameter [rows][cols] (a vector has one row) in a backend's memory and format.
struct Weight {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::unique_ptr<Storage> storage;
};

/// Operators that a model family may ask for. A backend that lacks one is refused when the decoder is made.
enum class Operator : std::uint8_t {
  embedding,
  linear,
  layer_norm,
  rms_norm,
  rotate,
  relu,
  swiglu,
  add,
  causal_attention,
  mask,
  fatrelu
};
inline constexpr std::size_t kOperators = 11;
constexpr std::array<std::string_view, kOperators> kOperatorNames{
    "embedding", "linear", "layer_norm",       "rms_norm", "rotate", "relu",
    "swiglu",    "add",    "causal_attention", "mask",     "fatrelu"};

/// Head counts of an attention operator; q is [tokens][heads * head_dim], k and v are [tokens][kv_heads * head_dim].
struct AttentionShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
};

/// A processor. Shapes are preconditions (InternalError). Every operator computes a row from that row's inputs only;
/// whether the bits of a row depend on the number of rows is up to the backend.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual bool supports(Operator op) const = 0;
  /// True if make_attention() has the method for the heads of this model.
  virtual bool supports(const MethodOptions&, const ModelConfig&) const { return true; }

  /// Decoding attention by a configured method where the backend computes; as it stands here, on the host's processor.
  /// The backend must outlive it. UserError if the method is not supported.
  virtual std::unique_ptr<MethodAttention> make_attention(const ModelConfig& config, ConfiguredMethod method,
                                                          QueryPrecision precision);

  /// Copies a stored tensor of rank 1 or 2 into the backend.
  virtual Weight load(const StoredTensor& tensor) = 0;
  /// Activations with unspecified contents.
  virtual Tensor allocate(std::size_t rows, std::size_t cols) = 0;

  virtual void upload(std::span<const Half> values, Tensor& to) = 0;
  virtual void download(const Tensor& from, std::span<Half> values) = 0;
  virtual void download(const Tensor& from, std::span<float> values) = 0;
  /// Starts a download beside whatever is computed next. Null where the rows are in the host's memory anyway.
  virtual std::unique_ptr<Download> start_download(const Tensor& /*from*/) { return nullptr; }
  /// Nothing for a processor that has the host's memory.
  virtual std::optional<DeviceTimes> device_times() { return std::nullopt; }

  /// out[i] = table[ids[i]]. Precondition: ids are rows of the table.
  virtual void embedding(const Weight& table, std::span<const std::uint32_t> ids, Tensor& out) = 0;
  /// out = x w^T (+ bias); w is [out.cols][x.cols] as checkpoints store it; bias may be null.
  virtual void linear(const Tensor& x, const Weight& w, const Weight* bias, Tensor& out) = 0;
  /// out = (x - mean) / sqrt(variance + epsilon) * gamma + beta, row by row.
  virtual void layer_norm(const Tensor& x, const Weight& gamma, const Weight& beta, float epsilon, Tensor& out) = 0;
  /// out = x / sqrt(mean of squares + epsilon) * gamma, row by row.
  virtual void rms_norm(const Tensor& x, const Weight& gamma, float epsilon, Tensor& out) = 0;
  /// Rotary positions, in place. x is [tokens][heads * head_dim] with head_dim twice the columns of
  /// `inverse_frequencies` (a vector f); in every head of row t, elements i and i + head_dim / 2 turn by
  /// positions[t] * f[i], a product in fp32, and are multiplied by `magnitude`.
  virtual void rotate(Tensor& x, std::span<const std::uint32_t> positions, const Weight& inverse_frequencies,
                      float magnitude) = 0;
  virtual void relu(Tensor& x) = 0;
  /// gate = gate * sigmoid(gate) * up.
  virtual void swiglu(Tensor& gate, const Tensor& up) = 0;
  /// As swiglu() where gate * sigmoid(gate) is at least `threshold`, else 0. Precondition: supports(Operator::fatrelu).
  virtual void fatrelu(Tensor& gate, const Tensor& up, float threshold);
  /// x += y.
  virtual void add(Tensor& x, const Tensor& y) = 0;
  /// Sets x to 0 where `kept` is 0; `kept` is [rows][cols], or [cols] for all rows alike. Precondition:
  /// supports(Operator::mask).
  virtual void mask(Tensor& x, std::span<const std::uint8_t> kept);
  /// Rounds every value to the nearest fp16.
  virtual void round_to_half(Tensor& x) = 0;
  /// out[i] = x[rows[i]].
  virtual void select_rows(const Tensor& x, std::span<const std::uint32_t> rows, Tensor& out) = 0;
  /// Dense causal attention, logits scaled by 1/sqrt(head_dim), over sequences that follow one another in the rows:
  /// `lengths` adds up to the rows of q, k, v and out.
  virtual void causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionShape shape,
                                std::span<const std::uint32_t> lengths, Tensor& out) = 0;
};

}  // namespace csdsim::host
