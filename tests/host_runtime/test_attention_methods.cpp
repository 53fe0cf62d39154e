// The methods against dense attention, against one another, and against straightforward references.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention/attention_chunks.h"
#include "host_runtime/core/attention/attention_h2o.h"
#include "host_runtime/core/attention/attention_importance.h"
#include "host_runtime/core/attention/attention_infinigen.h"
#include "host_runtime/core/attention/attention_local.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "tests/host_runtime/method_checks.h"

namespace test_attention_methods {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;
using test::check_output;
using test::Decoding;
using test::LayerShape;
using test::RandomLayers;
using test::Rows;
using test::shape_of;
using Tokens = std::vector<std::uint32_t>;

TEST_CASE("with a budget of everything every method is dense, bit for bit, after a prompt and without one") {
  MethodSettings everything{.ratio = {1, 1}};
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const LayerShape shape = shape_of(seed);
    for (const MethodInfo& info : attention_methods()) {
      INFO("seed " << seed << " " << info.name);
      ConfiguredMethod configured = configure_method(info.name, everything, shape.head_dim);
      if (info.name == "infinigen")  // its threshold drops tokens whatever the budget
        configured.method = std::make_unique<InfinigenAttention>(
            InfinigenOptions{.threshold = 1e30f, .tokens = Ratio{1, 1}, .dense_layers = 0});
      Decoding sparse(shape, std::move(configured.method));
      Decoding dense(shape, std::make_unique<DenseAttention>());
      RandomLayers random(shape, seed);
      if (seed % 2) {
        const Rows prompt = random.rows(70);
        sparse.prompt(prompt, 70);
        dense.prompt(prompt, 70);
      }
      for (int i = 0; i < 40; ++i) {
        const Rows r = random.rows(1);
        const SequenceId sequence{0};
        if (sparse.attention.speculates()) sparse.attention.speculate(LayerId{0}, {&sequence, 1}, r.q);
        REQUIRE(sparse.step(r) == dense.step(r));
        CHECK(sparse.tokens() == dense.tokens());
      }
    }
  }
}

TEST_CASE("a method attends exactly to what it says, within its budget, the current token among it") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const LayerShape shape = shape_of(seed);
    for (const MethodInfo& info : attention_methods()) {
      if (info.name == "dense" || info.name.starts_with("spar")) continue;  // the latter add a mean
      INFO("seed " << seed << " " << info.name);
      Decoding d(shape, configure_method(info.name, {.ratio = {1, 4}}, shape.head_dim).method);
      RandomLayers random(shape, seed);
      d.prompt(random.rows(100), 100);
      for (std::uint32_t s = 101; s < 140; ++s) {
        const Rows r = random.rows(1);
        const SequenceId sequence{0};
        if (d.attention.speculates()) d.attention.speculate(LayerId{0}, {&sequence, 1}, r.q);
        const std::vector<Half> out = d.step(r);
        for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
          const Tokens tokens = d.tokens(head);
          CHECK(tokens.back() == s - 1);
          CHECK(std::is_sorted(tokens.begin(), tokens.end()));
          CHECK(std::set<std::uint32_t>(tokens.begin(), tokens.end()).size() == tokens.size());
          // H2O's new token comes on top; InfiniGen's first layers fetch everything.
          const bool on_top = info.name.starts_with("h2o");
          const std::uint32_t budget = TokenBudget(Ratio{1, 4}).at(on_top ? s - 1 : s);
          if (info.name != "infinigen") CHECK(tokens.size() == budget + on_top);
        }
        check_output(out, r, d, shape);
      }
    }
  }
}

TEST_CASE("local attention is a window and sinks") {
  const LayerShape shape{.kv_heads = 1};
  RandomLayers random(shape, 3);
  Decoding window(shape, configure_method("local", {.window = 5}, 32).method);
  Decoding sinks(shape, configure_method("streamingllm", {.window = 3}, 32).method);
  for (std::uint32_t s = 1; s <= 12; ++s) {
    const Rows r = random.rows(1);
    window.step(r);
    sinks.step(r);
    if (s == 5) CHECK(window.tokens() == Tokens{0, 1, 2, 3, 4});
    if (s == 7) CHECK(sinks.tokens() == Tokens{0, 1, 2, 3, 4, 5, 6});
  }
  CHECK(window.tokens() == Tokens{7, 8, 9, 10, 11});
  CHECK(sinks.tokens() == Tokens{0, 1, 2, 3, 9, 10, 11});
  CHECK(window.selections[0].elements == 2 * 5 * 32);
  // SparQ whose local window fills the budget selects the same tokens.
  Decoding sparq(shape, configure_method("sparq", {.r = 4, .k = 5, .local = 5}, 32).method);
  for (int i = 0; i < 12; ++i) sparq.step(random.rows(1));
  CHECK(sparq.tokens() == window.tokens());
}

TEST_CASE("sequences do not disturb one another, and one that is freed leaves nothing") {
  const LayerShape shape{};
  for (const MethodInfo& info : attention_methods()) {
    INFO(info.name);
    const auto run = [&](bool disturbed) {
      RandomLayers random(shape, 4), other(shape, 5);
      Decoding d(shape, configure_method(info.name, {.ratio = {1, 4}}, 32).method);
      if (disturbed) {  // the same id lived before
        d.prompt(other.rows(60), 60);
        d.step(other.rows(1));
        d.attention.free_sequence(SequenceId{0});
        d.attention.create_sequence(SequenceId{0});
        d.attention.create_sequence(SequenceId{1});
        const Rows foreign = other.rows(30);
        const SequenceSlice slice{SequenceId{1}, 30};
        d.attention.store(LayerId{0}, {&slice, 1}, foreign.k, foreign.v);
        if (d.attention.learns_from_prompt()) d.attention.learn(LayerId{0}, {&slice, 1}, foreign.q);
      }
      d.prompt(random.rows(40), 40);
      std::vector<Half> all;
      for (int i = 0; i < 10; ++i) {
        const auto out = d.step(random.rows(1));
        all.insert(all.end(), out.begin(), out.end());
        if (!disturbed) continue;
        const Rows foreign = other.rows(1);
        std::vector<Half> ignored(foreign.q.size());
        const SequenceId one{1};
        d.attention.attend(LayerId{0}, {&one, 1}, foreign.q, foreign.k, foreign.v, ignored);
      }
      return all;
    };
    CHECK(run(true) == run(false));
  }
}

TEST_CASE("a traffic ratio is met by what a step reads") {
  const LayerShape shape{.kv_heads = 2, .group = 1, .head_dim = 64};
  for (const Ratio ratio : {Ratio{1, 2}, Ratio{1, 4}, Ratio{1, 8}, Ratio{1, 16}}) {
    for (const MethodInfo& info : attention_methods()) {
      if (info.name == "dense" || info.name == "infinigen") continue;  // its first layers fetch everything
      INFO(info.name << " 1/" << ratio.denominator);
      const MethodSettings settings{.ratio = ratio, .meaning = RatioMeaning::traffic};
      const bool eight = info.name.starts_with("int8"), four = info.name.starts_with("int4");
      const bool sixteen = info.name.starts_with("fp16");
      if ((sixteen && ratio <= Ratio{1, 2}) || (eight && ratio <= Ratio{1, 4}) || (four && ratio <= Ratio{1, 8})) {
        CHECK_THROWS_WITH(configure_method(info.name, settings, 64), Contains("leaves nothing to attend"));
        continue;
      }
      Decoding d(shape, configure_method(info.name, settings, 64).method);
      RandomLayers random(shape, 8);
      d.prompt(random.rows(1023), 1023);
      d.step(random.rows(1));
      const double read = static_cast<double>(d.selections[0].elements) / (2.0 * 1024 * 64);
      CHECK(read == Approx(ratio.value()).epsilon(0.02));
    }
  }
}

TEST_CASE("mistakes in budgets are named") {
  const auto configure = [](std::string_view name, const MethodSettings& s) { configure_method(name, s, 64); };
  CHECK_THROWS_WITH(configure("h20", {}), Contains("did you mean h2o?") && Contains("exists: dense, sparq"));
  CHECK_THROWS_WITH(configure("sparq", {.ratio = {0, 1}}), Contains("not in (0, 1]"));
  CHECK_THROWS_WITH(configure("sparq", {.r = 65}), Contains("must be 1 to 64"));
  CHECK_THROWS_WITH(configure("sparf", {.r = 0}), Contains("must be 1 to 64"));
  CHECK_THROWS_WITH(configure("sparq", {.k = 0}), Contains("at least 1"));
  CHECK_THROWS_WITH(configure("sparq", {.k = 4, .local = 5}), Contains("5 local tokens do not fit"));
  CHECK_THROWS_WITH(configure("h2o", {.heavy = 4}), Contains("come together"));
  CHECK_THROWS_WITH(configure("h2o", {.heavy = 0, .recent = 0}), Contains("at least 1"));
  CHECK_THROWS_WITH(configure("local", {.window = 0}), Contains("0 tokens"));
  CHECK_THROWS_WITH(configure("int8", {.k = 0}), Contains("at least 1"));
  CHECK_THROWS_AS(ChunkAttention({.tokens = 4, .chunk = 12, .leaf = 4}), UserError);
  CHECK_THROWS_AS(ChunkAttention({.tokens = 4, .chunk = 8, .leaf = 16}), UserError);
  CHECK_THROWS_WITH(ImportanceAttention({.tokens = 4, .bits = 5}), Contains("16, 8 or 4 bits"));
}

}  // namespace test_attention_methods
