#include "host_runtime/cuda/decoder_parts.h"

#include <span>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/decoder/rotary.h"

namespace csdsim::host::cuda {
namespace {

// OPT's learned position table starts with two rows that are never used (fairseq's padding offset).
constexpr std::uint32_t kPositionOffset = 2;

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Elements of 16 bits that fill whole pieces of 256 bytes.
constexpr std::size_t aligned(std::size_t elements) { return (elements + 127) / 128 * 128; }

bool is_gated(const ModelConfig& config) { return config.architecture != Architecture::opt; }

}  // namespace

template <class T>
std::size_t LayerWeights<T>::block_elements() const {
  std::size_t elements = 0;
  for (const Matrix<T>* matrix : {&qkv, &out, &up, &down}) elements += aligned(matrix->elements());
  return elements;
}

template <class T>
void LayerWeights<T>::move_to(const T* copy) {
  for (Matrix<T>* matrix : {&qkv, &out, &up, &down}) {
    matrix->weight = copy;
    copy += aligned(matrix->elements());
  }
}

template <class T>
Activations<T>::Activations(DevicePool& pool, const ModelConfig& c, std::size_t rows)
    : normed(pool, rows * c.width),
      qkv(pool, rows * (c.q_width() + 2 * c.kv_width())),
      attended(pool, rows * c.q_width()),
      up(pool, is_gated(c) ? 2 * rows * c.ffn : 0),
      inner(pool, rows * c.ffn) {}

/// Reads tensors by the names of Hugging Face checkpoints.
template <class T>
class DecoderParts<T>::Loader {
 public:
  Loader(Context& context, const ModelConfig& config, const WeightSource& weights, std::set<std::string>& loaded)
      : context_(context),
        config_(config),
        weights_(weights),
        loaded_(loaded),
        prefix_(tensor_prefix(weights, is_gated(config) ? "" : "decoder.", "embed_tokens.weight")) {}

  std::string full(const std::string& name) const { return prefix_ + name; }

  DeviceBuffer<T> table(const std::string& name, std::uint64_t rows, std::uint64_t cols) const {
    return load_values<T>(context_, tensor(name, {rows, cols}));
  }
  template <class V = float>
  DeviceBuffer<V> vector(const std::string& name, std::uint64_t size) const {
    return load_values<V>(context_, tensor(name, {size}));
  }
  Norm norm(const std::string& name) const {
    return {vector(name + ".weight", config_.width),
            is_gated(config_) ? DeviceBuffer<float>() : vector(name + ".bias", config_.width)};
  }
  /// The named projections of m.cols inputs, each with its number of outputs, one above the other.
  using Parts = std::vector<std::pair<std::string, std::uint32_t>>;
  void matrix(const Parts& parts, const Matrix<T>& m, T* weight, T* bias) const {
    std::size_t row = 0;
    for (const auto& [name, rows] : parts) {
      copy(table(name + ".weight", rows, m.cols), weight + row * m.cols);
      if (bias != nullptr) copy(vector<T>(name + ".bias", rows), bias + row);
      row += rows;
    }
  }

 private:
  StoredTensor tensor(const std::string& name, const std::vector<std::uint64_t>& shape) const {
    const StoredTensor stored = weights_.tensor(name);
    if (stored.shape != shape) {
      throw UserError(weights_.description() + ": tensor '" + name + "' has shape " + shape_text(stored.shape) +
                      ", config.json implies " + shape_text(shape));
    }
    loaded_.insert(name);
    return stored;
  }
  template <class V>
  void copy(const DeviceBuffer<V>& from, V* to) const {
    CSDSIM_CUDA(
        cudaMemcpyAsync(to, from.data(), from.size() * sizeof(V), cudaMemcpyDeviceToDevice, context_.stream.get()));
  }

  Context& context_;
  const ModelConfig& config_;
  const WeightSource& weights_;
  std::set<std::string>& loaded_;
  std::string prefix_;
};

template <class T>
std::string DecoderParts<T>::unsupported(const ModelConfig& config) {
  if (config.head_dim > 256 || config.head_dim % 2 != 0)
    return "the cuda backend takes even heads of up to 256 elements, not " + std::to_string(config.head_dim);
  if (!config.norm_first || !config.final_norm || config.embedding_width)
    return "OPT with norms after its blocks, without the final norm or with projected embeddings (350m) runs layer by "
           "layer only: use another --method or --attention drive, or the cpu backend";
  return "";
}

template <class T>
DecoderParts<T>::DecoderParts(Context& context, const ModelConfig& config, const WeightSource& weights)
    : context_(context), config_(config), weights_(weights) {
  if (const std::string reason = unsupported(config); !reason.empty()) throw UserError(reason);
  const Loader load(context, config_, weights, loaded_);
  token_table_ = load.table(load.full("embed_tokens.weight"), config.vocab, config.width);
  head_ = {token_table_.data(), nullptr, config.vocab, config.width};
  if (!gated()) {
    position_table_ = load.table(load.full("embed_positions.weight"),
                                 std::uint64_t{config.max_positions} + kPositionOffset, config.width);
  } else {
    const std::vector<float> values = inverse_frequencies(config.rotary, config.head_dim);
    frequency_ =
        load_values<float>(context, {ElementType::f32, {values.size()}, std::as_bytes(std::span<const float>(values))});
  }
  if (!config.tied_embeddings) {
    own_head_ = load.table("lm_head.weight", config.vocab, config.width);
    head_.weight = own_head_.data();
  }
  final_norm_ = load.norm(load.full(gated() ? "norm" : "final_layer_norm"));
  if (config.tied_embeddings && check_tied(weights, load.full("embed_tokens.weight"))) loaded_.insert("lm_head.weight");
}

template <class T>
LayerWeights<T> DecoderParts<T>::load_layer(std::uint32_t index) const {
  const ModelConfig& c = config_;
  const Loader load(context_, c, weights_, loaded_);
  const bool opt = !gated(), qkv_bias = opt || c.qkv_biases();
  const std::string layer = load.full("layers." + std::to_string(index) + "."), attention = layer + "self_attn.";
  const typename Loader::Parts qkv{
      {attention + "q_proj", c.q_width()}, {attention + "k_proj", c.kv_width()}, {attention + "v_proj", c.kv_width()}},
      out{{attention + (opt ? "out_proj" : "o_proj"), c.width}},
      up = opt ? typename Loader::Parts{{layer + "fc1", c.ffn}}
               : typename Loader::Parts{{layer + "mlp.gate_proj", c.ffn}, {layer + "mlp.up_proj", c.ffn}},
      down{{layer + (opt ? "fc2" : "mlp.down_proj"), c.width}};

  LayerWeights<T> made;
  made.attention_norm = load.norm(layer + (opt ? "self_attn_layer_norm" : "input_layernorm"));
  made.ffn_norm = load.norm(layer + (opt ? "final_layer_norm" : "post_attention_layernorm"));
  if (c.head_norms())
    made.head_norms = {load.vector(attention + "q_norm.weight", c.head_dim),
                       load.vector(attention + "k_norm.weight", c.head_dim)};
  made.qkv = {nullptr, nullptr, static_cast<std::uint32_t>(qkv_width()), c.width};
  made.out = {nullptr, nullptr, c.width, c.q_width()};
  made.up = {nullptr, nullptr, opt ? c.ffn : 2 * c.ffn, c.width};
  made.down = {nullptr, nullptr, c.width, c.ffn};
  made.block = DeviceBuffer<T>(context_.pool, made.block_elements());
  made.biases =
      DeviceBuffer<T>(context_.pool, std::size_t{made.qkv.rows} + made.out.rows + made.up.rows + made.down.rows);
  made.move_to(made.block.data());

  T* bias = made.biases.data();
  const auto fill = [&](const typename Loader::Parts& parts, Matrix<T>& m, bool biased) {
    if (biased) m.bias = bias;
    load.matrix(parts, m, made.block.data() + (m.weight - made.block.data()), biased ? bias : nullptr);
    bias += m.rows;
  };
  fill(qkv, made.qkv, qkv_bias);
  fill(out, made.out, opt || c.attention_biases);
  fill(up, made.up, opt || c.ffn_biases);
  fill(down, made.down, opt || c.ffn_biases);
  return made;
}

template <class T>
void DecoderParts<T>::set_context(std::uint32_t context) const {
  const std::uint32_t changed = config_.rotary.changes_at(context) ? context : 0;
  if (!gated() || changed == rotated_context_) return;
  const std::vector<float> values = inverse_frequencies(config_.rotary, config_.head_dim, changed);
  copy_to_device(context_.stream, std::span<const float>(values), frequency_.data());
  rotated_context_ = changed;
}

template <class T>
void DecoderParts<T>::embed(const std::uint32_t* tokens, const std::uint32_t* positions, std::size_t rows, T* x) const {
  gather_rows<T>(context_.stream, token_table_.data(), tokens, rows, config_.width, x, position_table_.data(),
                 positions, kPositionOffset);
}

template <class T>
void DecoderParts<T>::normalise(const T* x, const Norm& n, std::size_t rows, T* out) const {
  norm<T>(context_.stream, x, n.gamma.data(), n.beta.size() > 0 ? n.beta.data() : nullptr, config_.norm_epsilon, rows,
          config_.width, out);
}

template <class T>
template <class Out>
void DecoderParts<T>::linear(const T* x, const Matrix<T>& m, std::size_t rows, bool relu, const Out* residual,
                             Out* out) const {
  if (rows <= kGemvRows) {
    gemv<T, Out>(context_.stream, context_.device, x, m.weight, rows, m.rows, m.cols, {m.bias, residual, relu}, out);
    return;
  }
  context_.gemm.multiply<T, Out>(context_.stream, x, m.weight, rows, m.rows, m.cols, {m.bias, residual, relu}, out);
}

template <class T>
void DecoderParts<T>::norm_heads(const HeadNorms& norms, T* rows, std::size_t stride, std::size_t count,
                                 std::uint32_t q_heads) const {
  if (norms.q.size() == 0) return;
  cuda::norm_heads<T>(context_.stream, rows, stride, count, q_heads, config_.kv_heads, config_.head_dim, norms.q.data(),
                      norms.k.data(), config_.norm_epsilon);
}

template <class T>
void DecoderParts<T>::project(const LayerWeights<T>& layer, const T* normed, std::size_t rows, T* out) const {
  linear<T>(normed, layer.qkv, rows, false, nullptr, out);
  norm_heads(layer.head_norms, out, qkv_width(), rows, config_.heads);
}

template <class T>
void DecoderParts<T>::project_kv(const LayerWeights<T>& layer, const T* normed, std::size_t rows, T* out) const {
  linear<T>(normed, layer.qkv.from(config_.q_width()), rows, false, nullptr, out);
  norm_heads(layer.head_norms, out, std::size_t{2} * config_.kv_width(), rows, 0);
}

template <class T>
void DecoderParts<T>::prompt_projections(const LayerWeights<T>& layer, const T* normed, const std::uint32_t* positions,
                                         std::size_t rows, T* out) const {
  project(layer, normed, rows, out);
  if (gated()) {
    rotate<T>(context_.stream, out, positions, rotation(), rows, config_.q_width() + config_.kv_width(), qkv_width(),
              config_.head_dim / 2);
  }
}

template <class T>
void DecoderParts<T>::prompt_attention(Activations<T>& a, const std::uint32_t* starts, std::size_t sequences,
                                       std::uint32_t longest, std::size_t rows) const {
  PrefillQuery<T> query;
  query.q = a.qkv.data();
  query.k = a.qkv.data() + config_.q_width();
  query.v = query.k + config_.kv_width();
  query.out = a.attended.data();
  query.rows = rows;
  query.q_stride = query.kv_stride = qkv_width();
  query.out_stride = config_.q_width();
  query.starts = starts;
  query.sequences = sequences;
  query.longest = longest;
  query.heads = config_.heads;
  query.kv_heads = config_.kv_heads;
  query.d = config_.head_dim;
  attend_prompts(context_, query);
}

template <class T>
void DecoderParts<T>::step_attention(Activations<T>& a, std::size_t sequences, const std::uint32_t* lengths,
                                     const CacheShape& shape, const T* keys, const T* values) const {
  DecodeQuery<T> query;
  query.q = a.qkv.data();
  query.q_stride = qkv_width();
  query.out = a.attended.data();
  query.out_stride = config_.q_width();
  query.sequences = sequences;
  query.lengths = lengths;
  query.keys = keys;
  query.values = values;
  decode_attention(context_.stream, context_.pool, context_.device, query, shape, shape.capacity);
}

template <class T>
void DecoderParts<T>::finish_attention(const LayerWeights<T>& layer, Activations<T>& a, T* x, std::size_t rows) const {
  linear<T>(a.attended.data(), layer.out, rows, false, x, x);
}

template <class T>
void DecoderParts<T>::activate(const LayerWeights<T>& layer, const T* normed, std::size_t rows, T* both,
                               T* inner) const {
  if (!gated()) return linear<T>(normed, layer.up, rows, true, nullptr, inner);
  const std::uint32_t ffn = config_.ffn;
  if (!needs_both(rows))
    return gated_gemv<T>(context_.stream, context_.device, normed, layer.up.weight, rows, ffn, layer.up.cols,
                         layer.up.bias, inner);
  linear<T>(normed, layer.up, rows, false, nullptr, both);
  swiglu<T>(context_.stream, both, both + ffn, std::size_t{2} * ffn, ffn, rows, inner);
}

template <class T>
void DecoderParts<T>::feed_forward(const LayerWeights<T>& layer, Activations<T>& a, T* x, std::size_t rows) const {
  activate(layer, a.normed.data(), rows, a.up.data(), a.inner.data());
  linear<T>(a.inner.data(), layer.down, rows, false, x, x);
}

template <class T>
void DecoderParts<T>::finish_layer(const LayerWeights<T>& layer, Activations<T>& a, T* x, std::size_t rows) const {
  finish_attention(layer, a, x, rows);
  normalise(x, layer.ffn_norm, rows, a.normed.data());
  feed_forward(layer, a, x, rows);
}

template <class T>
void DecoderParts<T>::logits(const T* x, std::size_t rows, T* normed, float* out) const {
  normalise(x, final_norm_, rows, normed);
  linear<float>(normed, head_, rows, false, nullptr, out);
}

#define CSDSIM_INSTANTIATE(T)      \
  template struct LayerWeights<T>; \
  template struct Activations<T>;  \
  template class DecoderParts<T>;  \
  template void DecoderParts<T>::linear(const T*, const Matrix<T>&, std::size_t, bool, const T*, T*) const;

CSDSIM_INSTANTIATE(__half)
CSDSIM_INSTANTIATE(__nv_bfloat16)

}  // namespace csdsim::host::cuda
