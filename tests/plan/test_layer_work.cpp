// The operator of a model that a ComputeWork is, against the formulas of ModelShape.
#include <catch2/catch.hpp>
#include <vector>

#include "host_runtime/core/plan/layer_work.h"
#include "tests/support/presets.h"

namespace test_layer_work {

using namespace csdsim;
using namespace csdsim::host;

ModelShape qwen() {
  ModelShape m = csdsim::test::model_preset("llama-3-8b");
  m.biases = Biases::qkv;
  return m;
}

TEST_CASE("every operator of a layer is found by its operations and bytes") {
  for (const ModelShape& m :
       {csdsim::test::model_preset("opt-13b"), csdsim::test::model_preset("llama-3-8b"), qwen()}) {
    for (const std::uint64_t rows : {1ULL, 7ULL, 64ULL, 65536ULL}) {
      const auto is = [&](const ComputeWork& work, LayerOperator op) {
        const auto found = layer_work(m, work);
        REQUIRE(found);
        CHECK(*found == LayerWork{.op = op, .rows = rows});
      };
      is(m.embed(rows), LayerOperator::embed);
      is(m.attention_inputs(rows), LayerOperator::attention_inputs);
      is(m.recompute_kv(rows), LayerOperator::recompute_kv);
      is(m.finish_attention(rows), LayerOperator::finish_attention);
      is(m.feed_forward(rows, m.ffn), LayerOperator::feed_forward);
      is(m.finish_layer(rows), LayerOperator::finish_layer);
      is(m.sample(rows), LayerOperator::sample);
      // Work of another size, of fewer neurons, or with further kernels is none of them.
      ComputeWork other = m.finish_layer(rows);
      other.launches += 1;
      CHECK_FALSE(layer_work(m, other));
      other = m.sample(rows);
      other.flops += 1;
      CHECK_FALSE(layer_work(m, other));
      CHECK_FALSE(layer_work(m, m.feed_forward(rows, m.ffn / 2)));
      CHECK_FALSE(layer_work(m, m.merge_attention(rows, 3)));
    }
  }
}

TEST_CASE("attention of steps and of prompts is told apart") {
  for (const ModelShape& m : {csdsim::test::model_preset("opt-13b"), csdsim::test::model_preset("llama-3-8b")}) {
    for (const std::uint64_t sequences : {1ULL, 5ULL, 64ULL})
      for (const std::uint64_t context : {1ULL, 33ULL, 4096ULL}) {
        const auto step = layer_work(m, m.decode_attention(sequences, sequences * context));
        REQUIRE(step);
        CHECK(*step ==
              LayerWork{.op = LayerOperator::step_attention, .rows = sequences, .attended = sequences * context});
      }
    for (const std::uint32_t length : {64U, 1000U, 16384U})
      for (const std::size_t sequences : {1U, 8U}) {
        const auto prompts = layer_work(m, m.prefill_attention(std::vector<std::uint32_t>(sequences, length)));
        REQUIRE(prompts);
        CHECK(*prompts ==
              LayerWork{.op = LayerOperator::prompt_attention, .rows = sequences, .attended = sequences * length});
      }
    // Many short prompts: 2 pairs / tokens - 1 is the length, and no step has the same operations and bytes.
    for (const std::uint32_t length : {12U, 16U}) {
      const auto prompts = layer_work(m, m.prefill_attention(std::vector<std::uint32_t>(64, length)));
      REQUIRE(prompts);
      CHECK(*prompts == LayerWork{.op = LayerOperator::prompt_attention, .rows = 64, .attended = 64 * length});
    }
    // Prompts of other lengths have the operations of equal ones, times the share.
    const std::vector<std::uint32_t> ragged{100, 900, 350};
    const ComputeWork work = m.prefill_attention(ragged);
    const auto found = layer_work(m, work);
    REQUIRE(found);
    CHECK(found->op == LayerOperator::prompt_attention);
    CHECK(found->attended == 1350);
    std::vector<std::uint32_t> equal;
    for (std::uint64_t i = 0; i < found->rows; ++i)
      equal.push_back(static_cast<std::uint32_t>(1350 / found->rows + (i < 1350 % found->rows ? 1 : 0)));
    CHECK(found->share * static_cast<double>(m.prefill_attention(equal).flops) ==
          Approx(static_cast<double>(work.flops)).epsilon(1e-12));
    CHECK(found->share == Approx(1).margin(0.3));
  }
}

TEST_CASE("a shape has the configuration of a family, or none") {
  for (const ModelShape& m :
       {csdsim::test::model_preset("opt-13b"), csdsim::test::model_preset("llama-3-8b"), qwen()}) {
    const auto config = config_of(m);
    REQUIRE(config);
    const ModelShape again = ModelShape::of(*config);
    CHECK(again.parameters() == m.parameters());
    CHECK(again.attention_inputs(3) == m.attention_inputs(3));
    CHECK(again.finish_layer(3) == m.finish_layer(3));
    CHECK(again.positions == m.positions);
  }
  ModelShape wide = csdsim::test::model_preset("opt-13b");
  wide.element_bytes = 4;
  CHECK_FALSE(config_of(wide));
  ModelShape mixed = csdsim::test::model_preset("opt-13b");
  mixed.positions = 0;
  CHECK_FALSE(config_of(mixed));
}

}  // namespace test_layer_work
