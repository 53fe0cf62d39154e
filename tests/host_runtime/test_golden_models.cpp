// Every architecture against Hugging Face transformers: tests/data/golden, written by scripts/golden/make_golden.py.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/simd.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/safetensors.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/cpu/cpu_backend.h"

namespace test_golden_models {

using namespace csdsim;
using namespace csdsim::host;

namespace {

const std::filesystem::path kSource = CSDSIM_SOURCE_DIR;

// Relative to the largest logit. fp32: transformers in fp32 against the CPU backend with fp32 K, V and attention
// output; weights are those stored (fp16, bf16 or fp32), arithmetic is fp32 in both. Measured: 9.7e-7 at most.
constexpr float kFullTolerance = 1e-4f;
// fp16: transformers with all arithmetic in fp16 against fp32 arithmetic with q, K, V and attention output in fp16.
// Measured: 2.1e-3 at most; transformers in fp16 is up to 6.9e-3 from itself in fp32.
constexpr float kHalfTolerance = 1e-2f;

constexpr const char* kModels[] = {"opt",   "opt350", "llama", "llama3", "qwen2",       "mistral",
                                   "qwen3", "biased", "yarn",  "opt-6m", "llama-gqa-6m"};

struct Golden {
  explicit Golden(const std::string& name)
      : directory(is_directory(kSource / "models" / name) ? kSource / "models" / name
                                                          : kSource / "tests/data/golden" / name),
        answers(kSource / "tests/data/golden" / name / "logits.safetensors"),
        checkpoint(open_checkpoint(directory)) {
    const auto document = nlohmann::json::parse(std::ifstream(kSource / "tests/data/golden" / name / "golden.json"));
    for (const auto& id : document["tokens"]) tokens.emplace_back(id.get<std::uint32_t>());
    prompt = document["prompt_tokens"];
    positions = document["positions"].get<std::vector<std::uint32_t>>();
    margins = document["margins"].get<std::vector<float>>();
    scale = document["max_abs_logit"];
  }

  std::vector<float> logits(const std::string& name) const {
    const StoredTensor tensor = answers.tensor(name);
    std::vector<float> values(positions.size() * checkpoint.config.vocab);
    REQUIRE(tensor.bytes.size() == values.size() * element_size(tensor.type));
    if (tensor.type == ElementType::f32) {
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    } else {
      std::vector<Half> halves(values.size());
      std::memcpy(halves.data(), tensor.bytes.data(), tensor.bytes.size());
      simd::widen(halves.data(), values.data(), halves.size());
    }
    return values;
  }

  std::filesystem::path directory;
  SafetensorsFile answers;
  Checkpoint checkpoint;
  CpuBackend backend;
  std::vector<TokenId> tokens;
  std::uint32_t prompt = 0;
  std::vector<std::uint32_t> positions;
  std::vector<float> margins;  // margins of the greedy tokens, top 1 over top 2
  float scale = 0;             // largest |logit|
};

// `logits` are those of positions first, first + 1, ...; returns the largest difference over the scale.
float worst_error(const Golden& golden, const std::string& which, const std::vector<float>& logits,
                  std::uint32_t first) {
  const std::vector<float> expected = golden.logits(which);
  const std::size_t vocab = golden.checkpoint.config.vocab;
  float worst = 0;
  for (std::size_t p = 0; p < golden.positions.size(); ++p) {
    if (golden.positions[p] < first) continue;
    const float* const row = logits.data() + (golden.positions[p] - first) * vocab;
    for (std::size_t i = 0; i < vocab; ++i) worst = std::max(worst, std::abs(row[i] - expected[p * vocab + i]));
  }
  return worst / golden.scale;
}

struct Greedy {
  std::uint32_t equal = 0;
  std::uint32_t ties = 0;  // other token, but the margin is within the tolerance
  std::uint32_t different = 0;
};

// By teacher forcing: every step is judged on the golden tokens before it.
Greedy greedy_tokens(const Golden& golden, const std::vector<float>& logits, std::uint32_t first, float tolerance) {
  const std::size_t vocab = golden.checkpoint.config.vocab;
  Greedy result;
  for (std::size_t step = 0; step < golden.margins.size(); ++step) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>((golden.prompt + step - 1 - first) * vocab);
    const auto best = static_cast<std::uint32_t>(std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row);
    if (best == golden.tokens[golden.prompt + step].value) {
      ++result.equal;
    } else if (golden.margins[step] <= tolerance * golden.scale) {
      ++result.ties;
    } else {
      ++result.different;
    }
  }
  return result;
}

}  // namespace

TEST_CASE("fp32: logits and 512 greedy tokens of transformers, every architecture and weight type") {
  for (const char* name : kModels) {
    Golden golden(name);
    const auto decoder =
        make_decoder(golden.checkpoint.config, *golden.checkpoint.weights, golden.backend, KvPrecision::f32);
    HostAttention attention(decoder->config(), std::make_unique<DenseAttention>(), QueryPrecision::f32);
    attention.create_sequence(SequenceId{0});
    const SequenceSlice slice{SequenceId{0}, static_cast<std::uint32_t>(golden.tokens.size())};
    const auto logits = decoder->logits(prefill(*decoder, attention, {&slice, 1}, golden.tokens));
    const float error = worst_error(golden, "logits_f32", logits, 0);
    const Greedy greedy = greedy_tokens(golden, logits, 0, kFullTolerance);
    INFO(name << ": error " << error << ", tokens equal " << greedy.equal << ", ties " << greedy.ties);
    CHECK(error <= kFullTolerance);
    CHECK(greedy.different == 0);
    CHECK(greedy.equal + greedy.ties == 512);
  }
}

TEST_CASE("fp16: logits and 512 greedy tokens of the decode path, with K and V in an fp16 cache") {
  for (const char* name : kModels) {
    Golden golden(name);
    const auto decoder = make_decoder(golden.checkpoint.config, *golden.checkpoint.weights, golden.backend);
    HostAttention attention(decoder->config(), std::make_unique<DenseAttention>());
    const SequenceId sequence{0};
    attention.create_sequence(sequence);
    const SequenceSlice slice{sequence, golden.prompt};
    const std::uint32_t first = golden.prompt - 1;
    auto logits = decoder->logits(
        prefill(*decoder, attention, {&slice, 1}, std::span(golden.tokens).first(golden.prompt)), {{first}});
    for (std::uint32_t i = golden.prompt; i < golden.tokens.size(); ++i) {
      const TokenIndex position{i};
      const auto next = decode_step(*decoder, attention, {&sequence, 1}, {&golden.tokens[i], 1}, {&position, 1});
      logits.insert(logits.end(), next.begin(), next.end());
    }
    const float error = worst_error(golden, "logits_f16", logits, first);
    const Greedy greedy = greedy_tokens(golden, logits, first, kHalfTolerance);
    INFO(name << ": error " << error << ", tokens equal " << greedy.equal << ", ties " << greedy.ties);
    CHECK(error <= kHalfTolerance);
    CHECK(greedy.different == 0);
    CHECK(greedy.equal + greedy.ties == 512);
  }
}

TEST_CASE("config.json gives rotary positions in all forms that transformers reads") {
  // One set of weights under the configs of rotary.json, written by scripts/golden/rotary_golden.py.
  const std::filesystem::path data = kSource / "tests/data/golden";
  const auto document = nlohmann::json::parse(std::ifstream(data / "rotary.json"));
  auto shape = nlohmann::json::parse(std::ifstream(data / "llama3/config.json"));
  shape.erase("rope_parameters");
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("csdsim-rotary-{}", getpid());
  std::filesystem::create_directory(folder);
  for (const auto& entry : std::filesystem::directory_iterator(data / "llama3"))
    if (entry.path().filename().string().starts_with("model"))
      std::filesystem::copy_file(entry.path(), folder / entry.path().filename());
  CHECK(document["cases"].size() >= 36);
  for (const auto& entry : document["cases"]) {
    INFO(entry["name"]);
    auto config = shape;
    config.update(entry["config"]);
    std::ofstream(folder / "config.json") << config;
    const Checkpoint checkpoint = open_checkpoint(folder);
    CpuBackend backend;
    const auto decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend, KvPrecision::f32);
    std::vector<TokenId> prompt;
    for (std::uint32_t i = 0; i < entry["prompt_tokens"]; ++i) prompt.emplace_back(i * 37 % 500 + 2);
    HostAttention attention(checkpoint.config, std::make_unique<DenseAttention>(), QueryPrecision::f32);
    const SequenceId sequence{0};
    attention.create_sequence(sequence);
    const SequenceSlice slice{sequence, static_cast<std::uint32_t>(prompt.size())};
    const std::uint32_t last = slice.tokens - 1;
    std::vector<float> logits = decoder->logits(prefill(*decoder, attention, {&slice, 1}, prompt), {{last}});
    // Each token is the largest logit of the step before it.
    TokenIndex position{slice.tokens};
    for (const auto& id : entry["tokens"]) {
      const TokenId token{id.get<std::uint32_t>()};
      CHECK(std::max_element(logits.begin(), logits.end()) - logits.begin() == token.value);
      logits = decode_step(*decoder, attention, {&sequence, 1}, {&token, 1}, {&position, 1});
      ++position.value;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace test_golden_models
