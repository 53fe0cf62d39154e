// Whole models on the GPU against the CPU backend, which computes in fp32 from the same fp16 weights and cache. The
// bound is on the largest difference of logits relative to the largest logit: 1e-2 in fp16, 5e-2 in bf16.
#include <span>
#include <type_traits>

#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "host_runtime/cuda/cuda_backend.h"
#include "host_runtime/cuda/dense_model.h"
#include "host_runtime/cuda/fused_decoder.h"
#include "host_runtime/cuda/offloaded_model.h"
#include "tests/gpu/random_model.h"
#include "tests/gpu/reference.h"
#include "tests/gpu/tokens.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;
using namespace gpu_test;

cuda::Context& context() {
  static cuda::Context instance;
  return instance;
}

ModelConfig model(Architecture architecture, std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t head_dim) {
  ModelConfig c;
  c.architecture = architecture;
  c.layers = kEmulated ? 2 : 3;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.width = heads * head_dim;
  c.ffn = kEmulated ? c.width : 3 * c.width;
  c.vocab = kEmulated ? 101 : 501;
  c.max_positions = 256;
  c.tied_embeddings = architecture != Architecture::llama;
  return c;
}

/// A Llama with biases everywhere, whose rotary positions are scaled by YaRN.
ModelConfig biased(std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t head_dim) {
  ModelConfig c = model(Architecture::llama, heads, kv_heads, head_dim);
  c.attention_biases = c.ffn_biases = true;
  c.rotary.scaling = YarnRopeScaling{.factor = 4, .magnitude = 1.2f, .original_positions = 64};
  return c;
}

constexpr std::uint32_t kPrompt = kEmulated ? 17 : 40, kSteps = kEmulated ? 3 : 12;

/// A Llama whose rotary positions change with every context of more than `positions` tokens.
ModelConfig dynamic(std::uint32_t positions) {
  ModelConfig c = model(Architecture::llama, 2, 1, 16);
  c.rotary.scaling = DynamicRopeScaling{.factor = 8, .original_positions = positions};
  return c;
}

std::vector<ModelConfig> models() {
  if (kEmulated)
    return {model(Architecture::opt, 1, 1, 64),
            model(Architecture::qwen2, 4, 2, 16),
            model(Architecture::qwen3, 2, 1, 16),
            biased(2, 1, 16),
            dynamic(kPrompt / 2),
            dynamic(kPrompt + 1)};
  return {model(Architecture::opt, 4, 4, 64),
          model(Architecture::llama, 8, 2, 64),
          model(Architecture::llama, 2, 1, 128),
          model(Architecture::qwen2, 6, 2, 32),
          model(Architecture::qwen3, 4, 2, 96),
          biased(4, 2, 64),
          dynamic(kPrompt / 2),
          dynamic(kPrompt + 1)};
}

/// Logits of the prompt's last token, then of every forced token, all in one row.
Floats forced_logits(const Decoder& decoder, AttentionProvider& attention, std::span<const TokenId> tokens) {
  const SequenceSlice slice{SequenceId{0}, kPrompt};
  attention.create_sequence(slice.sequence);
  const std::uint32_t last = kPrompt - 1;
  Floats all = decoder.logits(prefill(decoder, attention, {&slice, 1}, tokens.first(kPrompt)), {&last, 1});
  for (std::uint32_t at = kPrompt; at < tokens.size(); ++at) {
    const TokenIndex position{at};
    const Floats step = decode_step(decoder, attention, {&slice.sequence, 1}, tokens.subspan(at, 1), {&position, 1});
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

Floats forced(const ModelConfig& config, const WeightSource& weights, Backend& backend, std::span<const TokenId> tokens,
              std::string_view method = "dense") {
  const auto decoder = make_decoder(config, weights, backend);
  const auto attention =
      backend.make_attention(config, configure_method(method, {}, config.head_dim), QueryPrecision::f16);
  return forced_logits(*decoder, *attention, tokens);
}

/// The decoder of the command line, with dense attention on the GPU.
template <class T>
Floats forced_fused(const ModelConfig& config, const WeightSource& weights, std::span<const TokenId> tokens) {
  cuda::CudaBackend<T> gpu(context());
  const auto decoder = cuda::make_gpu_decoder(gpu, context(), config, weights);
  EXPECT(dynamic_cast<const cuda::FusedDecoder<T>*>(decoder.get()) != nullptr);
  const auto attention =
      gpu.make_attention(config, configure_method("dense", {}, config.head_dim), QueryPrecision::f16);
  return forced_logits(*decoder, *attention, tokens);
}

template <class T>
void test_backend(double bound) {
  for (const ModelConfig& config : models()) {
    const RandomWeights weights(config, 7);
    const auto tokens = some_tokens(kPrompt + kSteps, config.vocab, 8);
    CpuBackend cpu;
    cuda::CudaBackend<T> gpu(context());
    const Floats expected = forced(config, weights, cpu, tokens);
    EXPECT_WITHIN(forced(config, weights, gpu, tokens), expected, bound);
    EXPECT_WITHIN(forced_fused<T>(config, weights, tokens), expected, bound);
  }
}

template <class T>
void test_dense_model(double bound) {
  for (const ModelConfig& config : models()) {
    const RandomWeights weights(config, 7);
    const auto tokens = some_tokens(kPrompt + kSteps, config.vocab, 8);
    CpuBackend cpu;
    const Floats expected = forced(config, weights, cpu, tokens);
    // The sequence under test in every slot: rows of a step must not mix. Nine slots go through cuBLASLt.
    for (const std::uint32_t slots : {1u, 3u, 9u}) {
      if (kEmulated && slots == 3) continue;
      cuda::DenseModel<T> dense(context(), config, weights, slots, 64);
      std::vector<Floats> found(slots);
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        found[slot] = dense.prefill(slot, std::span(tokens).first(kPrompt));
      }
      for (std::uint32_t at = kPrompt; at < tokens.size(); ++at) {
        const auto logits = dense.decode(std::vector(slots, tokens[at]), std::vector(slots, TokenIndex{at}));
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
          const auto row = logits.subspan(std::size_t{slot} * config.vocab, config.vocab);
          found[slot].insert(found[slot].end(), row.begin(), row.end());
        }
      }
      for (const Floats& row : found) EXPECT_WITHIN(row, expected, bound);
    }
  }
}

GPU_TEST("the backend computes the models of the CPU, fp16") { test_backend<__half>(1e-2); }

GPU_TEST("the backend computes the models of the CPU, bf16") {
  if (context().device.compute_capability >= 80) test_backend<__nv_bfloat16>(5e-2);
}

GPU_TEST("the dense model with its graph computes the models of the CPU, fp16") { test_dense_model<__half>(1e-2); }

GPU_TEST("the dense model with its graph computes the models of the CPU, bf16") {
  if (context().device.compute_capability >= 80) test_dense_model<__nv_bfloat16>(5e-2);
}

GPU_TEST("every attention method, attending on the GPU, computes the model of the CPU") {
  const ModelConfig config = kEmulated ? model(Architecture::llama, 2, 1, 16) : model(Architecture::llama, 4, 2, 64);
  const RandomWeights weights(config, 17);
  const auto tokens = some_tokens(kPrompt + kSteps, config.vocab, 18);
  CpuBackend cpu;
  cuda::CudaBackend<__half> gpu(context());
  for (const MethodInfo& info : attention_methods()) {
    const Floats expected = forced(config, weights, cpu, tokens, info.name);
    const Floats found = forced(config, weights, gpu, tokens, info.name);
    note(std::string(info.name) + ": " + std::to_string(relative_error(found, expected)));
    // A rounding may change which token a sparse method keeps last; test_attention is the sharper test.
    EXPECT_WITHIN(found, expected, (info.name == "dense" || kEmulated ? 1e-2 : 0.5));
  }
}

GPU_TEST("ragged prompts: greedy tokens are those of the CPU up to near ties") {
  // With dynamic positions all sequences of a step turn as the longest one does.
  for (const ModelConfig& config :
       {kEmulated ? model(Architecture::llama, 2, 1, 64) : model(Architecture::llama, 8, 2, 64), dynamic(16)}) {
    const RandomWeights weights(config, 27);
    std::vector<std::vector<TokenId>> prompts;
    for (const std::size_t length : {5u, 33u, 64u}) prompts.push_back(some_tokens(length, config.vocab, 30 + length));
    GenerationOptions options;
    options.max_new_tokens = kEmulated ? 4 : 24;
    CpuBackend cpu;
    const auto decoder = make_decoder(config, weights, cpu);
    const auto expected = generate_on_host(*decoder, std::make_unique<DenseAttention>(), prompts, options);
    cuda::DenseModel<__half> dense(context(), config, weights, 3, 128);
    const auto found = dense.generate(prompts, options);
    for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT(found[i].size() == options.max_new_tokens);
    expect_near_ties(*decoder, prompts, found, expected, 2e-2f);
  }
}

template <class Make>
std::string refusal(Make make) {
  try {
    make();
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

GPU_TEST("a run on streams refuses a context that changes dynamic positions, and no shorter one") {
  const ModelConfig config = dynamic(16);
  const RandomWeights weights(config, 28);
  const auto reason = [&](std::uint32_t prompt) {
    return refusal([&] { cuda::OffloadedModel<__half>(context(), config, weights, {prompt}, 2, {}); });
  };
  EXPECT(reason(12).empty());
  EXPECT(reason(20).find("changes the dynamic rotary positions of this model") != std::string::npos);
}

GPU_TEST("tensors that nobody reads and heads that are not tied are refused, as on the CPU") {
  for (const Architecture family : {Architecture::opt, Architecture::qwen2}) {
    const ModelConfig config = model(family, 2, 1 + (family == Architecture::opt), 16);
    const auto refusals = [&](const RandomWeights& weights) {
      CpuBackend cpu;
      cuda::CudaBackend<__half> gpu(context());
      const std::vector<std::string> all{
          refusal([&] { make_decoder(config, weights, cpu); }),
          refusal([&] { cuda::make_gpu_decoder(gpu, context(), config, weights); }),
          refusal([&] { cuda::DenseModel<__half>(context(), config, weights, 1, 16); }),
          refusal([&] { cuda::OffloadedModel<__half>(context(), config, weights, {3}, 2, {}); })};
      for (const std::string& reason : all) EXPECT(reason == all.front());
      return all.front();
    };
    const std::string table =
        family == Architecture::opt ? "model.decoder.embed_tokens.weight" : "model.embed_tokens.weight";
    RandomWeights weights(config, 41);
    EXPECT(refusals(weights).empty());
    weights.add_copy("lm_head.weight", table);
    EXPECT(refusals(weights).empty());
    RandomWeights other(config, 42);
    other.add_matrix("lm_head.weight", config.vocab, config.width);
    EXPECT(refusals(other).find("lm_head.weight") != std::string::npos);
    RandomWeights unread(config, 43);
    unread.add_matrix("model.layers.7.adapter.weight", 4, 4);
    EXPECT(refusals(unread).find("model.layers.7.adapter.weight") != std::string::npos);
  }
}

}  // namespace

int main(int argc, char** argv) { return gpu_test::run(argc, argv, true); }
