#include "host_runtime/cuda/dense_model.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace csdsim::host::cuda {

template <class T>
DenseModel<T>::DenseModel(Context& context, const ModelConfig& config, const WeightSource& weights, std::uint32_t slots,
                          std::uint32_t capacity)
    : context_(context),
      parts_(context, config, weights),
      slots_(slots),
      capacity_(capacity),
      shape_{config.heads, config.kv_heads, config.head_dim, capacity},
      parameter_bytes_(parts_.head_bytes()),
      step_(context.pool, config, slots),
      hidden_(context.pool, std::size_t{slots} * config.width) {
  const std::size_t cache = std::size_t{slots} * config.kv_width() * capacity;
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    Layer& layer = layers_.emplace_back(
        Layer{parts_.load_layer(i), DeviceBuffer<T>(context.pool, cache), DeviceBuffer<T>(context.pool, cache)});
    parameter_bytes_ += layer.weights.elements() * sizeof(T);
  }
  parts_.check_all_loaded();
  tokens_ = DeviceBuffer<std::uint32_t>(context.pool, slots);
  positions_ = DeviceBuffer<std::uint32_t>(context.pool, slots);
  lengths_ = DeviceBuffer<std::uint32_t>(context.pool, slots);
  logits_ = DeviceBuffer<float>(context.pool, std::size_t{slots} * config.vocab);
  step_inputs_ = PinnedBuffer<std::uint32_t>(std::size_t{3} * slots);
  host_logits_ = PinnedBuffer<float>(logits_.size());
}

template <class T>
std::vector<float> DenseModel<T>::prefill(std::uint32_t slot, std::span<const TokenId> tokens, std::uint32_t context) {
  if (slot >= slots_ || tokens.empty() || tokens.size() > capacity_) throw InternalError("cuda: prefill (shape)");
  const Stream& stream = context_.stream;
  const ModelConfig& config = parts_.config();
  const std::size_t rows = tokens.size();
  std::vector<std::uint32_t> ids, at;
  for (const TokenId token : tokens) {
    if (token.value >= config.vocab) throw InternalError("cuda: prefill (token)");
    at.push_back(static_cast<std::uint32_t>(ids.size()));
    ids.push_back(token.value);
  }
  const std::array<std::uint32_t, 2> starts{0, static_cast<std::uint32_t>(rows)};
  parts_.set_context(std::max(context, starts[1]));
  DeviceBuffer<std::uint32_t> device_ids(context_.pool, rows), device_at(context_.pool, rows),
      device_starts(context_.pool, 2);
  copy_to_device(stream, std::span<const std::uint32_t>(ids), device_ids.data());
  copy_to_device(stream, std::span<const std::uint32_t>(at), device_at.data());
  copy_to_device(stream, std::span<const std::uint32_t>(starts), device_starts.data());
  Activations<T> a(context_.pool, config, rows);
  const DeviceBuffer<T> hidden(context_.pool, rows * config.width);
  T* const x = hidden.data();
  parts_.embed(device_ids.data(), device_at.data(), rows, x);
  const std::size_t cache = std::size_t{slot} * config.kv_width() * capacity_;
  for (Layer& layer : layers_) {
    parts_.normalise(x, layer.weights.attention_norm, rows, a.normed.data());
    parts_.prompt_projections(layer.weights, a.normed.data(), device_at.data(), rows, a.qkv.data());
    store<T>(stream, a.qkv.data() + config.q_width(), a.qkv.data() + config.q_width() + config.kv_width(),
             parts_.qkv_width(), rows, 0, shape_, layer.keys.data() + cache, layer.values.data() + cache);
    parts_.prompt_attention(a, device_starts.data(), 1, starts[1], rows);
    parts_.finish_layer(layer.weights, a, x, rows);
  }
  parts_.logits(x + (rows - 1) * config.width, 1, a.normed.data(), logits_.data());
  std::vector<float> logits(config.vocab);
  copy_to_host(stream, static_cast<const float*>(logits_.data()), std::span<float>(logits));
  return logits;
}

template <class T>
void DenseModel<T>::run_step() {
  Activations<T>& a = step_;
  T* const x = hidden_.data();
  parts_.embed(tokens_.data(), positions_.data(), slots_, x);
  for (Layer& layer : layers_) {
    parts_.normalise(x, layer.weights.attention_norm, slots_, a.normed.data());
    parts_.project(layer.weights, a.normed.data(), slots_, a.qkv.data());
    append<T>(context_.stream, a.qkv.data(), positions_.data(), parts_.rotation(), slots_, shape_, layer.keys.data(),
              layer.values.data());
    parts_.step_attention(a, slots_, lengths_.data(), shape_, layer.keys.data(), layer.values.data());
    parts_.finish_layer(layer.weights, a, x, slots_);
  }
  parts_.logits(x, slots_, a.normed.data(), logits_.data());
}

template <class T>
std::span<const float> DenseModel<T>::decode(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) {
  if (tokens.size() != slots_ || positions.size() != slots_) throw InternalError("cuda: a token a slot is needed");
  const std::span<std::uint32_t> inputs = step_inputs_.span();
  std::uint32_t context = 0;
  for (std::size_t i = 0; i < slots_; ++i) {
    if (tokens[i].value >= parts_.config().vocab || positions[i].value >= capacity_)
      throw InternalError("cuda: decode (range)");
    inputs[i] = tokens[i].value;
    inputs[slots_ + i] = positions[i].value;
    inputs[2 * slots_ + i] = positions[i].value + 1;
    context = std::max(context, positions[i].value + 1);
  }
  parts_.set_context(context);
  const std::span<const std::uint32_t> sent = inputs;
  copy_to_device(context_.stream, sent.first(slots_), tokens_.data());
  copy_to_device(context_.stream, sent.subspan(slots_, slots_), positions_.data());
  copy_to_device(context_.stream, sent.subspan(2 * slots_), lengths_.data());
  if (!graph_) {
    // Runs once without recording: algorithms of products are chosen by measuring them.
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
    // A finished slot continues with the others at position 0; its results are ignored.
    active[slot] = step + 1 < options.max_new_tokens && token != options.stop;
    next[slot] = token;
    positions[slot] = TokenIndex{active[slot] ? static_cast<std::uint32_t>(prompts[slot].size()) + step : 0};
  };
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  for (std::uint32_t slot = 0; slot < prompts.size() && options.max_new_tokens > 0; ++slot) {
    accept(slot, prefill(slot, prompts[slot], static_cast<std::uint32_t>(longest)), 0);
  }
  for (std::uint32_t step = 1; std::find(active.begin(), active.end(), true) != active.end(); ++step) {
    const std::span<const float> logits = decode(next, positions);
    for (std::uint32_t slot = 0; slot < prompts.size(); ++slot) {
      if (active[slot])
        accept(slot, logits.subspan(std::size_t{slot} * parts_.config().vocab, parts_.config().vocab), step);
    }
  }
  return results;
}

template class DenseModel<__half>;
template class DenseModel<__nv_bfloat16>;

}  // namespace csdsim::host::cuda
