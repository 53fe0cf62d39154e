#include "host_runtime/cuda/dense_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.h"
#include "host_runtime/core/rotary.h"

namespace csdsim::host::cuda {
namespace {

// OPT's learned position table starts with two rows that are never used (fairseq's padding offset).
constexpr std::uint32_t kPositionOffset = 2;

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace

template <class T>
struct DenseModel<T>::Activations {
  Activations(DevicePool& pool, const ModelConfig& c, std::size_t rows, bool gated)
      : x(pool, rows * c.width),
        normed(pool, rows * c.width),
        qkv(pool, rows * (c.q_width() + 2 * c.kv_width())),
        attended(pool, rows * c.q_width()),
        up(pool, rows * c.ffn * (gated ? 2 : 1)),
        inner(pool, gated ? rows * c.ffn : 0) {}

  DeviceBuffer<T> x, normed, qkv, attended, up, inner;
};

/// Reads tensors into one matrix on the device, one above the other.
template <class T>
class DenseModel<T>::Loader {
 public:
  Loader(DenseModel& model, const WeightSource& weights, std::string prefix, const std::string& probe)
      : model_(model),
        weights_(weights),
        prefix_(weights.contains("model." + prefix + probe) ? "model." + prefix : prefix) {}

  std::string full(const std::string& name) const { return prefix_ + name; }

  StoredTensor tensor(const std::string& name, const std::vector<std::uint64_t>& shape) const {
    const StoredTensor stored = weights_.tensor(name);
    if (stored.shape != shape) {
      throw UserError(weights_.description() + ": tensor '" + name + "' has shape " + shape_text(stored.shape) +
                      ", config.json implies " + shape_text(shape));
    }
    return stored;
  }
  DeviceBuffer<T> table(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    return load_values<T>(model_.context_, tensor(name, {rows, cols}));
  }
  DeviceBuffer<float> vector(const std::string& name, std::uint64_t size) {
    return load_values<float>(model_.context_, tensor(name, {size}));
  }
  Norm norm(const std::string& name, bool shifted) {
    const std::uint32_t width = model_.config_.width;
    return {vector(name + ".weight", width), shifted ? vector(name + ".bias", width) : DeviceBuffer<float>()};
  }
  /// The named projections of `cols` inputs, each with its number of outputs.
  Matrix matrix(const std::vector<std::pair<std::string, std::uint32_t>>& parts, std::uint32_t cols, bool biased) {
    Context& context = model_.context_;
    Matrix m;
    m.cols = cols;
    for (const auto& [name, rows] : parts) m.rows += rows;
    m.weight = DeviceBuffer<T>(context.pool, std::size_t{m.rows} * cols);
    if (biased) m.bias = DeviceBuffer<float>(context.pool, m.rows);
    std::size_t row = 0;
    const auto append = [&](const auto& from, auto* to) {
      CSDSIM_CUDA(
          cudaMemcpyAsync(to, from.data(), from.size() * sizeof *to, cudaMemcpyDeviceToDevice, context.stream.get()));
    };
    for (const auto& [name, rows] : parts) {
      append(table(name + ".weight", rows, cols), m.weight.data() + row * cols);
      if (biased) append(vector(name + ".bias", rows), m.bias.data() + row);
      row += rows;
    }
    model_.parameter_bytes_ += std::size_t{m.rows} * cols * sizeof(T);
    return m;
  }

 private:
  DenseModel& model_;
  const WeightSource& weights_;
  std::string prefix_;
};

template <class T>
DenseModel<T>::DenseModel(Context& context, const ModelConfig& config, const WeightSource& weights, std::uint32_t slots,
                          std::uint32_t capacity)
    : context_(context),
      config_(config),
      slots_(slots),
      capacity_(capacity),
      shape_{config.heads, config.kv_heads, config.head_dim, capacity} {
  if (config.head_dim > 256 || config.head_dim % 2 != 0) {
    throw UserError("the cuda backend takes even heads of up to 256 elements, not " + std::to_string(config.head_dim));
  }
  if (!config.norm_first || !config.final_norm || config.embedding_width) {
    throw UserError(
        "OPT with norms after its blocks, without the final norm or with projected embeddings (350m) runs layer by "
        "layer "
        "only: use another --method or --attention drive, or the cpu backend");
  }
  const bool opt = !gated(), qkv_bias = config.architecture != Architecture::llama;
  Loader load(*this, weights, opt ? "decoder." : "", "embed_tokens.weight");
  const std::uint32_t width = config.width, ffn = config.ffn;
  token_table_ = load.table(load.full("embed_tokens.weight"), config.vocab, width);
  if (opt) {
    position_table_ =
        load.table(load.full("embed_positions.weight"), std::uint64_t{config.max_positions} + kPositionOffset, width);
  } else {
    const std::vector<float> values = inverse_frequencies(config.rotary, config.head_dim);
    frequency_ =
        load_values<float>(context, {ElementType::f32, {values.size()}, std::as_bytes(std::span<const float>(values))});
  }
  if (config.tied_embeddings) {
    head_.rows = config.vocab;
    head_.cols = width;
    parameter_bytes_ += token_table_.size() * sizeof(T);
  } else {
    head_ = load.matrix({{"lm_head", config.vocab}}, width, false);
  }
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const std::string layer = load.full("layers." + std::to_string(i) + "."), attention = layer + "self_attn.";
    const std::size_t cache = std::size_t{slots} * config.kv_width() * capacity;
    Layer made;
    made.attention_norm = load.norm(layer + (opt ? "self_attn_layer_norm" : "input_layernorm"), opt);
    made.ffn_norm = load.norm(layer + (opt ? "final_layer_norm" : "post_attention_layernorm"), opt);
    made.qkv = load.matrix({{attention + "q_proj", config.q_width()},
                            {attention + "k_proj", config.kv_width()},
                            {attention + "v_proj", config.kv_width()}},
                           width, qkv_bias);
    made.out = load.matrix({{attention + (opt ? "out_proj" : "o_proj"), width}}, config.q_width(), opt);
    if (opt) {
      made.up = load.matrix({{layer + "fc1", ffn}}, width, true);
      made.down = load.matrix({{layer + "fc2", width}}, ffn, true);
    } else {
      made.up = load.matrix({{layer + "mlp.gate_proj", ffn}, {layer + "mlp.up_proj", ffn}}, width, false);
      made.down = load.matrix({{layer + "mlp.down_proj", width}}, ffn, false);
    }
    made.keys = DeviceBuffer<T>(context.pool, cache);
    made.values = DeviceBuffer<T>(context.pool, cache);
    layers_.push_back(std::move(made));
  }
  final_norm_ = load.norm(load.full(opt ? "final_layer_norm" : "norm"), opt);
  tokens_ = DeviceBuffer<std::uint32_t>(context.pool, slots);
  positions_ = DeviceBuffer<std::uint32_t>(context.pool, slots);
  lengths_ = DeviceBuffer<std::uint32_t>(context.pool, slots);
  step_ = std::make_unique<Activations>(scratch_, config, slots, gated());
  logits_ = DeviceBuffer<float>(context.pool, std::size_t{slots} * config.vocab);
  step_inputs_ = PinnedBuffer<std::uint32_t>(std::size_t{3} * slots);
  host_logits_ = PinnedBuffer<float>(logits_.size());
}

template <class T>
DenseModel<T>::~DenseModel() = default;

template <class T>
template <class Out>
void DenseModel<T>::linear(const T* x, const Matrix& m, std::size_t rows, bool relu, const Out* residual, Out* out) {
  const T* weight = m.weight.size() > 0 ? m.weight.data() : token_table_.data();
  const float* bias = m.bias.size() > 0 ? m.bias.data() : nullptr;
  if (rows <= kGemvRows) {
    gemv<T, Out>(context_.stream, context_.device, x, weight, rows, m.rows, m.cols, {bias, residual, relu}, out);
    return;
  }
  if (residual != nullptr && residual != out) throw InternalError("cuda: a residual is added in place");
  context_.gemm.multiply(context_.stream, x, weight, rows, m.rows, m.cols, residual != nullptr, out);
  if constexpr (std::is_same_v<Out, T>) {
    if (bias != nullptr) add_bias(context_.stream, out, bias, m.rows, rows * m.rows);
    if (relu) cuda::relu(context_.stream, out, rows * m.rows);
  }
}

template <class T>
void DenseModel<T>::normalise(T* x, const Norm& n, std::size_t rows, T* out) {
  norm<T>(context_.stream, x, nullptr, n.gamma.data(), n.beta.size() > 0 ? n.beta.data() : nullptr,
          config_.norm_epsilon, rows, config_.width, out);
}

template <class T>
void DenseModel<T>::embed(const std::uint32_t* tokens, const std::uint32_t* positions, std::size_t rows, T* x) {
  gather_rows<T>(context_.stream, token_table_.data(), tokens, rows, config_.width, x, position_table_.data(),
                 positions, kPositionOffset);
}

template <class T>
void DenseModel<T>::feed_forward(const Layer& layer, Activations& a, std::size_t rows) {
  linear<T>(a.attended.data(), layer.out, rows, false, a.x.data(), a.x.data());
  normalise(a.x.data(), layer.ffn_norm, rows, a.normed.data());
  linear<T>(a.normed.data(), layer.up, rows, !gated(), nullptr, a.up.data());
  const T* inner = a.up.data();
  if (gated()) {
    swiglu<T>(context_.stream, a.up.data(), a.up.data() + config_.ffn, std::size_t{2} * config_.ffn, config_.ffn, rows,
              a.inner.data());
    inner = a.inner.data();
  }
  linear<T>(inner, layer.down, rows, false, a.x.data(), a.x.data());
}

template <class T>
std::vector<float> DenseModel<T>::prefill(std::uint32_t slot, std::span<const TokenId> tokens) {
  if (slot >= slots_ || tokens.empty() || tokens.size() > capacity_) throw InternalError("cuda: prefill (shape)");
  const Stream& stream = context_.stream;
  const std::size_t rows = tokens.size(), qkv_cols = config_.q_width() + std::size_t{2} * config_.kv_width();
  std::vector<std::uint32_t> ids, at;
  for (const TokenId token : tokens) {
    if (token.value >= config_.vocab) throw InternalError("cuda: prefill (token)");
    at.push_back(static_cast<std::uint32_t>(ids.size()));
    ids.push_back(token.value);
  }
  const std::array<std::uint32_t, 2> starts{0, static_cast<std::uint32_t>(rows)};
  DeviceBuffer<std::uint32_t> device_ids(context_.pool, rows), device_at(context_.pool, rows),
      device_starts(context_.pool, 2);
  copy_to_device(stream, std::span<const std::uint32_t>(ids), device_ids.data());
  copy_to_device(stream, std::span<const std::uint32_t>(at), device_at.data());
  copy_to_device(stream, std::span<const std::uint32_t>(starts), device_starts.data());
  Activations a(context_.pool, config_, rows, gated());
  embed(device_ids.data(), device_at.data(), rows, a.x.data());
  const std::size_t cache = std::size_t{slot} * config_.kv_width() * capacity_;
  for (Layer& layer : layers_) {
    normalise(a.x.data(), layer.attention_norm, rows, a.normed.data());
    linear<T>(a.normed.data(), layer.qkv, rows, false, nullptr, a.qkv.data());
    if (gated()) {
      rotate<T>(stream, a.qkv.data(), device_at.data(), frequency_.data(), rows, config_.q_width() + config_.kv_width(),
                qkv_cols, config_.head_dim / 2);
    }
    const T* k = a.qkv.data() + config_.q_width();
    const T* v = k + config_.kv_width();
    store<T>(stream, k, v, qkv_cols, rows, 0, shape_, layer.keys.data() + cache, layer.values.data() + cache);
    PrefillQuery<T> query;
    query.q = a.qkv.data();
    query.k = k;
    query.v = v;
    query.out = a.attended.data();
    query.rows = rows;
    query.q_stride = query.kv_stride = qkv_cols;
    query.out_stride = config_.q_width();
    query.starts = device_starts.data();
    query.sequences = 1;
    query.longest = starts[1];
    query.heads = config_.heads;
    query.kv_heads = config_.kv_heads;
    query.d = config_.head_dim;
    prefill_attention(stream, context_.device, query);
    feed_forward(layer, a, rows);
  }
  T* last = a.x.data() + (rows - 1) * config_.width;
  normalise(last, final_norm_, 1, a.normed.data());
  linear<float>(a.normed.data(), head_, 1, false, nullptr, logits_.data());
  std::vector<float> logits(config_.vocab);
  copy_to_host(stream, static_cast<const float*>(logits_.data()), std::span<float>(logits));
  return logits;
}

template <class T>
void DenseModel<T>::run_step() {
  Activations& a = *step_;
  const std::size_t rows = slots_;
  embed(tokens_.data(), positions_.data(), rows, a.x.data());
  DecodeQuery<T> query;
  query.q = a.qkv.data();
  query.q_stride = config_.q_width() + std::size_t{2} * config_.kv_width();
  query.out = a.attended.data();
  query.out_stride = config_.q_width();
  query.sequences = rows;
  query.lengths = lengths_.data();
  for (Layer& layer : layers_) {
    normalise(a.x.data(), layer.attention_norm, rows, a.normed.data());
    linear<T>(a.normed.data(), layer.qkv, rows, false, nullptr, a.qkv.data());
    append<T>(context_.stream, a.qkv.data(), positions_.data(), gated() ? frequency_.data() : nullptr, rows, shape_,
              layer.keys.data(), layer.values.data());
    query.keys = layer.keys.data();
    query.values = layer.values.data();
    decode_attention(context_.stream, scratch_, context_.device, query, shape_, capacity_);
    feed_forward(layer, a, rows);
  }
  normalise(a.x.data(), final_norm_, rows, a.normed.data());
  linear<float>(a.normed.data(), head_, rows, false, nullptr, logits_.data());
}

template <class T>
std::span<const float> DenseModel<T>::decode(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) {
  if (tokens.size() != slots_ || positions.size() != slots_) throw InternalError("cuda: a token a slot is needed");
  const std::span<std::uint32_t> inputs = step_inputs_.span();
  for (std::size_t i = 0; i < slots_; ++i) {
    if (tokens[i].value >= config_.vocab || positions[i].value >= capacity_)
      throw InternalError("cuda: decode (range)");
    inputs[i] = tokens[i].value;
    inputs[slots_ + i] = positions[i].value;
    inputs[2 * slots_ + i] = positions[i].value + 1;
  }
  const std::span<const std::uint32_t> sent = inputs;
  copy_to_device(context_.stream, sent.first(slots_), tokens_.data());
  copy_to_device(context_.stream, sent.subspan(slots_, slots_), positions_.data());
  copy_to_device(context_.stream, sent.subspan(2 * slots_), lengths_.data());
  if (!graph_) {
    // Runs once without recording, so that all memory is allocated and all algorithms are chosen: recording allows
    // neither.
    run_step();
    graph_ = Graph::record(context_.stream, [&] { run_step(); });
  }
  graph_.launch(context_.stream);
  copy_to_host(context_.stream, static_cast<const float*>(logits_.data()), host_logits_.span());
  return host_logits_.span();
}

template <class T>
std::vector<std::vector<TokenId>> DenseModel<T>::generate(const std::vector<std::vector<TokenId>>& prompts,
                                                          const GenerationOptions& options) {
  check(options.sampling);
  if (prompts.size() > slots_) throw InternalError("cuda: more prompts than slots");
  std::vector<std::vector<TokenId>> results(prompts.size());
  std::vector<TokenId> next(slots_, TokenId{0});
  std::vector<TokenIndex> positions(slots_, TokenIndex{0});
  std::vector<bool> active(slots_, false);
  const auto accept = [&](std::uint32_t slot, std::span<const float> logits, std::uint32_t step) {
    const TokenId token = sample(logits, options.sampling, slot, step);
    results[slot].push_back(token);
    // A finished slot continues with the others at a fixed position; its results are ignored.
    active[slot] = step + 1 < options.max_new_tokens && token != options.stop;
    if (!active[slot]) return;
    next[slot] = token;
    positions[slot] = TokenIndex{static_cast<std::uint32_t>(prompts[slot].size()) + step};
  };
  for (std::uint32_t slot = 0; slot < prompts.size() && options.max_new_tokens > 0; ++slot) {
    accept(slot, prefill(slot, prompts[slot]), 0);
  }
  for (std::uint32_t step = 1; std::find(active.begin(), active.end(), true) != active.end(); ++step) {
    const std::span<const float> logits = decode(next, positions);
    for (std::uint32_t slot = 0; slot < prompts.size(); ++slot) {
      if (active[slot]) accept(slot, logits.subspan(std::size_t{slot} * config_.vocab, config_.vocab), step);
    }
  }
  return results;
}

template class DenseModel<__half>;
template class DenseModel<__nv_bfloat16>;

}  // namespace csdsim::host::cuda
