// Decode of whole models with made-up weights: nothing about speed depends on their values.
#include <vector>

#include "base/error.h"
#include "bench/gpu/bench_gpu.h"
#include "host_runtime/cuda/dense_model.h"

namespace gpu_bench {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::cuda;

namespace {

/// A tensor of any shape, whose values repeat: all tensors share one block of host memory.
class MadeUpWeights final : public WeightSource {
 public:
  explicit MadeUpWeights(const ModelConfig& config) : config_(config) {
    values_.resize(std::size_t{config.vocab} * config.width);
    std::uint32_t state = 1;
    for (Half& h : values_) {
      state = state * 1664525u + 1013904223u;
      h = static_cast<Half>(0x2000u | state >> 24 | (state & 0x8000u));  // either sign, magnitude 0.008 to 0.01
    }
  }
  bool contains(std::string_view name) const override { return name.starts_with("model."); }
  StoredTensor tensor(std::string_view name) const override {
    const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    const ModelConfig& c = config_;
    std::vector<std::uint64_t> shape{c.width};
    if (has("embed_tokens") || has("lm_head")) shape = {c.vocab, c.width};
    if (has("q_proj")) shape = {c.q_width(), c.width};
    if (has("k_proj") || has("v_proj")) shape = {c.kv_width(), c.width};
    if (has("o_proj")) shape = {c.width, c.q_width()};
    if (has("gate_proj") || has("up_proj")) shape = {c.ffn, c.width};
    if (has("down_proj")) shape = {c.width, c.ffn};
    std::size_t count = 1;
    for (const std::uint64_t size : shape) count *= size;
    return {ElementType::f16, shape, std::as_bytes(std::span<const Half>(values_).first(count))};
  }
  std::string description() const override { return "made-up weights"; }

 private:
  ModelConfig config_;
  std::vector<Half> values_;
};

ModelConfig llama_7b() {
  ModelConfig c;
  c.architecture = Architecture::llama;
  c.layers = 32;
  c.width = 4096;
  c.heads = c.kv_heads = 32;
  c.head_dim = 128;
  c.ffn = 11008;
  c.vocab = 32000;
  c.max_positions = 4096;
  c.tied_embeddings = false;
  return c;
}

}  // namespace

void bench_models(Context& context) {
  const ModelConfig config = llama_7b();
  const MadeUpWeights weights(config);
  for (const std::uint32_t batch : {1u, 8u}) {
    const std::uint32_t prompt = 512, steps = 64;
    DenseModel<__half> model(context, config, weights, batch, prompt + steps + 8);
    const std::vector<TokenId> tokens(prompt, TokenId{1});
    double prefill_ms = 0;
    for (std::uint32_t slot = 0; slot < batch; ++slot) {
      Event before, after;
      before.record(context.stream);
      model.prefill(slot, tokens);
      after.record(context.stream);
      after.synchronise();
      prefill_ms = after.milliseconds_since(before);
    }
    const std::vector<TokenId> next(batch, TokenId{1});
    std::vector<double> times;
    for (std::uint32_t step = 0; step < steps; ++step) {
      const std::vector<TokenIndex> positions(batch, TokenIndex{prompt + step});
      Event before, after;
      before.record(context.stream);
      model.decode(next, positions);
      after.record(context.stream);
      after.synchronise();
      if (step >= 4) times.push_back(after.milliseconds_since(before));
    }
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    const double ms = times[times.size() / 2];
    const double bytes = static_cast<double>(model.bytes_read_a_step()) +
                         static_cast<double>(config.kv_bytes_per_token().value) * batch * (prompt + steps / 2.0);
    const double rate = bytes / ms * 1e3;
    const std::string name = "Llama-2-7B shape, fp16, batch " + std::to_string(batch);
    row(name + ", decode step at 512 tokens, end to end", ms, "ms", rate / peaks(context.device).bytes_per_second,
        batch == 1 ? 0.6 : 0);
    row(name + ", decode", 1e3 * batch / ms, "tokens/s", rate / peaks(context.device).bytes_per_second, 0);
    const double flops = 2.0 * static_cast<double>(model.bytes_read_a_step()) / 2 * prompt;
    const double peak = peaks(context.device).flops;
    row(name + ", prefill of 512 tokens, one sequence", prefill_ms, "ms",
        peak > 0 ? flops / (prefill_ms * 1e-3) / peak : 0, 0);
  }
}

}  // namespace gpu_bench
