#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/features/lost_kv/lost_kv.h"
#include "host_runtime/core/model/model_shape.h"
#include "tests/support/planner_support.h"
#include "tests/support/presets.h"

namespace test_model_shape {

using namespace csdsim;
using namespace csdsim::host;

TEST_CASE("OPT-13B has the published sizes") {
  const ModelShape m = csdsim::test::model_preset("opt-13b");
  m.validate();
  CHECK(m.kv_bytes_per_token().value == 819'200);
  CHECK(m.parameters() == 12'853'473'280);  // 12.85 billion
  CHECK(static_cast<double>(m.weight_bytes().value) / (1ULL << 30) == Approx(23.94).margin(0.01));
  // InstInfer I and III-A: 100 GiB at batch 32 and 4K, 4.2 x the weights; 200 GiB at batch 128 and 2K.
  const Bytes kv = m.kv_bytes_per_token() * (32 * 4096ULL);
  CHECK(kv == Bytes::gib(100));
  CHECK(static_cast<double>(kv.value) / static_cast<double>(m.weight_bytes().value) == Approx(4.2).margin(0.05));
  CHECK(m.kv_bytes_per_token() * (128 * 2048ULL) == Bytes::gib(200));
}

TEST_CASE("OPT-175B weighs 325 GiB") {
  CHECK(static_cast<double>(csdsim::test::model_preset("opt-175b").weight_bytes().value) / (1ULL << 30) ==
        Approx(325).epsilon(0.005));
}

TEST_CASE("operator work adds up to two flops a parameter and token") {
  const ModelShape m = csdsim::test::model_preset("opt-13b");
  const std::uint64_t layer = m.attention_inputs(7).flops + m.finish_layer(7).flops;
  CHECK(layer == 2ULL * 7 * (4ULL * 5120 * 5120 + 2ULL * 5120 * 20480));
  CHECK(m.sample(3).flops == 2ULL * 3 * 5120 * 50272);
  // Everything that is read once a step is nearly the whole model: the position table and the norms are not.
  const Bytes read = (m.attention_inputs(1).weights + m.finish_layer(1).weights) * m.layers + m.sample(1).weights;
  CHECK(static_cast<double>(read.value) == Approx(static_cast<double>(m.weight_bytes().value)).epsilon(0.002));
}

TEST_CASE("gated networks, grouped queries and rotation: what a layer reads is what its tensors hold") {
  ModelConfig config;
  config.layers = 3;
  config.width = 96;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 160;
  config.vocab = 500;
  config.max_positions = 64;
  config.tied_embeddings = false;
  const std::uint64_t q = 96 * 128, kv = 96 * 32, out = 128 * 96, network = 3 * 96 * 160, norms = 2 * 96;
  const std::uint64_t layer = q + 2 * kv + out + network;

  config.architecture = Architecture::llama;
  const ModelShape llama = ModelShape::of(config);
  CHECK(llama.parameters() == 2 * 500 * 96 + 3 * (layer + norms) + 96);
  CHECK(llama.attention_inputs(1).weights.value == 2 * (q + 2 * kv));
  CHECK(llama.finish_layer(1).weights.value == 2 * (out + network));
  CHECK(llama.attention_inputs(5).flops + llama.finish_layer(5).flops == 2 * 5 * layer);
  CHECK(llama.sample(1).weights.value == 2 * 500 * 96);
  // Norm 2 x 96, projection 96 + 192, rotation of 128 + 32 in and out.
  CHECK(llama.attention_inputs(1).activations.value == 2 * (2 * 96 + 96 + 192 + 2 * 160));
  CHECK(llama.attention_inputs(1).launches == 3);
  // Projection 128 + 96, two adds of 3 x 96, norm 2 x 96, gate and up: 96 in, 2 x 160 out, 2 x 160 in, 160 out, down:
  // 160 in, 96 out.
  CHECK(llama.finish_layer(1).activations.value == 2 * (128 + 96 + 6 * 96 + 2 * 96 + 96 + 6 * 160 + 96));
  CHECK(llama.finish_layer(1).launches == 8);
  CHECK(llama.kv_bytes_per_token() == config.kv_bytes_per_token());

  // The K and V share of the projections; norm 2 x 96, projection 96 + 64, rotation of K in and out.
  CHECK(llama.recompute_kv(7).flops == 2 * 7 * 2 * kv);
  CHECK(llama.recompute_kv(1).weights.value == 2 * 2 * kv);
  CHECK(llama.recompute_kv(1).activations.value == 2 * (2 * 96 + 96 + 64 + 64));
  // o of 8 heads x 16 in fp16, m and z of each in fp32; two such parts in, one output out.
  CHECK(llama.partial_bytes({KvHead{0}, 2}).value == 8 * 16 * 2 + 8 * 2 * 4);
  CHECK(llama.merge_attention(3, 2).activations.value == 3 * (2 * 320 + 256));
  CHECK(llama.merge_attention(3, 2).flops == 3 * 2 * 2 * 128);

  config.architecture = Architecture::qwen2;
  config.tied_embeddings = true;
  const ModelShape qwen2 = ModelShape::of(config);
  CHECK(qwen2.parameters() == 500 * 96 + 3 * (layer + norms + 128 + 2 * 32) + 96);
  CHECK(qwen2.attention_inputs(1).weights.value == 2 * (q + 2 * kv + 192));
  CHECK(qwen2.finish_layer(1).weights == llama.finish_layer(1).weights);

  config.architecture = Architecture::opt;
  const ModelShape opt = ModelShape::of(config);
  CHECK(opt.positions == 66);
  CHECK(opt.ffn_matrices == 2);
}

TEST_CASE("prefill attention is causal and ragged") {
  const ModelShape m = host::test::small_model();
  const std::uint32_t lengths[] = {1, 5, 300};
  const std::uint64_t pairs = 1 + 15 + 300 * 301 / 2;
  CHECK(m.prefill_attention(lengths).flops == 4 * 8 * 8 * pairs);
  CHECK(m.prefill_attention(lengths).activations.value == 306 * 2 * (8 + 4) * 8 * 2);
}

TEST_CASE("lost K and V come back by the layers before theirs, over one sequence, and the projection of K and V") {
  const ModelShape m = host::test::small_model();
  const Operation attend{
      .id = {}, .kind = OpKind::attend, .resource = {}, .tag = {.layer = LayerId{2}}, .deps = {}, .work = {}};
  const std::vector<ComputeWork> work = LostTokens(LostKv::recompute, m).work(attend, 5, 7);
  // 7 tokens see 1 to 7 of them: 28 pairs of 8 heads with 8 elements.
  const ComputeWork attention{.op = OperatorClass::attention,
                              .flops = 4 * 8 * 8 * 28,
                              .weights = {0},
                              .activations = {7 * 2 * (8 + 4) * 8 * 2},
                              .launches = 1};
  const std::vector<ComputeWork> expected = {m.embed(7),        m.attention_inputs(7), attention,
                                             m.finish_layer(7), m.attention_inputs(7), attention,
                                             m.finish_layer(7), m.recompute_kv(5)};
  CHECK(work == expected);
}

TEST_CASE("grouped queries shrink K and V, not q") {
  const ModelShape m = host::test::small_model();
  CHECK(m.kv_bytes_per_token_and_layer().value == 2 * 4 * 8 * 2);
  CHECK(m.query_bytes({KvHead{0}, 4}).value == 8 * 8 * 2);
  CHECK(m.query_bytes({KvHead{2}, 1}).value == 2 * 8 * 2);
}

TEST_CASE("model mistakes are named") {
  ModelShape m = host::test::small_model();
  m.heads = 6;
  CHECK_THROWS_WITH(m.validate(), Catch::Contains("6 heads") && Catch::Contains("4 kv_heads"));
  m = host::test::small_model();
  m.ffn = 0;
  CHECK_THROWS_WITH(m.validate(), Catch::Contains("ffn"));
}

}  // namespace test_model_shape
