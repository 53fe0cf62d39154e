// The GPU against Hugging Face transformers: every architecture and weight type, in fp16 and bf16, through the prefill
// of whole texts and through decode steps. fp16 is held against transformers in fp16, within 1e-2 of the largest logit;
// bf16 against transformers in fp32, within 5e-2. Greedy tokens are judged by teacher forcing: another token counts
// where the margin of the two likeliest exceeds the bound.
#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>

#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/cuda/cuda_backend.h"
#include "host_runtime/cuda/dense_model.h"
#include "tests/gpu/golden.h"
#include "tests/gpu/harness.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;
using namespace gpu_test;

cuda::Context& context() {
  static cuda::Context instance;
  return instance;
}

template <class T>
constexpr double kBound = std::is_same_v<T, __half> ? 1e-2 : 5e-2;
template <class T>
constexpr const char* kReference = std::is_same_v<T, __half> ? "logits_f16" : "logits_f32";

// `logits` are those of positions first, first + 1, ..., as many as there are.
template <class T>
void check(const Golden& golden, const std::string& what, const std::vector<float>& logits, std::uint32_t first) {
  const std::vector<float> expected = golden.answers.floats(kReference<T>);
  const std::size_t vocab = golden.config.vocab, rows = logits.size() / vocab;
  double worst = 0;
  std::size_t compared = 0;
  for (std::size_t p = 0; p < golden.positions.size(); ++p) {
    if (golden.positions[p] < first || golden.positions[p] >= first + rows) continue;
    const float* row = logits.data() + (golden.positions[p] - first) * vocab;
    for (std::size_t i = 0; i < vocab; ++i) {
      const double off = std::abs(double{row[i]} - double{expected[p * vocab + i]});
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    ++compared;
  }
  std::size_t equal = 0, ties = 0, different = 0;
  for (std::size_t step = 0; step < golden.margins.size(); ++step) {
    const std::size_t position = golden.prompt + step - 1;  // whose logits choose the token
    if (position < first || position >= first + rows) continue;
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>((position - first) * vocab);
    const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row;
    if (best == golden.tokens[golden.prompt + step].value) {
      ++equal;
    } else {
      ++(golden.margins[step] <= kBound<T> * golden.scale ? ties : different);
    }
  }
  note(what + ": error " + std::to_string(worst / golden.scale) + " at " + std::to_string(compared) +
       " positions, greedy tokens equal " + std::to_string(equal) + ", ties " + std::to_string(ties));
  EXPECT(compared > 0 && equal > 0);
  EXPECT(worst / golden.scale <= kBound<T>);
  EXPECT(different == 0);
}

/// Emulated, most texts are cut short.
std::uint32_t length(const Golden& golden, const std::string& name) {
  const auto all = static_cast<std::uint32_t>(golden.tokens.size());
  return kEmulated && name != "llama" ? std::min(all, 80u) : all;
}

template <class T>
void test_prefill(const std::string& name) {
  const Golden golden(name);
  const std::uint32_t count = length(golden, name);
  cuda::CudaBackend<T> backend(context());
  const auto decoder = make_decoder(golden.config, golden.weights, backend);
  const auto attention =
      backend.make_attention(golden.config, configure_method("dense", {}, golden.config.head_dim), QueryPrecision::f16);
  attention->create_sequence(SequenceId{0});
  const SequenceSlice slice{SequenceId{0}, count};
  const auto hidden = prefill(*decoder, *attention, {&slice, 1}, std::span(golden.tokens).first(count));
  check<T>(golden, name + ", prefill", decoder->logits(hidden), 0);
}

template <class T>
void test_decode(const std::string& name) {
  const Golden golden(name);
  const std::uint32_t all = length(golden, name);
  cuda::DenseModel<T> model(context(), golden.config, golden.weights, 1, all);
  // Emulated, the steps before the last few are left to the prefill.
  const std::uint32_t prompt = kEmulated ? all - 17 : golden.prompt;
  std::vector<float> logits = model.prefill(0, std::span(golden.tokens).first(prompt));
  for (std::uint32_t at = prompt; at < all; ++at) {
    const TokenIndex position{at};
    const auto row = model.decode({&golden.tokens[at], 1}, {&position, 1});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  check<T>(golden, name + ", decode", logits, prompt - 1);
}

template <class T>
void test_format() {
  if (!std::is_same_v<T, __half> && context().device.compute_capability < 80) return;
  for (const char* name : {"opt", "llama", "llama3", "qwen2", "mistral", "qwen3", "biased", "yarn"}) {
    if (kEmulated && !std::is_same_v<T, __half> && name != std::string("llama3")) continue;
    test_prefill<T>(name);
    test_decode<T>(name);
  }
  if (kEmulated) return;  // too large for the emulation
  for (const char* name : {"opt-6m", "llama-gqa-6m"}) {
    test_prefill<T>(name);
    test_decode<T>(name);
  }
}

GPU_TEST("logits and 512 greedy tokens of transformers, fp16") { test_format<__half>(); }
GPU_TEST("logits and 512 greedy tokens of transformers, bf16") { test_format<__nv_bfloat16>(); }

}  // namespace

int main(int argc, char** argv) { return gpu_test::run(argc, argv, true); }
