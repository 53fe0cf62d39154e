// Engines that carry K and V: every token equals that of its request computed alone, without a cache.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "base/rng.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/serving/carried/served_model.h"
#include "host_runtime/core/serving/carried/trace_tokens.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "tests/serving/engine_support.h"
#include "tests/serving/generated_trace.h"

namespace test_served_model {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

struct Model {
  CpuBackend backend;
  Checkpoint checkpoint;
  std::unique_ptr<Decoder> decoder;

  explicit Model(const std::string& directory)
      : checkpoint(open_checkpoint(std::filesystem::path(CSDSIM_SOURCE_DIR) / directory)),
        decoder(make_decoder(checkpoint.config, *checkpoint.weights, backend)) {}
};

constexpr TraceSizes kShort{
    .input_tokens = 30, .output_tokens = 12, .prefixes = 2, .prefix_tokens = 80, .most_tokens = 300};

/// Sums over runs, so that a test can require that all has happened.
struct Seen {
  std::uint64_t host_loads = 0, drive_loads = 0, evictions = 0, preemptions = 0, swaps = 0, lost = 0, gpu_hits = 0;
  std::uint64_t promoted = 0, files_deleted = 0;
  void add(const EngineRun& run) {
    const TiersUse& use = run.tiers().use();
    host_loads += use.host.loaded;
    drive_loads += use.drives.loaded;
    lost += use.drives.lost;
    promoted += use.promoted;
    files_deleted += run.tiers().files().deleted;
    preemptions += run.meter().counts.preemptions;
    swaps += run.meter().counts.swaps;
    for (const ServedRequest& r : run.meter().requests()) gpu_hits += r.hit_gpu;
    for (const KvBlockManager* tier : {run.tiers().host(), run.tiers().drives()})
      if (tier != nullptr) evictions += tier->stored_blocks() - std::min(tier->stored_blocks(), tier->usage().taken);
  }
};

void check_run(const Model& model, const EngineSettings& settings, const ServingTrace& trace, Seen& seen) {
  ServedModel served(*model.decoder, trace,
                     {.block_tokens = settings.serving.engine.block_tokens, .parts = settings.tiers.parts});
  const EngineRun run(settings, trace, &served);
  REQUIRE(run.engine().finished());
  seen.add(run);
  const bool same = served.answers() == served.compute_cold();
  REQUIRE(same);
  for (std::size_t i = 0; i < trace.requests.size(); ++i)
    REQUIRE(served.answers()[i].size() == trace.requests[i].output);
  // What is carried takes no time.
  REQUIRE(EngineRun(settings, trace).now() == run.now());
}

}  // namespace

TEST_CASE("a turn has the tokens of the turns before it", "[serving][carried]") {
  ServingTrace trace = TraceOf(32)
                           .add(SimTime{}, 40, 40, {1, 20})
                           .add(SimTime{}, 100, 4, {1, 2, 3, 40})
                           .add(SimTime{}, 40, 40, {1, 20})
                           .add(SimTime{}, 120, 9, {1, 2, 3, 4})
                           .trace();
  trace.requests[0].session = trace.requests[1].session = trace.requests[3].session = 0;
  const TraceTokens tokens(trace, 512);
  const auto first = tokens.of(0), second = tokens.of(1), alone = tokens.of(2), third = tokens.of(3);
  REQUIRE(first.size() == 79);
  for (std::size_t i = 0; i < 64; ++i) REQUIRE(first[i] == second[i]);
  // What no later turn names in whole blocks the model says.
  for (std::size_t i = 64; i < first.size(); ++i) REQUIRE(!first[i]);
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(second[i] == third[i]);
  // The same prompt in no session: its answer is not known.
  for (std::size_t i = 0; i < 40; ++i) REQUIRE(alone[i] == first[i]);
  for (std::size_t i = 40; i < alone.size(); ++i) REQUIRE(!alone[i]);
}

TEST_CASE("tokens of random engines are those of a run without a cache", "[serving][carried]") {
  const Model opt("tests/data/golden/opt"), llama("tests/data/golden/llama");
  Rng rng(4, "served tokens");
  Seen seen;
  for (int round = 0; round < 150; ++round) {
    CAPTURE(round);
    const Model& model = round % 2 == 0 ? opt : llama;
    EngineSettings settings = random_settings(rng, {20, 30, 80}, ModelShape::of(model.checkpoint.config));
    if (settings.host_blocks) settings.host_blocks = 3 + rng.below(10);
    if (settings.drive_blocks) settings.drive_blocks = 4 + rng.below(40);
    if (settings.serving.engine.promotion == PromotionPolicy::at_lookup) settings.host_blocks = 8 + rng.below(8);
    settings.tiers.staging = Bytes::kib(rng.below(2) == 0 ? 128 : 4096);
    if (rng.below(3) == 0) settings.rates.copy = Bandwidth{20'000'000};  // copies last as long as steps
    if (rng.below(3) == 0) settings.loses_every = 2 + rng.below(10);
    constexpr std::array<std::string_view, 4> kKinds{"chats", "bursts", "closed-loop", "agents"};
    const ServingTrace trace = generated_trace(kKinds[rng.below(4)], rng.below(1000), 24,
                                               SimTime::microseconds(rng.below(2) == 0 ? 20 : 400), kShort);
    check_run(model, settings, trace, seen);
  }
  CHECK(seen.host_loads > 100);
  CHECK(seen.drive_loads > 100);
  CHECK(seen.evictions > 100);
  CHECK(seen.preemptions > 20);
  CHECK(seen.swaps > 5);
  CHECK(seen.lost > 20);
  CHECK(seen.promoted > 20);
  CHECK(seen.files_deleted > 100);
  CHECK(seen.gpu_hits > 1000);
}

}  // namespace test_served_model
