#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "flexgen_support.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/percent_program.h"
#include "tests/support/presets.h"

namespace test_flexgen_search {

using namespace csdsim;
using namespace csdsim::host;
using csdsim::host::test::a6000;
using csdsim::host::test::random_hardware;
using csdsim::test::model_preset;

namespace {

// The search may miss an improvement of 1e-6 for a batch shape, and prefers another shape within 1e-6.
constexpr double kTolerance = 1 + 3e-6;

constexpr FlexGenLengths kLengths{.prompt_tokens = 1024, .output_tokens = 1024};

FlexGenCostModel opt_13b(const FlexGenHardware& hardware, CostForm form = CostForm::released_code) {
  return {model_preset("opt-13b"), kLengths, hardware, form};
}

bool fits(const FlexGenCostModel& model, const FlexGenPolicy& p) {
  const FlexGenMemory peak = model.peak_memory(p);
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    if (peak[tier] > model.hardware().capacity[tier]) return false;
  return true;
}

/// The latency of the optimum, or infinity if nothing fits.
double best_seconds(const FlexGenCostModel& model, std::uint32_t batch, const FlexGenSearch& search = {}) {
  try {
    const FlexGenChoice choice = best_flexgen_policy(model, batch, search);
    CHECK(fits(model, choice.policy));
    CHECK(choice.policy.block() == batch);
    CHECK(choice.seconds == model.seconds(choice.policy));
    CHECK(choice.tokens_per_second == model.tokens_per_second(choice.policy));
    CHECK(choice.memory == model.peak_memory(choice.policy));
    return choice.seconds;
  } catch (const UserError&) {
    return std::numeric_limits<double>::infinity();
  }
}

std::vector<TierSplit> splits(std::uint32_t step) {
  std::vector<TierSplit> all;
  for (std::uint32_t gpu = 0; gpu <= 100; gpu += step)
    for (std::uint32_t host = 0; gpu + host <= 100; host += step) all.push_back({gpu, host});
  return all;
}

/// The least latency of a shape over all combinations of splits, or infinity.
double best_of_grid(const FlexGenCostModel& model, FlexGenPolicy p, const std::vector<TierSplit>& weights,
                    const std::vector<TierSplit>& caches, const std::vector<TierSplit>& activations) {
  double best = std::numeric_limits<double>::infinity();
  const FlexGenBounds bounds = model.bounds(p);
  const FlexGenMemory capacity = model.hardware().capacity;
  for (const TierSplit& w : weights)
    for (const TierSplit& c : caches)
      for (const TierSplit& a : activations) {
        p.weights = w;
        p.cache = c;
        p.activations = a;
        const double seconds = bounds.seconds(p);
        if (seconds >= best) continue;
        const FlexGenMemory peak = bounds.peak_memory(p);
        if (peak[0] <= capacity[0] && peak[1] <= capacity[1] && peak[2] <= capacity[2]) best = seconds;
      }
  return best;
}

/// Each capacity is between `least` and twice of what all data need.
FlexGenCostModel random_model(Rng& rng, double least) {
  const FlexGenLengths lengths{.prompt_tokens = 1 + static_cast<std::uint32_t>(rng.below(2000)),
                               .output_tokens = 1 + static_cast<std::uint32_t>(rng.below(800))};
  const double everything = 25.7e9 + 12.0 * (lengths.prompt_tokens + lengths.output_tokens) * 819'200;
  const FlexGenHardware h = random_hardware(rng, everything, least, 2);
  return {model_preset("opt-13b"), lengths, h, rng.below(2) == 0 ? CostForm::paper : CostForm::released_code};
}

}  // namespace

TEST_CASE("whole percentages: branch and bound agrees with exhaustion") {
  const std::uint64_t seed = GENERATE(range(0, 60));
  CAPTURE(seed);
  Rng rng(seed, "percent program");
  using Program = PercentProgram;
  constexpr std::uint32_t kLargest = 4;
  // minimise objective . p + real, where real >= each of two linear functions, under two constraints
  Program::Coefficients objective{}, functions[2]{}, constraints[2]{};
  double offsets[2], limits[2];
  for (std::size_t j = 0; j < Program::kPercents; ++j) objective[j] = rng.unit() - 0.5;
  objective[Program::kPercents] = 1;
  for (auto& f : functions)
    for (std::size_t j = 0; j < Program::kPercents; ++j) f[j] = 2 * rng.unit() - 1;
  for (auto& c : constraints)
    for (std::size_t j = 0; j < Program::kPercents; ++j) c[j] = rng.unit() - 0.3;
  for (double& o : offsets) o = rng.unit();
  for (double& l : limits) l = 4 * rng.unit() - 1.5;
  Program program(objective);
  for (std::size_t j = 0; j < Program::kPercents; ++j) program.set_range(j, j == 3 ? 1 : 0, kLargest);
  const auto dot = [](const Program::Coefficients& c, const Program::Point& p) {
    double sum = 0;
    for (std::size_t j = 0; j < Program::kPercents; ++j) sum += c[j] * p[j];
    return sum;
  };
  for (std::size_t i = 0; i < 2; ++i) {
    program.at_most(constraints[i], limits[i]);
    Program::Coefficients row = functions[i];
    row[Program::kPercents] = -1;
    program.at_most(row, -offsets[i]);
  }
  const Program::Value value = [&](const Program::Point& p) -> std::optional<double> {
    if (dot(constraints[0], p) > limits[0] || dot(constraints[1], p) > limits[1]) return std::nullopt;
    return dot(objective, p) + std::max({0.0, dot(functions[0], p) + offsets[0], dot(functions[1], p) + offsets[1]});
  };

  std::optional<double> best;
  Program::Point p{};
  for (std::uint32_t i = 0; i < 5 * 5 * 5 * 5 * 5 * 5; ++i) {
    for (std::uint32_t j = 0, rest = i; j < Program::kPercents; ++j, rest /= kLargest + 1) p[j] = rest % (kLargest + 1);
    if (p[3] == 0) continue;
    const std::optional<double> v = value(p);
    if (v && (!best || *v < *best)) best = v;
  }
  const std::optional<Program::Solution> found = program.minimise(value, {.absolute = 1e-9});
  REQUIRE(found.has_value() == best.has_value());
  if (!best) return;
  CHECK(found->value == Approx(*best).margin(2e-9));
  CHECK(value(found->point) == found->value);
  CHECK_FALSE(program.minimise(value, {.absolute = 1e-9}, *best - 1e-8));
}

TEST_CASE("FlexGen search: never worse than a grid over all three kinds of data") {
  const std::uint64_t seed = GENERATE(range(0, 24));
  CAPTURE(seed);
  Rng rng(seed, "flexgen grid");
  const FlexGenCostModel model = random_model(rng, 0.1);
  FlexGenSearch search;
  search.overlap = rng.below(4) != 0;
  const double found = best_seconds(model, 12, search);
  double grid = std::numeric_limits<double>::infinity();
  for (const bool at_host : {false, true})
    for (const std::uint32_t size : {1U, 3U, 12U})
      grid = std::min(grid, best_of_grid(model,
                                         {.gpu_batch_size = size,
                                          .num_gpu_batches = 12 / size,
                                          .overlap = search.overlap,
                                          .cpu_cache_compute = at_host},
                                         splits(20), splits(10), splits(20)));
  CHECK(found <= grid * kTolerance);
}

TEST_CASE("FlexGen search: with one kind of data free, the best of all whole percentages") {
  const std::uint64_t seed = GENERATE(range(0, 40));
  CAPTURE(seed);
  Rng rng(seed, "flexgen one kind");
  const FlexGenCostModel model = random_model(rng, 0.8);
  const std::vector<TierSplit> every = splits(1);
  const TierSplit fixed[] = {every[rng.below(every.size())], every[rng.below(every.size())]};
  FlexGenPolicy shape{.gpu_batch_size = 4, .num_gpu_batches = 3, .cpu_cache_compute = rng.below(2) == 1};
  FlexGenSearch search{.cpu_cache_compute = shape.cpu_cache_compute, .gpu_batch_size = 4};
  const std::uint64_t free = rng.below(3);
  if (free != 0) search.weights = fixed[0];
  if (free != 1) search.cache = fixed[free == 0 ? 0 : 1];
  if (free != 2) search.activations = fixed[1];
  const auto choices = [&](const std::optional<TierSplit>& split) {
    return split ? std::vector<TierSplit>{*split} : every;
  };
  const double grid =
      best_of_grid(model, shape, choices(search.weights), choices(search.cache), choices(search.activations));
  const double found = best_seconds(model, 12, search);
  if (std::isinf(grid)) {
    CHECK(std::isinf(found));
  } else {
    CHECK(found == Approx(grid).epsilon(3e-6));
  }
}

TEST_CASE("FlexGen search: a faster path, a faster processor or a larger memory never hurts") {
  const std::uint64_t seed = GENERATE(range(0, 30));
  CAPTURE(seed);
  Rng rng(seed, "flexgen monotone");
  const FlexGenHardware h = random_hardware(rng, 60e9, 0.2, 2);
  const CostForm form = rng.below(2) == 0 ? CostForm::paper : CostForm::released_code;
  const auto seconds = [&](const FlexGenHardware& hardware) { return best_seconds(opt_13b(hardware, form), 20); };
  const double before = seconds(h);
  for (Bandwidth FlexGenHardware::*path : {&FlexGenHardware::host_to_gpu, &FlexGenHardware::gpu_to_host,
                                           &FlexGenHardware::disk_to_host, &FlexGenHardware::host_to_disk}) {
    FlexGenHardware faster = h;
    (faster.*path).bytes_per_second *= 2;
    CHECK(seconds(faster) <= before * kTolerance);
  }
  for (ComputeRate FlexGenHardware::*rate : {&FlexGenHardware::gpu_matrix_rate, &FlexGenHardware::gpu_attention_rate,
                                             &FlexGenHardware::host_attention_rate}) {
    FlexGenHardware faster = h;
    (faster.*rate).flop_per_second *= 2;
    CHECK(seconds(faster) <= before * kTolerance);
  }
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    FlexGenHardware larger = h;
    larger.capacity[tier] = larger.capacity[tier] * 3;
    CHECK(seconds(larger) <= before * kTolerance);
  }
}

TEST_CASE("FlexGen search: what fits into GPU memory goes there, and ties are broken as documented") {
  FlexGenHardware h = a6000();
  h.capacity[0] = Bytes::gib(1024);
  const FlexGenChoice choice = best_flexgen_policy(opt_13b(h), 8);
  CHECK(choice.policy == FlexGenPolicy{.gpu_batch_size = 8,
                                       .num_gpu_batches = 1,
                                       .weights = {.gpu = 100},
                                       .cache = {.gpu = 100},
                                       .activations = {.gpu = 100}});
}

TEST_CASE("FlexGen search: equally fast placements are ranked as documented") {
  // One output token and a slow processor: computation hides every transfer. The cache has 13.4 GB, the activations
  // 0.17 GB, and the weights 25.7 GB.
  FlexGenHardware h = a6000();
  h.gpu_matrix_rate = host::test::teraflops(0.001);
  h.capacity = {Bytes::gib(20), Bytes::gib(16), Bytes::gib(1024)};
  const FlexGenCostModel model(model_preset("opt-13b"), {.prompt_tokens = 512, .output_tokens = 1}, h);
  const FlexGenPolicy p = best_flexgen_policy(model, 32).policy;
  CHECK(p.gpu_batch_size == 32);
  CHECK_FALSE(p.cpu_cache_compute);
  // The weights have as much of the GPU memory as possible, even with everything else on disk.
  FlexGenPolicy more = p;
  more.cache = more.activations = {};
  more.weights = {.gpu = p.weights.gpu, .host = 0};
  CHECK(p.weights.gpu > 50);
  CHECK(p.weights.gpu < 100);
  CHECK(fits(model, more));
  ++more.weights.gpu;
  CHECK_FALSE(fits(model, more));
  // What remains is too small for a percent of the cache, 0.13 GB.
  CHECK(p.cache.gpu <= 1);
  // The rest of the weights is in host memory, and as much of the cache as the remaining memory holds.
  CHECK(p.weights.disk() == 0);
  CHECK(p.cache.disk() > 0);
  more = p;
  ++more.cache.host;
  CHECK_FALSE(fits(model, more));
}

TEST_CASE("FlexGen search: no percent more of the activations fits into GPU memory and is as fast") {
  Rng rng(77, "zz");  // linear programs with many equal steps, one of them over a pivot of 1e-9
  const FlexGenCostModel model = random_model(rng, 0.05);
  const FlexGenPolicy p = best_flexgen_policy(model, 8).policy;
  REQUIRE(p.activations.host > 0);
  FlexGenPolicy more = p;
  ++more.activations.gpu;
  --more.activations.host;
  CHECK((!fits(model, more) || model.seconds(more) > model.seconds(p)));
}

TEST_CASE("FlexGen search: weights come before the cache, as each of their bytes is read in each step") {
  const FlexGenChoice choice = best_flexgen_policy(opt_13b(a6000()), 64);
  // A percent of the cache is 1.07 GB and one of the weights 0.26 GB: at most 4 % of the weights leave memory, to round
  // its use.
  CHECK(choice.policy.weights.disk() <= 4);
  CHECK(choice.policy.cache.disk() > 60);
  // Nothing is left for one more percent of the cache.
  FlexGenPolicy more = choice.policy;
  ++more.cache.gpu;
  CHECK_FALSE(fits(opt_13b(a6000()), more));
  // Without host memory, the weights are in GPU memory, and the cache gets the rest of it.
  FlexGenHardware h = a6000();
  h.capacity[1] = Bytes::gib(1);
  const FlexGenPolicy p = best_flexgen_policy(opt_13b(h), 64).policy;
  CHECK(p.weights.gpu >= 96);
  CHECK(p.cache.gpu > 5);
  CHECK(p.cache.gpu < 25);
  CHECK(p.cache.host <= 1);
  // InstInfer's policy is one of those that the search considers.
  const FlexGenPolicy instinfer{.gpu_batch_size = 64};
  CHECK(choice.seconds < opt_13b(a6000()).seconds(instinfer));
  const FlexGenSearch pinned{.cpu_cache_compute = false,
                             .gpu_batch_size = 64,
                             .weights = instinfer.weights,
                             .cache = instinfer.cache,
                             .activations = instinfer.activations};
  CHECK(best_flexgen_policy(opt_13b(a6000()), 64, pinned).policy == instinfer);
}

TEST_CASE("FlexGen search: host attention where the link to the GPU is slow, none where the host is slow") {
  FlexGenHardware h = a6000();
  h.capacity = {Bytes::gib(32), Bytes::gib(256), Bytes::gib(1024)};
  h.host_to_gpu = host::test::gigabytes_per_second(2);
  const FlexGenChoice at_host = best_flexgen_policy(opt_13b(h), 32);
  CHECK(at_host.policy.cpu_cache_compute);
  CHECK(at_host.policy.cache.disk() == 0);
  const FlexGenChoice at_gpu = best_flexgen_policy(opt_13b(h), 32, {.cpu_cache_compute = false});
  CHECK_FALSE(at_gpu.policy.cpu_cache_compute);
  CHECK(at_host.seconds < at_gpu.seconds);
  h.host_to_gpu = host::test::gigabytes_per_second(50);
  h.host_attention_rate = host::test::teraflops(0.001);
  CHECK_FALSE(best_flexgen_policy(opt_13b(h), 32).policy.cpu_cache_compute);
}

TEST_CASE("FlexGen search: activations stay off the disk if they may not be there") {
  FlexGenHardware h = a6000();
  h.capacity = {Bytes::gib(12), Bytes::gib(1), Bytes::gib(1024)};
  h.disk_to_host = h.host_to_disk = host::test::gigabytes_per_second(1000);  // nothing is lost on the disk
  const FlexGenLengths lengths{.prompt_tokens = 2000, .output_tokens = 8};
  const FlexGenCostModel model(model_preset("opt-13b"), lengths, h);
  const FlexGenChoice anywhere = best_flexgen_policy(model, 200, {.gpu_batch_size = 1});
  const FlexGenChoice released = best_flexgen_policy(model, 200, {.gpu_batch_size = 1, .activations_on_disk = false});
  CHECK(anywhere.policy.activations.disk() > 0);
  CHECK(released.policy.activations.disk() == 0);
  CHECK(released.seconds >= anywhere.seconds);
  CHECK_THROWS_WITH(
      best_flexgen_policy(model, 200, {.activations = TierSplit{.gpu = 40}, .activations_on_disk = false}),
      Catch::Contains("activations leaves 60 % for the disk"));
}

TEST_CASE("FlexGen search: if nothing fits, the error names the memory and the batch that fits") {
  FlexGenHardware h = a6000();
  h.capacity = {Bytes::gib(16), Bytes::gib(4), Bytes::gib(80)};
  const FlexGenCostModel model = opt_13b(h);
  CHECK_THROWS_WITH(
      best_flexgen_policy(model, 64),
      Catch::StartsWith("flexgen: no placement of 64 sequences of 1024 + 1024 tokens fits: the disk needs") &&
          Catch::Contains("of which 80.00 GiB are usable") && Catch::Contains("at most 48 fit"));
  CHECK_NOTHROW(best_flexgen_policy(model, 48));
  CHECK_THROWS_AS(best_flexgen_policy(model, 49), UserError);
  // The missing bytes are enough.
  h.capacity[2] = Bytes::gib(107);
  CHECK_NOTHROW(best_flexgen_policy(opt_13b(h), 64));

  h = a6000();
  h.capacity[0] = Bytes::gib(20);
  FlexGenSearch search{.weights = TierSplit{.gpu = 100}};
  CHECK_THROWS_WITH(best_flexgen_policy(opt_13b(h), 1, search), Catch::Contains("GPU memory needs") &&
                                                                    Catch::Contains("not even 1 fits") &&
                                                                    !Catch::Contains("the disk"));
  search = {.gpu_batch_size = 64, .weights = TierSplit{.gpu = 100}};
  h.capacity[0] = Bytes::gib(36);
  CHECK_THROWS_WITH(best_flexgen_policy(opt_13b(h), 64, search), Catch::Contains("not even 64 fit"));
  h.capacity[0] = Bytes::gib(48);
  h.capacity[2] = Bytes::gib(300);
  CHECK_THROWS_WITH(best_flexgen_policy(opt_13b(h), 256, search), Catch::Contains("at most 192 fit"));
}

TEST_CASE("FlexGen search: mistakes are named") {
  const FlexGenCostModel model = opt_13b(a6000());
  CHECK_THROWS_WITH(best_flexgen_policy(model, 0), Catch::Contains("batch is empty"));
  CHECK_THROWS_WITH(best_flexgen_policy(model, 10, {.gpu_batch_size = 4}),
                    Catch::Contains("gpu_batch_size 4 does not divide a batch of 10"));
  CHECK_THROWS_WITH(best_flexgen_policy(model, 10, {.gpu_batch_size = 0}), Catch::Contains("gpu_batch_size is 0"));
  CHECK_THROWS_WITH(best_flexgen_block(model, 10, {.gpu_batch_size = 11}),
                    Catch::Contains("gpu_batch_size 11 is larger than a block of at most 10"));
  CHECK(best_flexgen_block(model, 10, {.gpu_batch_size = 10}).policy.gpu_batch_size == 10);
  CHECK_THROWS_WITH(best_flexgen_policy(model, 10, {.cache = TierSplit{.gpu = 60, .host = 60}}),
                    Catch::Contains("cache.gpu + cache.host"));
}

TEST_CASE("FlexGen search: the best block is the best of all its shapes") {
  FlexGenHardware h = a6000();
  h.gpu_memory_bandwidth = host::test::gigabytes_per_second(768);
  const CostForm form = GENERATE(CostForm::paper, CostForm::released_code);
  // Weights do not fit into the GPU, so that larger blocks amortise their transfer.
  h.capacity = {Bytes::gib(16), Bytes::gib(24), Bytes::gib(64)};
  const FlexGenCostModel model = opt_13b(h, form);
  const FlexGenChoice block = best_flexgen_block(model, 24);
  CHECK(fits(model, block.policy));
  CHECK(block.policy.block() <= 24);
  for (const std::uint32_t size : {1U, 2U, 3U, 4U, 8U, 16U})
    for (std::uint32_t batches = 1; size * batches <= 24; ++batches) {
      const double seconds = best_seconds(model, size * batches, {.gpu_batch_size = size});
      CHECK(block.tokens_per_second * kTolerance >= size * batches * 1024.0 / seconds);
    }
  CHECK(best_flexgen_block(model, 24, {.gpu_batch_size = 5}).policy.gpu_batch_size == 5);
  // A larger limit is never worse.
  CHECK(best_flexgen_block(model, 40).tokens_per_second * kTolerance >= block.tokens_per_second);
  h.capacity = {};
  CHECK_THROWS_WITH(best_flexgen_block(opt_13b(h), 24),
                    Catch::Contains("no placement of 1 sequence of") && Catch::Contains("not even 1 fits"));
}

TEST_CASE("FlexGen search: the same question has the same answer") {
  FlexGenHardware h = a6000();
  h.capacity = {Bytes::gib(20), Bytes::gib(30), Bytes::gib(200)};
  CHECK(best_flexgen_policy(opt_13b(h), 64).policy == best_flexgen_policy(opt_13b(h), 64).policy);
}

}  // namespace test_flexgen_search
