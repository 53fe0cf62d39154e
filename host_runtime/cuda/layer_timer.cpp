#include "host_runtime/cuda/layer_timer.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/cuda/measuring.h"

namespace csdsim::host::cuda {
namespace {

/// 0, 1, ... below `end`, again and again.
std::vector<std::uint32_t> counting(std::size_t count, std::uint32_t end) {
  std::vector<std::uint32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint32_t>(i % end);
  return values;
}

}  // namespace

/// Every tensor is the beginning of the same values, which are so small that sums stay in the range of fp16.
class LayerTimer::Weights final : public WeightSource {
 public:
  explicit Weights(const ModelConfig& config) : config_(config) {
    std::uint32_t state = 1;
    const std::size_t width = config.width, table = config.architecture == Architecture::opt ? config.max_positions : 0;
    values_.resize(width * std::max<std::size_t>({config.vocab, table + 2, config.ffn, config.q_width()}));
    for (Half& value : values_) {
      state = state * 1664525u + 1013904223u;
      value = float_to_half(static_cast<float>(static_cast<int>(state >> 8) - (1 << 23)) * 0x1p-28f);
    }
  }

  bool contains(std::string_view name) const override { return name.starts_with("model."); }
  StoredTensor tensor(std::string_view name) const override {
    const std::vector<std::uint64_t> shape = shape_of(name);
    const std::size_t count = std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                                              [](std::size_t all, std::uint64_t n) { return all * n; });
    return {ElementType::f16, shape, std::as_bytes(std::span(values_).first(count))};
  }
  std::string description() const override { return "made-up weights"; }
  /// Frees the values: nothing is loaded any more.
  void drop() { values_ = {}; }

 private:
  std::vector<std::uint64_t> shape_of(std::string_view name) const {
    const ModelConfig& c = config_;
    const bool bias = name.ends_with(".bias");
    const std::string_view part = name.substr(0, name.rfind('.'));
    const auto is = [&](std::string_view end) { return part.ends_with(end); };
    if (is("q_norm") || is("k_norm")) return {c.head_dim};
    if (is("norm")) return {c.width};
    const auto matrix = [&]() -> std::pair<std::uint64_t, std::uint64_t> {
      if (is("embed_tokens") || is("lm_head")) return {c.vocab, c.width};
      if (is("embed_positions")) return {std::uint64_t{c.max_positions} + 2, c.width};
      if (is("q_proj")) return {c.q_width(), c.width};
      if (is("k_proj") || is("v_proj")) return {c.kv_width(), c.width};
      if (is("o_proj") || is("out_proj")) return {c.width, c.q_width()};
      if (is("gate_proj") || is("up_proj") || is("fc1")) return {c.ffn, c.width};
      if (is("down_proj") || is("fc2")) return {c.width, c.ffn};
      throw InternalError("made-up weights: no tensor " + std::string(name));
    }();
    if (bias) return {matrix.first};
    return {matrix.first, matrix.second};
  }

  const ModelConfig config_;
  std::vector<Half> values_;
};

LayerTimer::LayerTimer(Context& context, const ModelConfig& config)
    : context_(context),
      weights_(std::make_unique<Weights>(config)),
      parts_(context, config, *weights_),
      layer_(parts_.load_layer(0)) {
  context.stream.synchronise();
  weights_->drop();
}

LayerTimer::~LayerTimer() = default;

std::vector<std::uint32_t> LayerTimer::lengths_of(const LayerWork& work) {
  std::vector<std::uint32_t> lengths;
  for (std::uint64_t i = 0; i < work.rows; ++i)
    lengths.push_back(static_cast<std::uint32_t>(work.attended / work.rows + (i < work.attended % work.rows ? 1 : 0)));
  return lengths;
}

MeasuredSeconds LayerTimer::attention(const LayerWork& work) {
  const ModelConfig& c = parts_.config();
  const std::vector<std::uint32_t> lengths = lengths_of(work);
  const bool prompts = work.op == LayerOperator::prompt_attention;
  const std::size_t rows = prompts ? work.attended : work.rows;
  Activations<__half> a(context_.pool, c, rows);
  a.qkv = made_up_values(context_, rows * parts_.qkv_width());
  if (prompts) {
    std::vector<std::uint32_t> starts{0};
    for (const std::uint32_t length : lengths) starts.push_back(starts.back() + length);
    const auto on = on_device(context_, starts);
    return operator_seconds(context_,
                            [&] { parts_.prompt_attention(a, on.data(), lengths.size(), lengths.front(), rows); });
  }
  const CacheShape shape{c.heads, c.kv_heads, c.head_dim, lengths.front()};
  const std::size_t cache = std::size_t{rows} * c.kv_width() * shape.capacity;
  const auto keys = made_up_values(context_, cache), values = made_up_values(context_, cache);
  const auto on = on_device(context_, lengths);
  return operator_seconds(context_,
                          [&] { parts_.step_attention(a, rows, on.data(), shape, keys.data(), values.data()); });
}

MeasuredSeconds LayerTimer::seconds(const LayerWork& work) {
  if (work.is_attention()) return work.share * attention(work);
  const ModelConfig& c = parts_.config();
  const std::size_t rows = work.rows;
  const auto x = made_up_values(context_, rows * c.width);
  const auto positions = on_device(context_, counting(rows, c.max_positions));
  Activations<__half> a(context_.pool, c, work.op == LayerOperator::embed ? 0 : rows);
  const auto measure = [&](auto&& run) { return operator_seconds(context_, run); };
  switch (work.op) {
    case LayerOperator::embed: {
      const auto tokens = on_device(context_, counting(rows, c.vocab));
      return measure([&] { parts_.embed(tokens.data(), positions.data(), rows, x.data()); });
    }
    case LayerOperator::attention_inputs: {
      const DeviceBuffer<__half> q(context_.pool, rows * c.q_width()), k(context_.pool, rows * c.kv_width()),
          v(context_.pool, k.size());
      return measure([&] {
        parts_.normalise(x.data(), layer_.attention_norm, rows, a.normed.data());
        parts_.project(layer_, a.normed.data(), rows, a.qkv.data());
        split_rows<__half>(context_.stream, a.qkv.data(), positions.data(), parts_.rotation(), rows,
                           {c.heads, c.kv_heads, c.head_dim, 0}, q.data(), k.data(), v.data());
      });
    }
    case LayerOperator::recompute_kv:
      return measure([&] {
        parts_.normalise(x.data(), layer_.attention_norm, rows, a.normed.data());
        parts_.project_kv(layer_, a.normed.data(), rows, a.qkv.data());
        if (parts_.gated())
          rotate<__half>(context_.stream, a.qkv.data(), positions.data(), parts_.rotation(), rows, c.kv_width(),
                         std::size_t{2} * c.kv_width(), c.head_dim / 2);
      });
    case LayerOperator::finish_attention:
      a.attended = made_up_values(context_, rows * c.q_width());
      return measure([&] {
        parts_.finish_attention(layer_, a, x.data(), rows);
        parts_.normalise(x.data(), layer_.ffn_norm, rows, a.normed.data());
      });
    case LayerOperator::feed_forward:
      a.normed = made_up_values(context_, rows * c.width);
      return measure([&] { parts_.feed_forward(layer_, a, x.data(), rows); });
    case LayerOperator::finish_layer:
      a.attended = made_up_values(context_, rows * c.q_width());
      return measure([&] { parts_.finish_layer(layer_, a, x.data(), rows); });
    case LayerOperator::sample: {
      const DeviceBuffer<float> logits(context_.pool, rows * c.vocab);
      return measure([&] { parts_.logits(x.data(), rows, a.normed.data(), logits.data()); });
    }
    case LayerOperator::prompt_attention:
    case LayerOperator::step_attention:
      break;
  }
  throw InternalError("cuda: no such operator of a layer");
}

}  // namespace csdsim::host::cuda
