// The evaluation protocol on opt-6m.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/attention/attention_local.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/eval/evaluation.h"
#include "host_runtime/core/eval/rounded_kv.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "tests/host_runtime/opt_6m.h"
#include "tests/host_runtime/tiny_checkpoint.h"

namespace test_evaluation {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;
using namespace csdsim::test;

namespace {

EvaluationResult run(const std::vector<EvaluatedSetting>& settings, const EvaluationOptions& options,
                     const EvaluationHooks& hooks = {}) {
  return evaluate(*opt_6m().decoder, opt_6m().text, settings, options, hooks);
}

}  // namespace

TEST_CASE("values that are not finite end evaluation and generation, and the message says where they are") {
  const auto error_of = [](const std::string& tensor, std::size_t index, float value) {
    Tensors weights = tiny_weights(3);
    weights.at("model.decoder." + tensor).values.at(index) = value;
    const TemporaryDirectory directory;
    write_checkpoint(directory.path(), tiny_config(), weights, "F32");
    const Checkpoint checkpoint = open_checkpoint(directory.path());
    CpuBackend backend;
    const auto decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
    std::vector<TokenId> text;
    for (std::uint32_t i = 0; i < 24; ++i) text.push_back(TokenId{i});
    const EvaluationOptions options{.windows = {8, 4, 1}, .recall = {}};
    const std::string evaluated = user_error([&] { evaluate(*decoder, text, {{"dense", {}}}, options); });
    CHECK(evaluated == user_error([&] {
            generate_on_host(*decoder, std::make_unique<DenseAttention>(), {{text.begin(), text.begin() + 8}},
                             {.max_new_tokens = 4, .sampling = {}, .stop = {}});
          }));
    return evaluated;
  };
  const std::string cause = "the model's weights are broken or overflow fp16";
  CHECK(error_of("layers.1.self_attn.k_proj.bias", 5, 1e6f) == "layer 1: K of token 0 of the step is inf: " + cause);
  CHECK(error_of("layers.0.self_attn.v_proj.bias", 0, -1e6f) == "layer 0: V of token 0 of the step is -inf: " + cause);
  CHECK(error_of("final_layer_norm.bias", 3, std::nanf("")) ==
        "the model's logits are not numbers: its weights are "
        "broken or overflow fp16");
}

TEST_CASE("K and V of few bits: more tokens differ as the bits fall, and the traffic is that of the format") {
  const EvaluationOptions options{.windows = {96, 48, 6}, .recall = {}};
  const auto with = [](const char* method, std::uint32_t bits, std::uint32_t group) {
    return EvaluatedSetting{method, {.ratio = {1, 4}}, {.bits = bits, .group = group}};
  };
  const EvaluationResult all = run({with("dense", 16, 64), with("dense", 8, 64), with("dense", 4, 16),
                                    with("dense", 4, 64), with("sparq", 16, 64), with("sparq", 4, 64)},
                                   options);
  const auto loss = [&](std::size_t row) {
    return std::abs(std::log(all.rows[row].perplexity / all.dense_perplexity));
  };
  CHECK(loss(0) == 0);
  CHECK(loss(1) > 0);
  CHECK(loss(1) < 0.02);
  const auto agreement = [&](std::size_t row) {
    return static_cast<double>(all.rows[row].greedy_equal) / static_cast<double>(all.rows[row].tokens_scored);
  };
  CHECK(agreement(0) == 1);
  CHECK(agreement(1) > 0.95);
  CHECK(agreement(3) < agreement(1));
  CHECK(agreement(3) > 0.7);
  const double bits[] = {16, 8.25, 5, 4.25};
  for (std::size_t row = 0; row < 4; ++row) CHECK(all.rows[row].traffic_mean == Approx(bits[row] / 16));
  // SparQ scores 16 components of each token, which come with the scale of their group of 64: 16 bits in place of 4.
  constexpr double kScales = (16.0 - 4.0) / (2 * 64 * 16);
  CHECK(all.rows[5].traffic_mean == Approx(all.rows[4].traffic_mean * 4.25 / 16 + kScales));
  CHECK(all.rows[0].setting == "all");
  CHECK(all.rows[3].setting == "all, 4-bit K and V, groups of 64");
  CHECK(user_error([&] { run({with("dense", 4, 48)}, options); }) ==
        "K and V: groups of 48 elements do not divide heads of 64 elements");
}

TEST_CASE("rounded K and V are what one row of integers and scales stands for") {
  // 1, -0.5, 0.26, 7 in groups of two: scales 1/7 and 1.
  const ModelConfig shape = [] {
    ModelConfig c = opt_6m().decoder->config();
    c.layers = 1, c.heads = c.kv_heads = 1, c.head_dim = 4, c.width = 4;
    return c;
  }();
  HostAttention inner(shape, std::make_unique<DenseAttention>());
  RoundedKv rounded(inner, {.bits = 4, .group = 2}, 4);
  rounded.create_sequence(SequenceId{0});
  std::vector<Half> k(4), out(4);
  const std::vector<float> row{1, -0.5f, 0.26f, 7};
  floats_to_halves(row, k);
  const SequenceSlice slice{SequenceId{0}, 1};
  rounded.store(LayerId{0}, {&slice, 1}, k, k);
  std::vector<float> kept(4);
  halves_to_floats(inner.cache().view(SequenceId{0}, LayerId{0}, KvHead{0}).values, kept);
  CHECK(kept[0] == Approx(1).epsilon(1e-3));
  CHECK(std::abs(kept[1]) == Approx(4.0 / 7).epsilon(1e-3).margin(1.0 / 7));
  CHECK(kept[2] == 0);
  CHECK(kept[3] == 7);
}

TEST_CASE("the protocol: perplexity is that of the plain loop, whatever the batch, and sparf is sparq") {
  EvaluationOptions options{.windows = {96, 20, 3}, .recall = {}};
  const MethodSettings exact{.r = 16, .k = 24, .local = 6};
  const std::vector<EvaluatedSetting> settings{
      {"dense", {}}, {"sparq", exact}, {"sparf", exact}, {"local", {.window = 40}}, {"h2o", {.ratio = {1, 4}}}};
  const EvaluationResult all = run(settings, options);
  REQUIRE(all.rows.size() == 5);
  const auto plain = [&](std::unique_ptr<AttentionMethod> method) {
    HostAttention attention(opt_6m().decoder->config(), std::move(method));
    return perplexity(*opt_6m().decoder, attention, opt_6m().text, options.windows);
  };
  // Rows of a prefill may round differently with the batch.
  const PerplexityResult dense = plain(std::make_unique<DenseAttention>());
  CHECK(all.rows[0].tokens_scored == 57);
  CHECK(all.rows[0].tokens_scored == dense.tokens_scored);
  CHECK(all.rows[0].perplexity == Approx(dense.perplexity).epsilon(2e-3));
  CHECK(all.rows[3].perplexity ==
        Approx(plain(std::make_unique<LocalAttention>(LocalOptions{.tokens = 40})).perplexity).epsilon(5e-3));
  CHECK(
      all.rows[1].perplexity ==
      Approx(
          plain(std::make_unique<SparqAttention>(SparqOptions{.components = 16, .tokens = 24, .local = 6})).perplexity)
          .epsilon(5e-3));

  CHECK(all.rows[0].perplexity == all.dense_perplexity);
  CHECK(all.rows[0].greedy_equal == 57);
  for (const double mean :
       {all.rows[0].alpha_mean, all.rows[0].mass_mean, all.rows[0].kept_mean, all.rows[0].traffic_mean}) {
    CHECK(mean == 1.0);
  }
  CHECK(all.rows[1].perplexity == all.rows[2].perplexity);
  CHECK(all.rows[1].alpha_mean == all.rows[2].alpha_mean);
  CHECK(all.rows[1].alpha_mean != all.rows[1].mass_mean);  // SparQ's alpha is an estimate
  CHECK(all.rows[3].alpha_mean == all.rows[3].mass_mean);
  CHECK(all.rows[4].greedy_equal < 57);

  options.batch = 1;
  const EvaluationResult single = run(settings, options);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    INFO(settings[i].method);
    CHECK(single.rows[i].perplexity == Approx(all.rows[i].perplexity).epsilon(5e-3));
    CHECK(single.rows[i].mass_mean == Approx(all.rows[i].mass_mean).epsilon(1e-3));
  }
}

TEST_CASE("dense perplexity is that of the independent implementation") {
  const auto& golden = opt_6m().golden["dense_perplexity"];
  const EvaluationOptions options{
      .windows = {golden["prefill"].get<std::uint32_t>(), golden["decode"].get<std::uint32_t>(),
                  golden["windows"].get<std::uint32_t>()},
      .recall = {}};
  const EvaluationResult result = run({}, options);
  CHECK(result.dense_perplexity == Approx(golden["perplexity"].get<double>()).epsilon(2e-3));
  std::size_t scored = 0;
  for (const auto& window : result.dense_greedy) scored += window.size();
  CHECK(scored == golden["tokens_scored"].get<std::size_t>());
}

TEST_CASE("perplexity and its spread from the decoder's raw logits, with nothing of the evaluation") {
  constexpr std::uint32_t kPrefill = 60, kDecode = 20, kWindows = 4, kWindow = kPrefill + kDecode;
  const Decoder& decoder = *opt_6m().decoder;
  const std::size_t vocab = decoder.config().vocab;
  std::vector<double> window_nll(kWindows);
  for (std::uint32_t w = 0; w < kWindows; ++w) {
    const auto tokens = opt_6m().tokens(std::size_t{w} * kWindow, kWindow);
    HostAttention attention(decoder.config(), std::make_unique<DenseAttention>());
    attention.create_sequence(SequenceId{0});
    const SequenceSlice slice{SequenceId{0}, kWindow};
    const std::vector<float> logits = decoder.logits(prefill(decoder, attention, {&slice, 1}, tokens));
    // Fed first in decode is token kPrefill; scored are the tokens after it.
    for (std::uint32_t at = kPrefill; at + 1 < kWindow; ++at) {
      double sum = 0;
      for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[at * vocab + i]});
      window_nll[w] += (std::log(sum) - double{logits[at * vocab + tokens[at + 1].value]}) / (kDecode - 1);
    }
  }
  double mean = 0, squares = 0;
  for (const double nll : window_nll) mean += nll / kWindows;
  for (const double nll : window_nll) squares += (nll - mean) * (nll - mean);
  const double error = std::sqrt(squares / (kWindows - 1) / kWindows);

  const EvaluationOptions options{.windows = {kPrefill, kDecode, kWindows}, .recall = {.distances = {40}}};
  const std::vector<EvaluatedSetting> settings{{"dense", {}}, {"local", {.window = 8}}};
  const EvaluationResult result = run(settings, options);
  CHECK(result.dense_perplexity == Approx(std::exp(mean)).epsilon(2e-3));
  CHECK(*result.dense_perplexity_spread == Approx(std::exp(mean) * error).epsilon(5e-3));
  CHECK(result.rows[0].tokens_scored == kWindows * (kDecode - 1));
  CHECK(result.rows[0].perplexity_spread == result.dense_perplexity_spread);
  CHECK(*result.rows[0].ratio_spread == 0);
  CHECK(*result.rows[1].ratio_spread > 0.001);
  CHECK(*result.rows[0].recall_spread > 0.001);
  CHECK(*result.rows[0].recall_spread < 0.5);
  const EvaluationResult single = run(settings, {.windows = {kPrefill, kDecode, 1}, .recall = {}});
  CHECK(!single.dense_perplexity_spread);
  CHECK(!single.rows[1].ratio_spread);
  CHECK(!single.rows[1].recall_spread);
}

TEST_CASE("kept shares and traffic are what the budget says") {
  const EvaluationResult result =
      run({{"local", {.window = 31}}, {"sparq", {.r = 8, .k = 31}}}, {.windows = {100, 2, 1}, .recall = {}});
  CHECK(result.rows[0].kept_mean == Approx(31.0 / 101));  // one step, over 101 tokens
  CHECK(result.rows[0].traffic_mean == Approx(31.0 / 101));
  CHECK(result.rows[1].traffic_mean == Approx((8.0 * 101 + 2 * 31 * 64) / (2 * 101 * 64)));
}

TEST_CASE("recall: a planted span is found in a dense cache and not behind a window") {
  EvaluationOptions options{.windows = {256, 2, 4}, .recall = {.distances = {64, 250}}};
  const EvaluationResult result = run({{"dense", {}}, {"local", {.window = 48}}, {"local", {.window = 130}}}, options);
  for (const EvaluationRow& row : result.rows) {
    REQUIRE(row.recall.size() == 2);
    CHECK(row.recall[0].distance == 64);
    CHECK(row.recall[0].asked == result.rows[0].recall[1].asked);
    CHECK(row.recall[0].asked > 4 * 6);
    CHECK(row.recall[0].asked <= 4 * 24);
  }
  const auto share = [&](std::size_t row, std::size_t d) {
    const RecallPoint& p = result.rows[row].recall[d];
    return static_cast<double>(p.recalled) / static_cast<double>(p.asked);
  };
  INFO(share(0, 0) << " " << share(0, 1) << " " << share(1, 0) << " " << share(2, 0) << " " << share(2, 1));
  CHECK(share(0, 0) > 0.4);
  CHECK(share(0, 1) > 0.3);
  CHECK(share(1, 0) < 0.2);  // the fact is 64 tokens away
  CHECK(share(1, 1) < 0.2);
  CHECK(share(2, 1) < 0.2);
}

TEST_CASE("a fact is a span outside the filler, the same at every distance, another for another seed or window") {
  const auto& text = opt_6m().text;
  RecallOptions options{.distances = {32}};
  const auto first = recall_fact(text, 100, 64, options, 3);
  CHECK(first == recall_fact(text, 100, 64, options, 3));
  CHECK(first != recall_fact(text, 100, 64, options, 4));
  options.seed = 2;
  CHECK(first != recall_fact(text, 100, 64, options, 3));
  // Every start of a short text outside the filler is drawn, none within.
  std::vector<TokenId> numbers;
  for (std::uint32_t i = 0; i < 150; ++i) numbers.push_back(TokenId{i});
  std::vector<std::uint32_t> starts;
  for (std::uint32_t index = 0; index < 2000; ++index) {
    const auto fact = recall_fact(numbers, 50, 60, options, index);
    REQUIRE(fact.size() == 32);
    starts.push_back(fact[0].value);
    CHECK((fact.back().value < 50 || fact.front().value >= 110));
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  CHECK(starts.size() == 19 + 9);
  const auto planted = plant(std::span(numbers).subspan(50, 60), first, 40);
  CHECK(planted.size() == 60);
  CHECK(planted[19] == TokenId{69});
  CHECK(std::equal(first.begin(), first.end(), planted.begin() + 20));
  CHECK(planted[52] == TokenId{102});

  CHECK_THROWS_WITH(recall_fact(numbers, 0, 149, options, 0), Contains("no 32 tokens outside window 0"));
  options.distances = {31};
  CHECK_THROWS_WITH(recall_fact(numbers, 50, 60, options, 0), Contains("distance 31 is not from 32") && Contains("60"));
  options.distances = {61};
  CHECK_THROWS_WITH(recall_fact(numbers, 50, 60, options, 0), Contains("distance 61"));
}

TEST_CASE("what cannot be evaluated is refused before anything runs") {
  CHECK_THROWS_WITH(run({{"sparq", {.r = 65}}}, {.windows = {64, 8, 1}, .recall = {}}), Contains("must be 1 to 64"));
  CHECK_THROWS_WITH(run({}, {.windows = {2040, 100, 1}, .recall = {}}), Contains("2048 positions"));
  CHECK_THROWS_WITH(run({}, {.windows = {64, 8, 4'000'000'000U}, .recall = {}}), Contains("the text has"));
  CHECK_THROWS_WITH(run({}, {.windows = {64, 1, 1}, .recall = {}}), Contains("at least 1 and 2"));
}

}  // namespace test_evaluation
