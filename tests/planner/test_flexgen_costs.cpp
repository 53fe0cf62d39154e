#include <catch2/catch.hpp>

#include <algorithm>

#include "base/error.h"
#include "flexgen_support.h"
#include "tests/support/presets.h"

namespace test_flexgen_costs {

using namespace csdsim;
using namespace csdsim::host;
using csdsim::host::test::a6000;
using csdsim::test::model_preset;

namespace {

// OPT-13B: 40 layers of 8 x 5120^2 + 4 x 5120 x 20480 bytes of weights; a hidden state has 10,240 B, and K and V of a
// token 20,480 B in each layer.
constexpr double kWeights = 629'145'600, kHidden = 10'240, kKv = 20'480;

FlexGenCostModel opt_13b(CostForm form, const FlexGenHardware& hardware = a6000(), std::uint32_t output = 1024) {
  return {model_preset("opt-13b"), {.prompt_tokens = 1024, .output_tokens = output}, hardware, form};
}

/// InstInfer, section V-A: weights and activations in GPU memory, K and V on disk.
FlexGenPolicy instinfer() { return {.gpu_batch_size = 64}; }

std::uint64_t gpu(const FlexGenMemory& memory) { return memory[0].value; }

}  // namespace

TEST_CASE("FlexGen policy: a mistake names the field") {
  FlexGenPolicy p = instinfer();
  CHECK_NOTHROW(p.validate());
  p.gpu_batch_size = 0;
  CHECK_THROWS_WITH(p.validate(), Catch::Contains("gpu_batch_size is 0"));
  p = instinfer();
  p.num_gpu_batches = 0;
  CHECK_THROWS_WITH(p.validate(), Catch::Contains("num_gpu_batches is 0"));
  p = instinfer();
  p.weights = {.gpu = 101};
  CHECK_THROWS_WITH(p.validate(), Catch::Contains("weights.gpu is 101 %"));
  p = instinfer();
  p.cache = {.gpu = 60, .host = 41};
  CHECK_THROWS_WITH(p.validate(), Catch::Contains("cache.gpu + cache.host is 60 + 41 %"));
  p = instinfer();
  p.activations = {.gpu = 0, .host = 0xFFFFFFFF};
  CHECK_THROWS_AS(p.validate(), UserError);
  CHECK_THROWS_AS(opt_13b(CostForm::paper).seconds(p), UserError);
  CHECK_THROWS_AS(opt_13b(CostForm::paper).decode_terms(p), UserError);
}

TEST_CASE("FlexGen costs: zero rates and lengths are refused by name") {
  FlexGenHardware h = a6000();
  h.disk_to_host = {0};
  CHECK_THROWS_WITH(opt_13b(CostForm::paper, h), Catch::Contains("disk_to_host"));
  h = a6000();
  h.host_memory_bandwidth = Bandwidth{0};
  CHECK_THROWS_WITH(opt_13b(CostForm::paper, h), Catch::Contains("host_memory_bandwidth"));
  CHECK_THROWS_WITH(opt_13b(CostForm::paper, a6000(), 0), Catch::Contains("output_tokens"));
}

TEST_CASE("FlexGen pads prompts to the longest one") {
  const FlexGenLengths lengths = FlexGenLengths::of({.prompt_tokens = {3, 7, 5}, .output_tokens = 4});
  CHECK(lengths.prompt_tokens == 7);
  CHECK(lengths.output_tokens == 4);
  CHECK_THROWS_AS(FlexGenLengths::of({}), UserError);
}

TEST_CASE("FlexGen as InstInfer runs it: OPT-13B, batch 64, K and V on disk") {
  const FlexGenPolicy p = instinfer();
  const FlexGenCostModel paper = opt_13b(CostForm::paper), released = opt_13b(CostForm::released_code);

  // From 1,024 to 2,048 tokens: 53.7 GB to 107.4 GB.
  CHECK(paper.peak_memory(p)[2].value == 107'374'182'400);
  CHECK(paper.prefill_traffic(p).host_to_disk == Approx(64 * 1025 * kKv).epsilon(1e-12));
  CHECK(40 * paper.prefill_traffic(p).host_to_disk == Approx(53.7e9).epsilon(0.002));

  // 1,536 tokens on average: 2.01 GB per layer and step, 1.55 s at 1.3 GB/s; the other terms are much smaller.
  const LayerTerms<double> t = paper.decode_terms(p);
  CHECK(t.disk_to_host == Approx(64 * 1536 * kKv / 1.3e9).epsilon(1e-12));
  CHECK(t.disk_to_host == Approx(1.549).epsilon(0.001));
  CHECK(t.disk_to_host > 15 * std::max({t.host_to_gpu, t.gpu_to_host, t.host_to_disk, t.compute}));
  CHECK(paper.decode_layer_seconds(p) == t.disk_to_host);
  CHECK(paper.seconds(p) == Approx(40 * paper.prefill_layer_seconds(p) + 40 * 1023 * t.disk_to_host).epsilon(1e-12));
  CHECK(paper.tokens_per_second(p) == Approx(64 * 1024 / paper.seconds(p)).epsilon(1e-12));
  CHECK(paper.tokens_per_second(p) == Approx(1.03).epsilon(0.01));

  // The forms differ by the copy to the GPU in decode, and by the two stores in prefill.
  CHECK(released.decode_layer_seconds(p) == Approx(t.disk_to_host + t.host_to_gpu).epsilon(1e-12));
  const LayerTerms<double> pre = paper.prefill_terms(p);
  CHECK(paper.prefill_layer_seconds(p) == std::max(pre.host_to_disk, pre.compute));
  CHECK(released.prefill_layer_seconds(p) ==
        Approx(std::max(pre.host_to_disk + pre.gpu_to_host, pre.compute)).epsilon(1e-12));

  // The host attends: nothing is copied to the GPU, and the forms agree in decode.
  FlexGenPolicy at_host = p;
  at_host.cpu_cache_compute = true;
  CHECK(paper.decode_terms(at_host).host_to_gpu == 0);
  CHECK(paper.decode_layer_seconds(at_host) == released.decode_layer_seconds(at_host));
}

TEST_CASE("FlexGen costs: every term of a mixed policy, by hand") {
  // Off the GPU: 70 % of the weights, 90 % of the cache, 40 % of the states; on disk: 20 %, 60 %, 15 %.
  FlexGenPolicy p{.gpu_batch_size = 4,
                  .num_gpu_batches = 3,
                  .weights = {.gpu = 30, .host = 50},
                  .cache = {.gpu = 10, .host = 30},
                  .activations = {.gpu = 60, .host = 25},
                  .cpu_cache_compute = true};
  const FlexGenCostModel model = opt_13b(CostForm::paper, a6000(), 512);
  const double b = 12, s = 1024, context = 1280;

  const LayerPaths<double> pre = model.prefill_traffic(p);
  CHECK(pre.host_to_gpu == Approx(0.7 * kWeights + 0.4 * s * b * kHidden).epsilon(1e-12));
  CHECK(pre.gpu_to_host == Approx(0.9 * (s + 1) * b * kKv + 0.4 * s * b * kHidden).epsilon(1e-12));
  CHECK(pre.disk_to_host == Approx(0.2 * kWeights + 0.15 * s * b * kHidden).epsilon(1e-12));
  CHECK(pre.host_to_disk == Approx(0.6 * (s + 1) * b * kKv + 0.15 * s * b * kHidden).epsilon(1e-12));

  const LayerPaths<double> gen = model.decode_traffic(p);
  CHECK(gen.host_to_gpu == Approx(0.7 * kWeights + 0.4 * b * kHidden).epsilon(1e-12));
  CHECK(gen.gpu_to_host == Approx(0.4 * b * kHidden).epsilon(1e-12));
  CHECK(gen.disk_to_host == Approx(0.2 * kWeights + 0.6 * context * b * kKv + 0.15 * b * kHidden).epsilon(1e-12));
  CHECK(gen.host_to_disk == Approx(0.6 * b * kKv + 0.15 * b * kHidden).epsilon(1e-12));

  // Two flops per weight, which has two bytes; 4 x 5120 flops per pair of tokens.
  CHECK(model.prefill_terms(p).compute ==
        Approx(b * s * kWeights / 100e12 + 4 * b * s * s * 5120 / 10e12).epsilon(1e-12));
  const double pairs = 4 * b * context * 5120;
  CHECK(model.decode_terms(p).compute ==
        Approx(b * kWeights / 100e12 + 0.1 * pairs / 10e12 + 0.9 * pairs / 0.5e12).epsilon(1e-12));
  CHECK(model.decode_terms(p).disk_to_host == Approx(gen.disk_to_host / 1.3e9).epsilon(1e-12));
  CHECK(model.prefill_terms(p).gpu_to_host == Approx(pre.gpu_to_host / 20e9).epsilon(1e-12));

  // The GPU attends instead: the cache travels.
  p.cpu_cache_compute = false;
  const LayerPaths<double> copied = model.decode_traffic(p);
  CHECK(copied.host_to_gpu == Approx(gen.host_to_gpu + 0.9 * context * b * kKv).epsilon(1e-12));
  CHECK(copied.gpu_to_host == Approx(gen.gpu_to_host + 0.9 * b * kKv).epsilon(1e-12));
  CHECK(copied.disk_to_host == gen.disk_to_host);
  CHECK(model.decode_terms(p).compute == Approx(b * kWeights / 100e12 + pairs / 10e12).epsilon(1e-12));
}

TEST_CASE("FlexGen costs: how the terms combine") {
  FlexGenPolicy p{.gpu_batch_size = 8, .num_gpu_batches = 2, .weights = {.gpu = 20, .host = 30}};
  p.cache = {.gpu = 10, .host = 20};
  p.activations = {.gpu = 0, .host = 50};
  p.cpu_cache_compute = GENERATE(false, true);
  const FlexGenCostModel paper = opt_13b(CostForm::paper), released = opt_13b(CostForm::released_code);
  const LayerTerms<double> pre = paper.prefill_terms(p), gen = paper.decode_terms(p);
  CHECK(paper.prefill_layer_seconds(p) ==
        std::max({pre.host_to_gpu, pre.gpu_to_host, pre.disk_to_host, pre.host_to_disk, pre.compute}));
  CHECK(paper.decode_layer_seconds(p) ==
        std::max({gen.host_to_gpu, gen.gpu_to_host, gen.disk_to_host, gen.host_to_disk, gen.compute}));
  CHECK(released.prefill_layer_seconds(p) ==
        Approx(std::max({pre.host_to_gpu + pre.disk_to_host, pre.gpu_to_host + pre.host_to_disk, pre.compute}))
            .epsilon(1e-12));
  CHECK(released.decode_layer_seconds(p) ==
        Approx(gen.host_to_gpu + std::max({gen.gpu_to_host, gen.disk_to_host, gen.host_to_disk, gen.compute}))
            .epsilon(1e-12));
  p.overlap = false;
  for (const FlexGenCostModel* model : {&paper, &released}) {
    CHECK(model->decode_layer_seconds(p) ==
          Approx(gen.host_to_gpu + gen.gpu_to_host + gen.disk_to_host + gen.host_to_disk + gen.compute).epsilon(1e-12));
    CHECK(model->prefill_layer_seconds(p) ==
          Approx(pre.host_to_gpu + pre.gpu_to_host + pre.disk_to_host + pre.host_to_disk + pre.compute).epsilon(1e-12));
  }
  // One output token: no decode step.
  const FlexGenCostModel one = opt_13b(CostForm::paper, a6000(), 1);
  CHECK(one.seconds(p) == Approx(40 * one.prefill_layer_seconds(p)).epsilon(1e-12));
}

TEST_CASE("FlexGen costs: memory bandwidths bound processors that would compute faster") {
  FlexGenHardware h = a6000();
  h.gpu_memory_bandwidth = host::test::gigabytes_per_second(768);
  h.host_memory_bandwidth = host::test::gigabytes_per_second(100);
  FlexGenPolicy p = instinfer();
  p.gpu_batch_size = 2;
  p.num_gpu_batches = 3;
  const double pairs = 6 * 1536;
  // Each GPU batch reads the weights once. Attention of 20,480 flops per pair of tokens reads 20,480 B.
  CHECK(opt_13b(CostForm::paper, h).decode_terms(p).compute ==
        Approx(3 * kWeights / 768e9 + pairs * kKv / 768e9).epsilon(1e-12));
  p.cpu_cache_compute = true;
  p.cache = {.gpu = 25};
  CHECK(opt_13b(CostForm::paper, h).decode_terms(p).compute ==
        Approx(3 * kWeights / 768e9 + 0.25 * pairs * kKv / 768e9 + 0.75 * pairs * kKv / 100e9).epsilon(1e-12));
  // Prefill is bound by arithmetic.
  CHECK(opt_13b(CostForm::paper, h).prefill_terms(p).compute ==
        Approx(opt_13b(CostForm::paper).prefill_terms(p).compute).epsilon(1e-12));
}

TEST_CASE("FlexGen memory: by hand for InstInfer's policy") {
  const FlexGenPolicy p = instinfer();
  const std::uint64_t weights = model_preset("opt-13b").weight_bytes().value;
  const std::uint64_t states = 64ULL * 1024 * 10'240, scores = 2ULL * 64 * 40 * 1024 * 1024;
  // Paper: q, K and scores of attention in prefill are the largest group. q, k, v and hidden states are one unit of
  // `states` each.
  CHECK(gpu(opt_13b(CostForm::paper).peak_memory(p)) == weights + states + 2 * states + scores);
  // Released code: projections 4, attention 2, output projection 2, network 4 + 1, and the scores.
  CHECK(gpu(opt_13b(CostForm::released_code).peak_memory(p)) == weights + states + 13 * states + scores);
  // Host: two buffers of the K and V of a layer.
  CHECK(opt_13b(CostForm::paper).peak_memory(p)[1].value == 2ULL * 64 * 2048 * 20'480);
  // The host attends: its scores and outputs of 64 sequences in addition.
  FlexGenPolicy at_host = p;
  at_host.cpu_cache_compute = true;
  CHECK(opt_13b(CostForm::paper).peak_memory(at_host)[1].value ==
        2ULL * 64 * 2048 * 20'480 + 64 * (2ULL * 40 * 2048 + 10'240));
}

TEST_CASE("FlexGen memory: decode dominates with the cache in GPU or host memory") {
  FlexGenPolicy p{.gpu_batch_size = 2, .num_gpu_batches = 32, .weights = {}, .cache = {.gpu = 40, .host = 60}};
  p.activations = {.gpu = 100};
  const ModelShape shape = model_preset("opt-13b");
  const FlexGenLengths lengths{.prompt_tokens = 16, .output_tokens = 2032};
  const FlexGenCostModel released(shape, lengths, a6000(), CostForm::released_code);
  const std::uint64_t cache = 107'374'182'400, batch_kv = 2ULL * 2048 * 20'480;
  // Without host attention, decode: home; two layers of weights; 60 % of two GPU batches of a layer's cache and 40 % of
  // a copy; intermediate results of 2 sequences: projections 8 h1, attention reads K and V, network.
  const std::uint64_t inner =
      2 * (4 * 10'240 + 2 * 10'240 + 2ULL * 40 * 2048 + 2 * 10'240 + 40'960 + 10'240) + batch_kv;
  CHECK(gpu(released.peak_memory(p)) ==
        cache * 2 / 5 + 64 * 10'240 + 2 * 629'145'600ULL + (12 * batch_kv + 4 * batch_kv + 9) / 10 + inner);
  // With it, attention on the GPU only for its 40 %.
  p.cpu_cache_compute = true;
  const std::uint64_t attention = batch_kv + 2 * (2 * 10'240 + 2ULL * 40 * 2048);
  CHECK(gpu(released.peak_memory(p)) == cache * 2 / 5 + 64 * 10'240 + 2 * 629'145'600ULL +
                                            (4 * batch_kv + 4 * attention + 9) / 10 +
                                            2 * (4 * 10'240 + 2 * 10'240 + 40'960 + 10'240));
  // Host: cache, a layer of weights on its way from the disk, scores and outputs.
  CHECK(released.peak_memory(p)[1].value == cache * 3 / 5 + 629'145'600 + 2 * (2ULL * 40 * 2048 + 10'240));
  CHECK(released.peak_memory(p)[2] == shape.weight_bytes());
}

TEST_CASE("FlexGen memory: prefill dominates the host with long prompts and activations there") {
  FlexGenPolicy p{.gpu_batch_size = 4, .num_gpu_batches = 4, .weights = {.gpu = 50, .host = 50}, .cache = {}};
  p.cache = {.gpu = 0, .host = 100};
  p.activations = {.gpu = 0, .host = 100};
  const ModelShape shape = model_preset("opt-13b");
  const FlexGenCostModel model(shape, {.prompt_tokens = 2000, .output_tokens = 1}, a6000());
  CHECK(model.peak_memory(p)[1].value ==
        shape.weight_bytes().value / 2 + 16 * 2000 * (819'200ULL + 10'240) + 629'145'600 / 2 + 4 * 2000 * 10'240ULL);
  CHECK(model.peak_memory(p)[2].value == 0);
}

TEST_CASE("FlexGen memory: a policy that does not fit says what is short") {
  FlexGenHardware h = a6000();
  const FlexGenCostModel fits = opt_13b(CostForm::paper, h);
  CHECK_NOTHROW(fits.require_fit(instinfer()));
  h.capacity = fits.peak_memory(instinfer());
  CHECK_NOTHROW(opt_13b(CostForm::paper, h).require_fit(instinfer()));
  h.capacity[2] = Bytes::gib(60);
  CHECK_THROWS_WITH(opt_13b(CostForm::paper, h).require_fit(instinfer()),
                    Catch::Contains("1 x 64 sequences of 1024 + 1024 tokens do not fit: the disk needs "
                                    "100.00 GiB, of which 60.00 GiB are usable: 40.00 GiB short"));
  h.capacity[0] -= Bytes{1};
  CHECK_THROWS_WITH(opt_13b(CostForm::paper, h).require_fit(instinfer()), Catch::Contains("GPU memory needs"));
}

TEST_CASE("FlexGen costs: grouped queries and gated networks") {
  const ModelShape m{.layers = 2,
                     .width = 96,
                     .heads = 8,
                     .kv_heads = 2,
                     .head_dim = 16,
                     .ffn = 160,
                     .vocab = 500,
                     .ffn_matrices = 3,
                     .biases = Biases::none};
  const FlexGenCostModel model(m, {.prompt_tokens = 10, .output_tokens = 4}, a6000(), CostForm::paper);
  const FlexGenPolicy p{.gpu_batch_size = 3, .weights = {.gpu = 0, .host = 100}};
  const double layer = 2 * (96 * 128 + 2 * 96 * 32 + 128 * 96 + 3 * 96 * 160);
  CHECK(model.prefill_traffic(p).host_to_gpu == layer);
  CHECK(model.decode_traffic(p).disk_to_host == 3 * 12 * (2 * 2 * 16 * 2));
  CHECK(model.decode_terms(p).compute == Approx(3 * layer / 100e12 + 4 * 3 * 12.0 * 128 / 10e12).epsilon(1e-12));
}

TEST_CASE("FlexGen costs: the released form lies between the paper's and twice the paper's") {
  const std::uint64_t seed = GENERATE(range(0, 50));
  CAPTURE(seed);
  Rng rng(seed, "flexgen forms");
  const ModelShape shape = model_preset("opt-13b");
  const FlexGenHardware h = host::test::random_hardware(rng, 1e11, 0.1, 2);
  const FlexGenLengths lengths{.prompt_tokens = 1 + static_cast<std::uint32_t>(rng.below(2000)),
                               .output_tokens = 1 + static_cast<std::uint32_t>(rng.below(500))};
  const auto split = [&] {
    const auto first = static_cast<std::uint32_t>(rng.below(101));
    return TierSplit{.gpu = first, .host = static_cast<std::uint32_t>(rng.below(101 - first))};
  };
  const FlexGenPolicy p{.gpu_batch_size = 1 + static_cast<std::uint32_t>(rng.below(64)),
                        .num_gpu_batches = 1 + static_cast<std::uint32_t>(rng.below(8)),
                        .weights = split(),
                        .cache = split(),
                        .activations = split(),
                        .cpu_cache_compute = rng.below(2) == 1};
  const FlexGenCostModel paper(shape, lengths, h, CostForm::paper);
  const FlexGenCostModel released(shape, lengths, h, CostForm::released_code);
  const double least = paper.seconds(p);
  CHECK(released.seconds(p) >= least);
  CHECK(released.seconds(p) <= 2 * least * (1 + 1e-12));
  FlexGenPolicy serial = p;
  serial.overlap = false;
  CHECK(paper.seconds(serial) >= released.seconds(p) * (1 - 1e-12));
  CHECK(gpu(released.peak_memory(p)) >= gpu(paper.peak_memory(p)));
  CHECK(released.peak_memory(p)[2] == paper.peak_memory(p)[2]);
}

}  // namespace test_flexgen_costs
