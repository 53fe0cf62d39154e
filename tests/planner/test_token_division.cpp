// The solved division of tokens against all divisions of a fine grid, and its way back to shorter contexts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/planner/systems/hybrid/division.h"
#include "host_runtime/core/planner/systems/hybrid/run_division.h"
#include "tests/planner/planner_support.h"

namespace test_token_division {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

/// A platform on which several parts may be the best place of a token. Buffers and new tokens always fit.
DivisionInputs random_inputs(Rng& rng) {
  DivisionInputs in;
  in.model = small_model(8);
  in.model.width = 1024;
  in.model.heads = 8;
  in.model.kv_heads = 8 >> rng.below(3);
  in.model.head_dim = 128;
  in.sequences = static_cast<std::uint32_t>(1 + rng.below(32));
  in.cached = 500 + double(rng.below(8000));
  in.longest = in.cached + 100;
  in.prompt = in.cached;
  in.group = static_cast<std::uint32_t>(1 + rng.below(32));
  in.newest = (in.group - 1) / 2.0;
  in.newest_at = rng.below(2) == 0 ? NewestAt::gpu : NewestAt::host;
  in.held = in.longest;
  in.rates.mini_batches = static_cast<std::uint32_t>(1 + rng.below(2));
  in.rates.host_to_gpu = Bandwidth{(1 + rng.below(30)) * 1'000'000'000};
  in.rates.drive_link = Bandwidth{3'000'000'000};
  in.rates.gpu_peer_link = Bandwidth{20'000'000'000};
  in.rates.drives = static_cast<std::uint32_t>(1 + rng.below(8));
  const double gemm = 1e12 * double(1 + rng.below(100)), memory = 1e11 * double(1 + rng.below(20));
  in.rates.gpu_time = [=](const ComputeWork& work) {
    return std::max(double(work.flops) / gemm, double(work.bytes().value) / memory) + 5e-6 * work.launches;
  };
  const double drive = 1e8 * double(1 + rng.below(100));
  in.rates.drive_attention = [=](const ModelShape& m, const DriveAttention& a) {
    return 1e-4 + a.sequences * a.tokens * double(m.kv_bytes_per_token_and_layer().value) / drive;
  };
  const double kv = double(in.model.kv_bytes_per_token().value) * in.sequences * in.longest;
  // Buffers and new tokens always fit, and a share of K and V besides.
  const double x = double(in.model.width) * in.model.element_bytes * in.sequences * in.longest;
  const double room = kv * (3.0 / 8 + 0.2 * double(rng.below(5)) + in.group / in.longest) + 7 * x;
  in.rates.gpu_memory = Bytes{in.model.weight_bytes().value + static_cast<std::uint64_t>(room)};
  in.rates.host_memory = Bytes{static_cast<std::uint64_t>((0.2 + 0.3 * double(rng.below(4))) * kv)};
  in.rates.files = Bytes{static_cast<std::uint64_t>(4 * kv)};
  return in;
}

}  // namespace

TEST_CASE("a run whose groups join is divided at the border of a page as well as any shares that stay", "[division]") {
  Rng rng(2028, "run");
  DivisionInputs in = random_inputs(rng);
  in.group = 16, in.prompt = in.cached = 1000, in.newest_at = NewestAt::gpu;
  in.rates.drives = in.rates.mini_batches = 1;
  in.rates.gpu_memory = in.rates.host_memory = in.rates.files = Bytes{};  // no limits
  in.rates.host_to_gpu = Bandwidth{1'000'000'000};
  // A page of 62 tokens of each head takes as long as copies of 40 of them.
  const double kv = double(in.model.kv_bytes_per_token_and_layer().value);
  in.rates.drive_attention = [=](const ModelShape&, const DriveAttention& a) {
    return (10 + std::floor(a.tokens / 62)) * 40 * a.sequences * kv / 1e9 + 1e-6 * a.appended;
  };
  const GrowingRun run{.inputs_after =
                           [&](std::uint32_t steps) {
                             DivisionInputs after = in;
                             after.cached = in.prompt + steps;
                             return after;
                           },
                       .prompt = 1000,
                       .steps = 63,
                       .page_tokens = 62};
  const GivenShares given{Ratio{0, 1}, Ratio{0, 1}, std::nullopt, std::nullopt};
  const TokenShares start = rounded({0, 0, 0.75, 0.25}, given, in.group);
  const TokenShares found = fastest_shares(run, given, start, {{0, 0, 0.75, 0.25}});
  double least = 1e9;
  for (int n = 0; n <= 1000; ++n)
    least = std::min(least, run_time(run, rounded({0, 0, 1 - n / 1000.0, n / 1000.0}, given, in.group)));
  CHECK(run_time(run, found) <= 1.01 * least);
  CHECK(run_time(run, start) > 1.02 * least);
}

TEST_CASE("the solved division is the best of a grid of sixteenths, on 200 random platforms", "[division]") {
  Rng rng(2026, "division");
  std::array<int, kTokenParts> used{};
  int several = 0;
  for (int trial = 0; trial < 200; ++trial) {
    CAPTURE(trial);
    const DivisionInputs in = random_inputs(rng);
    std::array<std::optional<double>, kTokenParts> given;
    const Division best = solve_division(in, given);
    double sum = 0;
    int parts = 0;
    for (std::size_t part = 0; part < kTokenParts; ++part) {
      REQUIRE(best[part] >= 0);
      sum += best[part];
      used[part] += best[part] > 1e-3;
      parts += best[part] > 1e-3;
    }
    several += parts > 1;
    REQUIRE(sum == Approx(1));
    const double solved = layer_times(in, best).layer;
    constexpr int kGrid = 16;
    for (int r = 0; r <= kGrid; ++r)
      for (int k = 0; r + k <= kGrid; ++k)
        for (int c = 0; r + k + c <= kGrid; ++c) {
          const std::array<int, kTokenParts> point{r, k, c, kGrid - r - k - c};
          std::array<std::optional<double>, kTokenParts> at;
          Division division{};
          for (std::size_t part = 0; part < kTokenParts; ++part)
            at[part] = division[part] = double(point[part]) / kGrid;
          if (layer_times(in, division).layer >= solved * 0.995) continue;
          CAPTURE(r, k, c);
          // Faster, so it must not fit.
          CHECK_THROWS_AS(solve_division(in, at), UserError);
        }
  }
  for (const int count : used) CHECK(count > 10);
  CHECK(several > 50);
}

TEST_CASE("a division fits up to what its parts, the newest tokens and the buffers take of each memory", "[division]") {
  DivisionInputs in;
  in.model = small_model(8);
  in.sequences = 6;
  in.held = in.longest = 900;
  in.cached = in.prompt = 700;
  in.group = 16;
  in.rates.gpus = 2;
  in.rates.drives = 2;
  in.rates.host_to_gpu = in.rates.drive_link = in.rates.gpu_peer_link = Bandwidth{1'000'000'000};
  in.rates.gpu_time = [](const ComputeWork&) { return 1e-6; };
  in.rates.drive_attention = [](const ModelShape&, const DriveAttention&) { return 1e-6; };
  in.weights_on_host = Ratio{1, 2};
  const double layers = 8, kv = double(in.model.kv_bytes_per_token_and_layer().value);
  const double x = double(in.model.width) * in.model.element_bytes, tokens = 6 * 900;
  const double weights = double(in.model.layer_weight_bytes().value) / 2;  // of a layer, in host memory
  const double newest = 6 * 16 * kv * layers, activations = tokens * layers * x / 16;
  // A sixteenth is recomputed, two are kept, four copied, nine in drives. Two layers of the weights in host memory are
  // on the GPU. Buffers of three layers are for the prompts of the prefill, which are longer than what is copied later.
  const Division shares{1.0 / 16, 2.0 / 16, 4.0 / 16, 9.0 / 16};
  const double gpu = double(in.model.weight_bytes().value) - weights * (layers - 2) +
                     tokens / 2 * kv * layers * 2 / 16 + 3 * 700 * (3 * (kv + x) + 4 * x);
  const double host = weights * layers + tokens * layers * kv * 4 / 16;
  const double drives = tokens * layers * kv * 9 / 16;
  std::array<std::optional<double>, kTokenParts> given;
  for (std::size_t part = 0; part < kTokenParts; ++part) given[part] = shares[part];
  for (const NewestAt newest_at : {NewestAt::gpu, NewestAt::host})
    for (const StoredAt stored_at : {StoredAt::host, StoredAt::drives}) {
      CAPTURE(newest_at == NewestAt::gpu, stored_at == StoredAt::host);
      in.newest_at = newest_at;
      in.activations = stored_at;
      const auto solves = [&](double of_gpu, double of_host, double of_drives) {
        DivisionInputs with = in;
        with.rates.gpu_memory = {static_cast<std::uint64_t>(of_gpu)};
        with.rates.host_memory = {static_cast<std::uint64_t>(of_host)};
        with.rates.files = {static_cast<std::uint64_t>(of_drives)};
        solve_division(with, given);
      };
      const double of_gpu = gpu + (newest_at == NewestAt::gpu ? newest / 2 : 0);
      const double of_host =
          host + (newest_at == NewestAt::host ? newest : 0) + (stored_at == StoredAt::host ? activations : 0);
      const double of_drives = drives + (stored_at == StoredAt::drives ? activations : 0);
      constexpr double kLess = 0.9999;
      CHECK_NOTHROW(solves(of_gpu, of_host, of_drives));
      CHECK_THROWS_AS(solves(of_gpu * kLess, of_host, of_drives), UserError);
      CHECK_THROWS_AS(solves(of_gpu, of_host * kLess, of_drives), UserError);
      CHECK_THROWS_AS(solves(of_gpu, of_host, of_drives * kLess), UserError);
    }
}

TEST_CASE("a step reads whole blocks of activations from a drive: those of the prompts, and those of each group") {
  DivisionInputs in;
  in.model = small_model(8);
  in.sequences = 6;
  in.prompt = 400;
  in.held = in.longest = in.cached = 480;
  in.group = 16;
  in.activations = StoredAt::drives;
  in.rates.mini_batches = in.rates.drives = 1;
  in.rates.block_size = Bytes::kib(4);
  in.rates.host_to_gpu = in.rates.drive_link = in.rates.gpu_peer_link = Bandwidth{1'000'000'000};
  in.rates.gpu_time = [](const ComputeWork&) { return 1e-6; };
  std::set<std::uint64_t> reads;
  in.rates.drive_attention = [&](const ModelShape&, const DriveAttention& asked) {
    reads.insert(asked.read.value);
    return 1e-6;
  };
  layer_times(in, {1.0 / 4, 0, 0, 3.0 / 4});
  // 100 tokens of each prompt have 18.75 blocks of rows of 128 B, a group has 3, and a quarter of five groups is here.
  CHECK(reads.contains(19 * 4096 + 5 * 3 * 4096 / 4));
}

TEST_CASE("queries and outputs of several drives cross the GPU's link one after another, and wait for copies",
          "[division]") {
  DivisionInputs in;
  in.model = small_model(8);
  in.sequences = 6;
  in.prompt = in.held = in.longest = in.cached = 480;
  in.rates.mini_batches = 1;
  in.rates.drive_link = Bandwidth{100'000'000'000};
  in.rates.host_to_gpu = in.rates.gpu_peer_link = Bandwidth{1'000'000'000};
  in.rates.gpu_time = [](const ComputeWork&) { return 1e-6; };
  in.rates.drive_attention = [](const ModelShape&, const DriveAttention&) { return 1e-3; };
  const auto drives = [&](std::uint32_t count) {
    in.rates.drives = count;
    return layer_times(in, {0, 0, 0, 1}).drives;
  };
  const HeadRange all{KvHead{0}, in.model.kv_heads};
  const double outputs = 6.0 * double(in.model.partial_bytes(all).value);
  CHECK(drives(4) - drives(1) == Approx(3 * outputs / 1e9));
  // A link that is busy all the time lets a piece of 4 KiB of the copies in front of the outputs.
  in.rates.drives = 1;
  const LayerTimes idle = layer_times(in, {0, 0, 0, 1}), busy = layer_times(in, {0, 0, 0.5, 0.5});
  const double link = busy.link / busy.drives, wait = std::ceil(outputs / 4096) * 4096 / 1e9;
  CHECK(busy.layer - idle.layer == Approx(link * wait).epsilon(0.2));
}

TEST_CASE("each kind of copy to the GPU takes the latency of the link, besides its bytes", "[division]") {
  DivisionInputs in;
  in.model = small_model(8);
  in.sequences = 6;
  in.prompt = in.held = in.longest = in.cached = 480;
  in.rates.mini_batches = in.rates.drives = 1;
  in.rates.host_to_gpu = in.rates.drive_link = in.rates.gpu_peer_link = Bandwidth{1'000'000'000};
  in.rates.link_latency = SimTime::microseconds(7);
  in.rates.gpu_time = [](const ComputeWork&) { return 1e-6; };
  in.rates.drive_attention = [](const ModelShape&, const DriveAttention&) { return 1e-3; };
  const double x = double(in.model.width) * in.model.element_bytes;
  const auto kv = double(in.model.kv_bytes_per_token_and_layer().value);
  CHECK(layer_times(in, {0, 1, 0, 0}).link == 0);
  CHECK(layer_times(in, {0, 0.5, 0.5, 0}).link == Approx(6 * 240 * kv / 1e9 + 7e-6));
  CHECK(layer_times(in, {0.25, 0.25, 0.5, 0}).link == Approx(6 * (240 * kv + 120 * x) / 1e9 + 14e-6));
  in.newest_at = NewestAt::host;
  in.newest = 3;
  CHECK(layer_times(in, {0.25, 0.25, 0.5, 0}).link == Approx(6 * (243 * kv + 120 * x) / 1e9 + 21e-6));
}

TEST_CASE("at a shorter context no part has more tokens, and what is kept in GPU memory stays", "[division]") {
  Rng rng(31, "earlier divisions");
  int kept_longer = 0;
  for (int trial = 0; trial < 60; ++trial) {
    CAPTURE(trial);
    DivisionInputs in = random_inputs(rng);
    in.prompt = in.cached / 2;
    const std::array<std::optional<double>, kTokenParts> given;
    const Division last = solve_division(in, given);
    const double later = in.cached;
    in.held = in.cached = later * (0.6 + 0.1 * double(rng.below(4)));
    const Division division = solve_earlier_division(in, given, last, later);
    double sum = 0;
    for (std::size_t part = 0; part < kTokenParts; ++part) {
      REQUIRE(division[part] >= 0);
      REQUIRE(division[part] * in.cached <= last[part] * later + 1e-6 * later);
      sum += division[part];
    }
    REQUIRE(sum == Approx(1).epsilon(1e-5));
    // Leaving every part its share takes no less time.
    REQUIRE(layer_times(in, division).layer <= layer_times(in, last).layer * 1.01);
    const auto kept = static_cast<std::size_t>(TokenPart::kept);
    kept_longer += division[kept] > last[kept] * 1.01;
  }
  CHECK(kept_longer > 10);
}

}  // namespace test_token_division
