// A decoder, one operation at a time: a caller (a plain loop, or an executor on simulated time) drives it layer by
// layer and does the attention of decode steps wherever it likes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "host_runtime/core/decoder/backend.h"
#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// The residual stream of a batch of tokens: [tokens][width], with each token's position in its sequence.
struct HiddenStates {
  Tensor values;
  std::vector<TokenIndex> positions;
  /// Length of the longest sequence of the batch, on which dynamic rotary positions depend. As in transformers, cached
  /// keys are not rotated again when it grows.
  std::uint32_t context = 0;
};

/// What attention of one layer takes for a batch of tokens: q [tokens][heads * head_dim], k and v
/// [tokens][kv_heads * head_dim]. k and v are rounded to fp16, the format of the KV cache, so that whoever attends uses
/// the same numbers; rotary positions are applied to q and k. q has the backend's precision; who sends it to a drive
/// rounds it to fp16. q is not scaled: 1/sqrt(head_dim) is applied to the logits.
struct AttentionInputs {
  Tensor q;
  Tensor k;
  Tensor v;
};

/// k and v of AttentionInputs.
struct KeysValues {
  Tensor k;
  Tensor v;
};

/// Precision of k, v and the attention output. fp16 is what caches and drives hold. fp32 leaves them as computed: only
/// for comparing a prefill with another implementation.
enum class KvPrecision : std::uint8_t { f16, f32 };

/// Which neurons of a feed-forward block take part: [tokens][ffn], or [ffn] for all tokens alike. 0: the neuron's inner
/// activation is set to zero.
struct NeuronMasks {
  std::vector<std::uint8_t> kept;
};

/// The matrices of a feed-forward block as checkpoints store them: gate and up [ffn][width], down [width][ffn]. `gate`
/// is empty where the block has none. Biases stay with the decoder.
struct FeedForwardWeights {
  Weight gate;
  Weight up;
  Weight down;
};

/// One layer of a batch is attention_inputs, then attention, then finish_layer. Tokens of several sequences, of any
/// lengths, stand one after another in the rows of a batch.
class Decoder {
 public:
  virtual ~Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelConfig& config() const { return config_; }
  Backend& backend() const { return backend_; }

  /// Embeds `tokens` at `positions` (same length). UserError for an id outside the vocabulary or a position at or
  /// beyond longest_context().
  HiddenStates embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const;

  /// Normalisation and the Q, K, V projections of `layer`.
  virtual AttentionInputs attention_inputs(LayerId layer, const HiddenStates& hidden) const = 0;

  /// K and V alone, from the same hidden states. Equal to those of attention_inputs() for the same batch of rows, bit
  /// for bit; whether they are for the same rows in another batch is up to the backend.
  virtual KeysValues keys_values(LayerId layer, const HiddenStates& hidden) const = 0;

  /// Dense causal attention on the backend over whole sequences: `lengths` says how many rows each has. The result is
  /// rounded to fp16, as every attention output is.
  Tensor prefill_attention(const AttentionInputs& inputs, std::span<const std::uint32_t> lengths) const;

  /// Output projection, residuals and feed-forward block of `layer`; `attention_output` is [tokens][heads * head_dim].
  /// The same as finish_attention(), then feed_forward() with feed_forward_inputs().
  void finish_layer(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const;

  /// Output projection and residual of the attention block; `attention_output` is [tokens][heads * head_dim].
  virtual void finish_attention(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const = 0;

  /// What enters the feed-forward block, [tokens][width]: the normed hidden states after finish_attention().
  virtual Tensor feed_forward_inputs(LayerId layer, const HiddenStates& hidden) const = 0;

  /// What the neurons of the feed-forward block yield for `inputs`, [tokens][ffn]: the activation function, times the
  /// up projection where the block has a gate. 0 for a neuron that does not fire. With `weights` instead of the
  /// decoder's own.
  virtual Tensor neuron_activations(LayerId layer, const Tensor& inputs,
                                    const FeedForwardWeights* weights = nullptr) const = 0;

  /// hidden += the feed-forward block of `inputs`, which are feed_forward_inputs(). With masks, neurons that do not
  /// take part count as if they did not fire; masks that keep all neurons that fire give the same bits as no masks.
  /// With `weights` instead of the decoder's own: a neuron whose row of `down` is zero contributes nothing. UserError
  /// if the backend cannot mask, InternalError for masks of another shape.
  void feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& inputs, const NeuronMasks* masks = nullptr,
                    const FeedForwardWeights* weights = nullptr) const;

  /// The end of feed_forward(): hidden += the block's output [tokens][width], its bias included.
  virtual void add_feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& output) const = 0;

  /// Logits [rows.size()][vocab] of the chosen rows of `hidden` after the last layer.
  virtual std::vector<float> logits(const HiddenStates& hidden, std::span<const std::uint32_t> rows) const = 0;
  /// Logits of every row.
  std::vector<float> logits(const HiddenStates& hidden) const;

  /// Rows in fp16 on the host, and back: exact for k, v and attention outputs; q is rounded.
  std::vector<Half> to_host(const Tensor& tensor) const;
  /// Rows of k and of v of a layer on the host. UserError naming the layer and the row if a value is infinite or not a
  /// number: no attention over it means anything.
  std::vector<Half> keys_to_host(LayerId layer, const Tensor& k) const {
    return finite(layer, "K", to_host(k), k.cols);
  }
  std::vector<Half> values_to_host(LayerId layer, const Tensor& v) const {
    return finite(layer, "V", to_host(v), v.cols);
  }
  /// Rows that have arrived on the host, after the same check; `name` is K or V.
  static std::vector<Half> finite(LayerId layer, std::string_view name, std::vector<Half> rows, std::size_t cols);
  /// Rows on the host as they are.
  std::vector<float> to_host_float(const Tensor& tensor) const;
  Tensor from_host(std::span<const Half> values, std::size_t cols) const;

 protected:
  Decoder(const ModelConfig& config, Backend& backend, KvPrecision kv) : config_(config), backend_(backend), kv_(kv) {}

  /// Rounds k and v as the precision says.
  void round_kv(Tensor& k, Tensor& v) const;

 private:
  /// hidden += the rest of the feed-forward block after its neurons.
  virtual void finish_feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& inner,
                                   const FeedForwardWeights* own) const {
    add_feed_forward(layer, hidden, project_down(layer, inner, own));
  }
  /// The down projection, with its bias. `inner` is [tokens][ffn]; `own` may be null.
  virtual Tensor project_down(LayerId layer, const Tensor& inner, const FeedForwardWeights* own) const = 0;
  virtual HiddenStates do_embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const = 0;

  ModelConfig config_;
  Backend& backend_;
  KvPrecision kv_;
};

/// Makes the decoder of `config.architecture`, loading its weights into `backend`, which must outlive it.
/// UserError if a tensor is missing or has another shape than `config` says, the backend lacks an operator, or FATReLU
/// is asked of a network without a gate.
std::unique_ptr<Decoder> make_decoder(const ModelConfig& config, const WeightSource& weights, Backend& backend,
                                      KvPrecision kv = KvPrecision::f16);

}  // namespace csdsim::host
