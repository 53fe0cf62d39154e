// The decoder and its loops on opt-6m.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "host_runtime/core/decoder/generation.h"
#include "tests/host_runtime/opt_6m.h"

namespace test_generation {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;
using csdsim::test::opt_6m;

namespace {

// Two runs of the same context may differ by this much in a logit: K and V round to fp16 on either side of a tie.
constexpr float kLogitTolerance = 0.02f;

std::vector<float> logits_row(const std::vector<float>& logits, std::size_t row) {
  const auto vocab = static_cast<std::ptrdiff_t>(opt_6m().checkpoint.config.vocab);
  const auto at = static_cast<std::ptrdiff_t>(row) * vocab;
  return {logits.begin() + at, logits.begin() + at + vocab};
}

float max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

std::unique_ptr<AttentionMethod> dense() { return std::make_unique<DenseAttention>(); }

// Prefills one sequence into `attention`.
HiddenStates prefill_one(AttentionProvider& attention, SequenceId sequence, const std::vector<TokenId>& tokens) {
  attention.create_sequence(sequence);
  const SequenceSlice slice{sequence, static_cast<std::uint32_t>(tokens.size())};
  return prefill(*opt_6m().decoder, attention, {&slice, 1}, tokens);
}

class NoRelu final : public CpuBackend {
 public:
  std::string_view name() const override { return "no-relu"; }
  bool supports(Operator op) const override { return op != Operator::relu; }
};

}  // namespace

TEST_CASE("k and v are fp16 numbers, q is not") {
  const Decoder& decoder = *opt_6m().decoder;
  const auto tokens = opt_6m().tokens(0, 12);
  std::vector<TokenIndex> positions;
  for (std::uint32_t i = 0; i < 12; ++i) positions.push_back(TokenIndex{i});
  const AttentionInputs inputs = decoder.attention_inputs(LayerId{2}, decoder.embed(tokens, positions));
  const auto through_half = [&](const Tensor& tensor) {
    return decoder.to_host_float(decoder.from_host(decoder.to_host(tensor), tensor.cols));
  };
  CHECK(through_half(inputs.k) == decoder.to_host_float(inputs.k));
  CHECK(through_half(inputs.v) == decoder.to_host_float(inputs.v));
  CHECK(through_half(inputs.q) != decoder.to_host_float(inputs.q));
}

TEST_CASE("prefill and decode by teacher forcing equal one full prefill") {
  const Decoder& decoder = *opt_6m().decoder;
  const auto tokens = opt_6m().tokens(1000, 300);
  HostAttention whole(decoder.config(), dense(), QueryPrecision::f32),
      stepwise(decoder.config(), dense(), QueryPrecision::f32);
  const auto full = decoder.logits(prefill_one(whole, SequenceId{0}, tokens));
  prefill_one(stepwise, SequenceId{0}, {tokens.begin(), tokens.begin() + 100});
  const SequenceId sequence{0};
  for (std::uint32_t i = 100; i < 300; ++i) {
    const TokenIndex position{i};
    const auto logits = decode_step(decoder, stepwise, {&sequence, 1}, {&tokens[i], 1}, {&position, 1});
    INFO("position " << i);
    REQUIRE(max_difference(logits, logits_row(full, i)) < kLogitTolerance);
  }
}

// What KVPR (arXiv 2411.17089) rests on: dense attention over K and V of which any part was recomputed.
TEST_CASE("K and V recomputed from the inputs of the layers, for any part of the context, give the same next logits") {
  for (const char* name : {"opt", "opt350", "llama", "qwen2"}) {
    CpuBackend backend;
    const Checkpoint checkpoint =
        open_checkpoint(std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/data/golden" / name);
    const auto decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
    constexpr std::uint32_t kPrompt = 39;
    std::vector<TokenId> tokens;
    std::vector<TokenIndex> positions;
    std::vector<std::uint32_t> rows;
    for (std::uint32_t i = 0; i < kPrompt; ++i) {
      tokens.emplace_back((i * 37 + 5) % checkpoint.config.vocab);
      positions.emplace_back(i);
      rows.push_back(i);
    }
    const auto first_rows = [&](const Tensor& from, std::uint32_t count) {
      Tensor part = backend.allocate(count, from.cols);
      backend.select_rows(from, std::span(rows).first(count), part);
      return part;
    };
    struct Layer {
      Tensor input;
      std::vector<Half> k, v;
    };
    std::vector<Layer> layers;
    HiddenStates hidden = decoder->embed(tokens, positions);
    for (LayerId layer{0}; layer.value < checkpoint.config.layers; ++layer.value) {
      const AttentionInputs inputs = decoder->attention_inputs(layer, hidden);
      layers.push_back({first_rows(hidden.values, kPrompt), decoder->to_host(inputs.k), decoder->to_host(inputs.v)});
      decoder->finish_layer(layer, hidden, decoder->prefill_attention(inputs, {{kPrompt}}));
    }
    std::vector<float> cached;
    for (const std::uint32_t recomputed : {0U, 1U, 17U, kPrompt}) {
      CAPTURE(name, recomputed);
      HostAttention attention(checkpoint.config, dense());
      const SequenceId sequence{0};
      attention.create_sequence(sequence);
      for (LayerId layer{0}; layer.value < checkpoint.config.layers; ++layer.value) {
        std::vector<Half> k = layers[layer.value].k, v = layers[layer.value].v;
        if (recomputed > 0) {
          const HiddenStates part{first_rows(layers[layer.value].input, recomputed),
                                  {positions.begin(), positions.begin() + recomputed}};
          const AttentionInputs again = decoder->attention_inputs(layer, part);
          std::ranges::copy(decoder->to_host(again.k), k.begin());
          std::ranges::copy(decoder->to_host(again.v), v.begin());
        }
        const SequenceSlice slice{sequence, kPrompt};
        attention.store(layer, {&slice, 1}, k, v);
      }
      const TokenId next{7};
      const TokenIndex position{kPrompt};
      const auto logits = decode_step(*decoder, attention, {&sequence, 1}, {&next, 1}, {&position, 1});
      if (recomputed == 0) cached = logits;
      const float largest = std::abs(*std::ranges::max_element(logits, {}, [](float x) { return std::abs(x); }));
      CHECK(max_difference(logits, cached) <= 5e-3f * largest);
    }
  }
}

TEST_CASE("a ragged batch equals single runs") {
  const Decoder& decoder = *opt_6m().decoder;
  const std::vector<std::uint32_t> lengths{1, 15, 16, 17, 130};
  HostAttention batch(decoder.config(), dense()), single(decoder.config(), dense());
  std::vector<SequenceId> sequences;
  std::vector<SequenceSlice> slices;
  std::vector<TokenId> flat, next;
  std::vector<TokenIndex> positions;
  std::vector<std::uint32_t> last;
  for (std::uint32_t s = 0; s < lengths.size(); ++s) {
    const auto tokens = opt_6m().tokens(500 * s, lengths[s] + 1);
    sequences.push_back(SequenceId{s});
    slices.push_back({SequenceId{s}, lengths[s]});
    flat.insert(flat.end(), tokens.begin(), tokens.end() - 1);
    last.push_back(static_cast<std::uint32_t>(flat.size() - 1));
    next.push_back(tokens.back());
    positions.push_back(TokenIndex{lengths[s]});
    batch.create_sequence(SequenceId{s});
  }
  const auto prefilled = decoder.logits(prefill(decoder, batch, slices, flat), last);
  const auto decoded = decode_step(decoder, batch, sequences, next, positions);

  HostAttention rebatched(decoder.config(), dense());
  for (std::uint32_t s = 0; s < lengths.size(); ++s) {
    const auto tokens = opt_6m().tokens(500 * s, lengths[s]);
    const std::uint32_t last_row = lengths[s] - 1;
    const auto alone = decoder.logits(prefill_one(single, SequenceId{s}, tokens), {&last_row, 1});
    CHECK(max_difference(alone, logits_row(prefilled, s)) < kLogitTolerance);
    prefill_one(rebatched, SequenceId{s}, tokens);
  }
  // From the same KV cache, decode rows are equal bit for bit whatever the batch.
  const auto together = decode_step(decoder, rebatched, sequences, next, positions);
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const auto alone = decode_step(decoder, single, {&sequences[s], 1}, {&next[s], 1}, {&positions[s], 1});
    CHECK(alone == logits_row(together, s));
    CHECK(max_difference(alone, logits_row(decoded, s)) < kLogitTolerance);
  }
}

TEST_CASE("generation repeats itself for a seed, and ends where it should") {
  const Decoder& decoder = *opt_6m().decoder;
  const std::vector<std::vector<TokenId>> prompts{opt_6m().tokens(0, 40), opt_6m().tokens(300, 7)};
  GenerationOptions options;
  options.max_new_tokens = 30;
  options.sampling = {.temperature = 1.0f, .seed = 5};
  const auto first = generate_on_host(decoder, dense(), prompts, options);
  REQUIRE(first.size() == 2);
  CHECK(first[0].size() == 30);
  CHECK(first[1].size() == 30);
  CHECK(generate_on_host(decoder, dense(), prompts, options) == first);
  // Teacher-forced logits give the same tokens, but where the random number falls within the tolerance of an edge.
  for (std::size_t p = 0; p < 2; ++p) {
    std::vector<TokenId> context = prompts[p];
    context.insert(context.end(), first[p].begin(), first[p].end());
    HostAttention attention(decoder.config(), dense());
    const auto logits = decoder.logits(prefill_one(attention, SequenceId{0}, context));
    int differing = 0;
    for (std::size_t i = 0; i < 30; ++i) {
      differing += sample(logits_row(logits, prompts[p].size() - 1 + i), options.sampling, p, i) != first[p][i];
    }
    CHECK(differing <= 1);
  }
  options.sampling.seed = 6;
  CHECK(generate_on_host(decoder, dense(), prompts, options) != first);

  options.sampling = {};
  const auto greedy = generate_on_host(decoder, dense(), prompts, options);
  // Greedy tokens are the argmax of teacher-forced logits.
  std::vector<TokenId> context = prompts[1];
  context.insert(context.end(), greedy[1].begin(), greedy[1].end());
  HostAttention attention(decoder.config(), dense());
  const auto logits = decoder.logits(prefill_one(attention, SequenceId{0}, context));
  for (std::size_t i = 0; i < 30; ++i) {
    const auto row = logits_row(logits, prompts[1].size() - 1 + i);
    CHECK(row[greedy[1][i].value] > *std::max_element(row.begin(), row.end()) - kLogitTolerance);
  }
  options.stop = greedy[0][4];
  const auto stopped = generate_on_host(decoder, dense(), prompts, options);
  const auto stop_at = std::find(greedy[0].begin(), greedy[0].end(), *options.stop);
  CHECK(stopped[0] == std::vector<TokenId>(greedy[0].begin(), stop_at + 1));

  options.max_new_tokens = 0;
  CHECK(generate_on_host(decoder, dense(), prompts, options) == std::vector<std::vector<TokenId>>(2));
}

TEST_CASE("mistakes of the user are named") {
  const Decoder& decoder = *opt_6m().decoder;
  GenerationOptions options;
  options.max_new_tokens = 9;
  const auto run = [&](std::vector<TokenId> prompt) { return generate_on_host(decoder, dense(), {prompt}, options); };
  CHECK_THROWS_WITH(run({}), Contains("prompt 0 is empty"));
  CHECK_THROWS_WITH(run({TokenId{5}, TokenId{4096}}),
                    Contains("token id 4096 (token 1 of the input) is outside the model's vocabulary of 4096"));
  // The last new token takes no position: 2,040 + 9 - 1 fit.
  CHECK(run(opt_6m().tokens(0, 2040))[0].size() == 9);
  CHECK_THROWS_WITH(run(opt_6m().tokens(0, 2041)),
                    Contains("2041 tokens; with 9 new ones") && Contains("longer than the model's 2048 positions"));
  const TokenId token{1};
  const TokenIndex beyond{2048};
  CHECK_THROWS_WITH(decoder.embed({&token, 1}, {&beyond, 1}),
                    Contains("a context of 2049 tokens is longer than the model's 2048 positions"));
  HostAttention attention(decoder.config(), dense());
  CHECK_THROWS_WITH(perplexity(decoder, attention, opt_6m().tokens(0, 100), {64, 32, 2}),
                    Contains("the text has 100 tokens; 2 window(s) of 64 + 32 need 192"));
  CHECK_THROWS_WITH(perplexity(decoder, attention, opt_6m().tokens(0, 100), {0, 32, 1}), Contains("at least 1 and 2"));

  NoRelu lacking;
  CHECK_THROWS_WITH(make_decoder(decoder.config(), *opt_6m().checkpoint.weights, lacking),
                    Contains("backend 'no-relu' cannot run opt: it has no operator 'relu'"));
  ModelConfig other = decoder.config();
  other.architecture = Architecture::llama;
  CHECK_THROWS_WITH(make_decoder(other, *opt_6m().checkpoint.weights, lacking),
                    Contains("'embed_tokens.weight' is missing"));
}

TEST_CASE("SparQ on the model: dense at full budget, close at a quarter, and observed") {
  const Decoder& decoder = *opt_6m().decoder;
  const PerplexityOptions options{512, 64, 2};
  const auto measure = [&](std::unique_ptr<AttentionMethod> method, double* alpha) {
    HostAttention attention(decoder.config(), std::move(method));
    double sum = 0;
    std::size_t count = 0;
    attention.set_observer([&](const HeadObservation& o) {
      for (const float a : o.selection.alpha) sum += a;
      count += o.selection.alpha.size();
    });
    const auto result = perplexity(decoder, attention, opt_6m().text, options);
    CHECK(count == 2 * 63 * decoder.config().layers * decoder.config().heads);
    *alpha = sum / static_cast<double>(count);
    return result.perplexity;
  };
  double alpha = 0;
  const double exact = measure(dense(), &alpha);
  CHECK(alpha == 1.0);
  CHECK(measure(std::make_unique<SparqAttention>(SparqOptions{.components = 8, .tokens = 2048}), &alpha) == exact);
  const double quarter =
      measure(std::make_unique<SparqAttention>(SparqOptions{.components = 32, .tokens = 144, .local = 36}), &alpha);
  INFO("dense " << exact << ", sparq 1/4 " << quarter << ", alpha " << alpha);
  CHECK(std::abs(quarter / exact - 1) < 0.1);  // 126 tokens scored: 0.072 measured
  CHECK(alpha > 0.8);
  CHECK(alpha < 1.0);
  const double tiny =
      measure(std::make_unique<SparqAttention>(SparqOptions{.components = 4, .tokens = 8, .local = 2}), &alpha);
  INFO("sparq r 4, k 8 " << tiny << ", alpha " << alpha);
  CHECK(tiny > 1.05 * exact);
}

}  // namespace test_generation
