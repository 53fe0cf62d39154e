#include <array>
#include <catch2/catch.hpp>

#include "base/rng.h"
#include "host_runtime/core/serving/prefix_curve.h"
#include "tests/serving/engine_support.h"
#include "tests/serving/generated_trace.h"

namespace test_serving_engine {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;
using Catch::Matchers::WithinRel;

namespace {

constexpr SimTime kZero{};

SimTime seconds(double s) { return SimTime{static_cast<std::int64_t>(s * 1e12)}; }

/// Prefill of a prompt in chunks, and `output` - 1 decode steps, of a request alone.
SimTime alone(const StepCost& cost, std::uint64_t cached, std::uint64_t prompt, std::uint64_t output,
              std::uint64_t chunk) {
  SimTime sum;
  for (std::uint64_t done = cached; done < prompt;) {
    const std::uint64_t tokens = std::min(chunk, prompt - done);
    const bool last = done + tokens == prompt;
    sum += cost.step({.chunks = {{done, tokens}}, .decodes = 0, .decode_contexts = 0, .samples = last ? 1U : 0U});
    done += tokens;
  }
  for (std::uint64_t i = 1; i < output; ++i)
    sum += cost.step({.chunks = {}, .decodes = 1, .decode_contexts = prompt + i, .samples = 1});
  return sum;
}

/// A prompt that comes back after another one.
ServingTrace first_prompt_again() {
  return TraceOf(64)
      .add(kZero, 4 * 64 + 8, 2, {1, 2, 3, 4, 9})
      .add(seconds(1), 4 * 64 + 8, 2, {5, 6, 7, 8, 10})
      .add(seconds(2), 4 * 64 + 8, 2, {1, 2, 3, 4, 11})
      .trace();
}

/// A GPU that holds one of these prompts.
EngineSettings one_prompt_in_gpu() {
  EngineSettings settings;
  settings.serving.engine.gpu_blocks = 17;
  settings.serving.engine.factor = 4;
  return settings;
}

StepWork one_chunk(std::uint64_t before, std::uint64_t tokens) {
  return {.chunks = {{before, tokens}}, .decodes = 0, .decode_contexts = 0, .samples = 1};
}

constexpr TraceSizes kSizes{
    .input_tokens = 200, .output_tokens = 40, .prefixes = 3, .prefix_tokens = 256, .most_tokens = 4000};

/// What holds after every run.
void check_books(const EngineRun& run, std::size_t requests) {
  REQUIRE(run.meter().requests().size() == requests);
  double life = 0;
  std::uint64_t prompts = 0, hits = 0, outputs = 0, preemptions = 0;
  for (const ServedRequest& r : run.meter().requests()) {
    REQUIRE(r.life.generated == r.life.output);
    REQUIRE(r.life.arrival <= r.life.admitted);
    REQUIRE(r.life.admitted <= r.life.first_token);
    REQUIRE(r.life.first_token <= r.life.end);
    life += (r.life.end - r.life.arrival).seconds();
    prompts += r.life.prompt;
    hits += r.hit_gpu + r.hit_host + r.hit_drives;
    outputs += r.life.output;
    preemptions += r.preemptions;
    REQUIRE(r.hit_gpu + r.hit_host + r.hit_drives < r.life.prompt);
    // The spans of its life follow one another from the arrival to the end.
    SimTime at = r.life.arrival;
    for (const RequestSpan& span : r.spans) {
      REQUIRE(span.begin == at);
      at = span.end;
    }
    REQUIRE(at == r.life.end);
  }
  // Little's law, for a run that begins and ends empty.
  REQUIRE_THAT(run.meter().requests_seconds(), WithinRel(life, 1e-9));
  REQUIRE(run.meter().counts.preemptions == preemptions);
  REQUIRE(run.meter().counts.lost_tokens == 0);
  if (preemptions == 0) REQUIRE(run.meter().counts.computed_tokens == prompts - hits + outputs - requests);
  for (const KvBlockManager* tier : {run.tiers().host(), run.tiers().drives()}) {
    if (tier == nullptr) continue;
    REQUIRE(tier->usage().reading == 0);
    REQUIRE(tier->usage().writing == 0);
    REQUIRE(tier->usage().taken <= *tier->capacity());
  }
  const TiersUse& use = run.tiers().use();
  const Bytes block = run.tiers().whole_block();
  REQUIRE(use.drives.bytes_written == block * use.drives.stored);
  REQUIRE(use.host.bytes_written == block * use.host.stored);
  REQUIRE(use.drives.bytes_read == block * use.drives.loaded);
  REQUIRE(use.host.bytes_read == block * use.host.loaded);
  if (run.tiers().drives() != nullptr) REQUIRE(use.drives.stored == run.tiers().drives()->stored_blocks());
  REQUIRE(run.tiers().settled());
  if (!run.tiers().has_files()) return;
  const FileUse files = run.tiers().files();
  REQUIRE(files.created == use.drives.stored);
  REQUIRE(files.created - files.deleted == run.tiers().drives()->usage().taken);
}

}  // namespace

TEST_CASE("a request alone takes the sum of its steps", "[serving][engine]") {
  for (const std::uint32_t chunk : {64U, 100U, 8192U}) {
    EngineSettings settings;
    settings.serving.engine.step_tokens = chunk;
    settings.serving.engine.granularity = chunk == 100 ? StepGranularity::layer : StepGranularity::step;
    const EngineRun run(settings, TraceOf(16).add(SimTime::milliseconds(3), 250, 20, {}).trace());
    const ServedRequest& r = run.request(0);
    CHECK((r.life.arrival).ps == (SimTime::milliseconds(3)).ps);
    CHECK((r.life.first_token - r.life.arrival).ps == (alone(run.cost(), 0, 250, 1, chunk)).ps);
    CHECK((r.life.end - r.life.arrival).ps == (alone(run.cost(), 0, 250, 20, chunk)).ps);
    check_books(run, 1);
  }
}

TEST_CASE("clients of a closed loop take turns in two steps", "[serving][engine]") {
  constexpr std::uint32_t kClients = 4, kRounds = 5;
  TraceOf trace(16);
  for (std::uint32_t i = 0; i < kClients * kRounds; ++i) trace.add(kZero, 96, 1, {100 * i, 100 * i + 1, 100 * i + 2});
  ServingTrace loop = trace.trace();
  for (std::uint32_t i = kClients; i < loop.requests.size(); ++i) {
    loop.requests[i].first_dependency = loop.dependencies.size();
    loop.requests[i].dependencies = 1;
    loop.dependencies.push_back({.request = i - kClients});
  }
  EngineSettings settings;
  settings.host_blocks = settings.drive_blocks = 100'000;
  const EngineRun run(settings, loop);
  check_books(run, loop.requests.size());
  // The first one to come back begins a step with itself; the others come while it runs.
  const StepWork one = one_chunk(0, 96);
  const StepWork others{.chunks = {{0, 96}, {0, 96}, {0, 96}}, .decodes = 0, .decode_contexts = 0, .samples = 3};
  SimTime last;
  for (const ServedRequest& r : run.meter().requests()) last = std::max(last, r.life.end);
  CHECK(last.ps == ((run.cost().step(one) + run.cost().step(others)) * kRounds).ps);
}

TEST_CASE("a prompt that the GPU has begins behind it", "[serving][engine]") {
  const ServingTrace trace = TraceOf(64)
                                 .add(kZero, 200, 2, {1, 2, 3, 4})
                                 .add(seconds(1), 200, 2, {1, 2, 3, 5})
                                 .add(seconds(2), 128, 2, {1, 2})
                                 .trace();
  const EngineRun run(EngineSettings{}, trace);
  CHECK(run.request(1).hit_gpu == 192);
  CHECK((run.request(1).life.end - run.request(1).life.arrival).ps == (alone(run.cost(), 192, 200, 2, 8192)).ps);
  // The last token has to be computed.
  CHECK(run.request(2).hit_gpu == 112);
  check_books(run, 3);
}

TEST_CASE("loads take what their policy says", "[serving][engine]") {
  // The GPU holds one request, so that the second prompt has left it when it comes back.
  const ServingTrace trace = first_prompt_again();
  EngineSettings settings = one_prompt_in_gpu();
  settings.drive_blocks = 100;
  const std::uint64_t hit = 4 * 64, prompt = hit + 8;
  const auto check = [&](SimTime expected) {
    const EngineRun run(settings, trace);
    check_books(run, 3);
    const ServedRequest& r = run.request(2);
    CHECK(r.hit_drives == hit);
    CHECK((r.life.first_token - r.life.arrival).ps == (expected).ps);
  };
  const EngineRun any(settings, trace);
  const StepCost& cost = any.cost();
  const Bytes block = any.tiers().whole_block();
  const SimTime computing = alone(cost, hit, prompt, 1, 8192);
  SECTION("staged") {
    // Four blocks are read one after the other; the last one is then copied.
    const SimTime loading = transfer_time(block, settings.rates.read) * 4 + transfer_time(block, settings.rates.copy);
    settings.serving.engine.load = LoadPolicy::prefetch_waiting;
    check(loading + computing);
    settings.serving.engine.load = LoadPolicy::before_step;
    check(loading + computing);
    settings.serving.engine.load = LoadPolicy::by_layer;
    check(std::max(computing, loading + cost.layer(one_chunk(hit, 8)) + cost.ends(one_chunk(hit, 8))));
  }
  SECTION("layer by layer from a slow drive") {
    settings.serving.engine.load = LoadPolicy::by_layer;
    settings.rates.read = Bandwidth{20'000'000};
    const SimTime loading = transfer_time(block, settings.rates.read) * 4 + transfer_time(block, settings.rates.copy);
    const SimTime last = cost.layer(one_chunk(hit, 8)) + cost.ends(one_chunk(hit, 8));
    REQUIRE(loading > computing);
    check(loading + last);
    settings.serving.engine.granularity = StepGranularity::layer;
    settings.tiers.parts = small_model().layers;
    check(loading - transfer_time(block, settings.rates.copy) +
          transfer_time(Bytes{block.value / 4}, settings.rates.copy) + last);
  }
  SECTION("from two drives side by side") {
    settings.tiers.drives = 2;
    settings.serving.engine.load = LoadPolicy::before_step;
    check(transfer_time(block, settings.rates.read) * 2 + transfer_time(block, settings.rates.copy) * 2 + computing);
  }
  SECTION("directly") {
    settings.tiers.path = DrivePath::direct;
    check(transfer_time(block, settings.rates.read) * 4 + computing);
  }
  SECTION("from host memory") {
    settings.drive_blocks.reset();
    settings.host_blocks = 100;
    const EngineRun run(settings, trace);
    check_books(run, 3);
    CHECK(run.request(2).hit_host == hit);
    CHECK((run.request(2).life.first_token - run.request(2).life.arrival).ps ==
          (transfer_time(block, settings.rates.copy) * 4 + computing).ps);
  }
  SECTION("computed again") {
    settings.serving.engine.retrieval = RetrievalPolicy::recompute;
    const EngineRun run(settings, trace);
    CHECK(run.request(2).hit_drives == 0);
    CHECK((run.request(2).life.first_token - run.request(2).life.arrival).ps == (alone(cost, 0, prompt, 1, 8192)).ps);
    CHECK(run.meter().counts.passed_over == 4);
  }
}

TEST_CASE("an engine may load no more than the staging buffer holds", "[serving][engine]") {
  const ServingTrace trace = first_prompt_again();
  EngineSettings settings = one_prompt_in_gpu();
  settings.drive_blocks = 100;
  const Bytes block = EngineRun(settings, trace).tiers().whole_block();
  settings.tiers.staging = block * 2 + Bytes{4096};
  CHECK(EngineRun(settings, trace).request(2).hit_drives == 4 * 64);
  settings.tiers.fills_staging_once = true;
  const EngineRun run(settings, trace);
  check_books(run, 3);
  CHECK(run.request(2).hit_drives == 2 * 64);
  CHECK(run.tiers().use().drives.found == 4);
}

TEST_CASE("a waiting request is loaded from host memory, to which its blocks came before", "[serving][engine]") {
  // Host memory holds four blocks: the second prompt pushes the first one out.
  const ServingTrace trace = first_prompt_again();
  EngineSettings settings = one_prompt_in_gpu();
  settings.serving.engine.promotion = PromotionPolicy::at_lookup;
  settings.host_blocks = 4;
  settings.drive_blocks = 100;
  const EngineRun run(settings, trace);
  check_books(run, 3);
  const ServedRequest& r = run.request(2);
  const SimTime computing = alone(run.cost(), 4 * 64, 4 * 64 + 8, 1, 8192);
  const Bytes block = run.tiers().whole_block();
  CHECK((r.life.first_token - r.life.arrival).ps ==
        (transfer_time(block, settings.rates.read) * 4 + transfer_time(block, settings.rates.copy) * 4 + computing).ps);
  CHECK(r.hit_drives == 4 * 64);
  CHECK(r.hit_host == 0);
  CHECK(run.tiers().use().promoted == 4);
  CHECK(run.tiers().use().promoted_unread == 0);
  CHECK(run.tiers().use().promotion_failures == 0);
  // A prompt that host memory does not hold as a whole is computed.
  settings.host_blocks = 3;
  const EngineRun small(settings, trace);
  check_books(small, 3);
  CHECK(small.tiers().use().promotion_failures == 1);
  CHECK(small.tiers().use().promoted == 0);
  CHECK(small.request(2).hit_drives == 0);
  CHECK((small.request(2).life.first_token - small.request(2).life.arrival).ps ==
        alone(run.cost(), 0, 4 * 64 + 8, 1, 8192).ps);
}

TEST_CASE("promotions of waiting requests push each other out of a small host memory", "[serving][engine]") {
  // 20 prefixes in turn, 50 requests at a time (vLLM issue 49902).
  constexpr std::uint32_t kClients = 50, kRequests = 300;
  TraceOf made(64);
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    const std::uint64_t first = 100 * (i % 20);
    made.add(kZero, 4 * 64 + 8, 8, {first + 1, first + 2, first + 3, first + 4, 10'000 + i});
  }
  ServingTrace trace = made.trace();
  for (std::uint32_t i = kClients; i < kRequests; ++i) {
    trace.requests[i].first_dependency = trace.dependencies.size();
    trace.requests[i].dependencies = 1;
    trace.dependencies.push_back({.request = i - kClients});
  }
  EngineSettings settings;
  settings.serving.engine.gpu_blocks = 17 * 4;  // four run at a time
  settings.serving.engine.factor = 4;
  settings.serving.engine.prefix_caching = false;
  settings.drive_blocks = 1000;
  settings.rates.read = Bandwidth{1'000'000'000};
  settings.model.width *= 64;  // computing takes longer than loading
  settings.model.ffn *= 64;
  struct Outcome {
    TiersUse use;
    std::uint64_t computed = 0;
    SimTime end;
  };
  const auto serve = [&](PromotionPolicy promotion, std::uint64_t host_blocks) {
    settings.serving.engine.promotion = promotion;
    settings.host_blocks = host_blocks;
    const EngineRun run(settings, trace);
    check_books(run, kRequests);
    return Outcome{run.tiers().use(), run.meter().counts.computed_tokens, run.now()};
  };
  const Outcome storm = serve(PromotionPolicy::at_lookup, 20), calm = serve(PromotionPolicy::with_load, 20),
                ample = serve(PromotionPolicy::at_lookup, 80);
  // Blocks come to host memory, leave it unread for those of others, and come again; or find no room.
  CHECK(storm.use.promoted_unread > storm.use.promoted / 4);
  CHECK(storm.use.promotion_failures > 0);
  CHECK(storm.computed > calm.computed);
  CHECK(storm.use.drives.bytes_read > calm.use.drives.bytes_read);
  CHECK(storm.end.ps > calm.end.ps);
  // Host memory that holds the 20 prefixes sees none of that.
  CHECK(ample.use.promoted_unread == 0);
  CHECK(ample.use.promotion_failures == 0);
  CHECK(ample.end.ps < storm.end.ps);
}

TEST_CASE("a block that a drive cannot read back is computed and stored again", "[serving][engine]") {
  const ServingTrace trace = first_prompt_again();
  EngineSettings settings = one_prompt_in_gpu();
  settings.drive_blocks = 100;
  for (const LoadPolicy load : {LoadPolicy::prefetch_waiting, LoadPolicy::before_step}) {
    settings.serving.engine.load = load;
    settings.loses_every = 3;  // the third of the four reads
    const EngineRun run(settings, trace);
    CHECK(run.tiers().use().drives.found == 4);
    CHECK(run.tiers().use().drives.loaded == 3);
    CHECK(run.tiers().use().drives.lost == 1);
    CHECK(run.tiers().use().drives.stored == 4 + 4 + 1);
    // What lies behind the lost block is of no use.
    CHECK(run.meter().counts.lost_tokens == 2 * 64);
    CHECK(run.request(2).hit_drives == 2 * 64);
    CHECK(run.request(2).life.generated == 2);
  }
}

TEST_CASE("an engine may wait for its stores", "[serving][engine]") {
  const ServingTrace trace = TraceOf(64).add(kZero, 4 * 64 + 8, 5, {1, 2, 3, 4, 9}).trace();
  EngineSettings settings;
  settings.serving.engine.factor = 4;
  settings.host_blocks = 100;
  const EngineRun free(settings, trace);
  settings.serving.engine.waits_for_stores = true;
  const EngineRun waits(settings, trace);
  check_books(waits, 1);
  CHECK(waits.request(0).life.first_token == free.request(0).life.first_token);
  CHECK((waits.request(0).life.end - free.request(0).life.end).ps ==
        (transfer_time(free.tiers().whole_block(), settings.rates.copy) * 4).ps);
}

TEST_CASE("priorities say who is next and who makes room", "[serving][engine]") {
  ServingTrace trace =
      TraceOf(16).add(kZero, 64, 4, {}).add(kZero, 64, 4, {}).add(kZero, 64, 4, {}).add(kZero, 64, 4, {}).trace();
  const std::array<std::uint32_t, 4> priorities{2, 1, 2, 0};
  for (std::size_t i = 0; i < 4; ++i) trace.requests[i].priority = priorities[i];
  EngineSettings settings;
  settings.serving.engine.most_running = 1;
  const auto order = [&] {
    const EngineRun run(settings, trace);
    check_books(run, 4);
    std::vector<std::uint32_t> ids;
    for (const ServedRequest& r : run.meter().requests()) ids.push_back(r.life.id.value);
    return ids;
  };
  CHECK(order() == std::vector<std::uint32_t>{0, 1, 2, 3});
  settings.serving.engine.order = AdmissionOrder::priority;
  CHECK(order() == std::vector<std::uint32_t>{0, 3, 1, 2});  // the first one runs before the others come

  // Blocks run out while all decode: by arrival the last one leaves, by priority the first one.
  ServingTrace two = TraceOf(16).add(kZero, 32, 40, {}).add(kZero, 32, 40, {}).trace();
  two.requests[0].priority = 1;
  settings.serving.engine.most_running = 2;
  settings.serving.engine.gpu_blocks = 7;
  CHECK(EngineRun(settings, two).request(0).preemptions > 0);
  CHECK(EngineRun(settings, two).request(1).preemptions == 0);
  settings.serving.engine.order = AdmissionOrder::arrival;
  CHECK(EngineRun(settings, two).request(0).preemptions == 0);
  CHECK(EngineRun(settings, two).request(1).preemptions > 0);
}

TEST_CASE("a prefix outlives its tail in the GPU", "[serving][engine]") {
  // One of the first prompt's 17 blocks is left: the first.
  EngineSettings settings;
  settings.serving.engine.gpu_blocks = 18;
  const ServingTrace trace = first_prompt_again();
  CHECK(EngineRun(settings, trace).request(2).hit_gpu == 16);
}

TEST_CASE("a step waits for the blocks that leave the GPU for it", "[serving][engine]") {
  EngineSettings settings = one_prompt_in_gpu();
  settings.serving.engine.evicts_to_tiers = true;
  settings.tiers.store = traits_of(StorePolicy::on_eviction);
  settings.host_blocks = 100;
  const ServingTrace trace =
      TraceOf(64).add(kZero, 4 * 64 + 8, 2, {1, 2, 3, 4, 9}).add(seconds(1), 4 * 64 + 8, 2, {5, 6, 7, 8, 10}).trace();
  const EngineRun run(settings, trace);
  CHECK(run.tiers().use().host.stored == 4);
  CHECK((run.request(1).life.first_token - run.request(1).life.arrival).ps ==
        (transfer_time(run.tiers().whole_block(), settings.rates.copy) * 4 + alone(run.cost(), 0, 264, 1, 8192)).ps);
}

TEST_CASE("chunks of a prompt take what it takes whole, where only arithmetic counts", "[serving][engine]") {
  GpuConfig gpu;
  gpu.kernel_launch = {};
  gpu.memory_bandwidth = Bandwidth{std::uint64_t{1} << 60};
  const StepCost cost(small_model(), GpuModel(gpu));
  const auto layer = [&](std::uint64_t before, std::uint64_t tokens) {
    return cost.layer({.chunks = {{before, tokens}}, .decodes = 0, .decode_contexts = 0, .samples = 0}).seconds();
  };
  CHECK_THAT(layer(0, 3000) + layer(3000, 5000), WithinRel(layer(0, 8000), 1e-4));
}

TEST_CASE("the blocks of requests are named by the trace", "[serving][engine]") {
  TraceOf made(64);
  made.add(kZero, 200, 60, {1, 2, 3, 4})
      .add(seconds(1), 300, 2, {1, 2, 3, 5, 6})
      .add(seconds(2), 200, 60, {1, 2, 3, 4});
  ServingTrace trace = made.trace();
  trace.requests[0].session = trace.requests[1].session = 7;
  const RequestBlocks blocks(trace, 16);
  const auto first = blocks.ids(0), next = blocks.ids(1), other = blocks.ids(2);
  REQUIRE(first.size() == (200 + 60 - 1) / 16);
  // Whole blocks of the trace end with its own ids.
  CHECK(first[3] == trace.blocks[0]);
  CHECK(first[11] == trace.blocks[2]);
  // The next turn goes on with the answer: its fourth block is that of the first request too.
  CHECK(std::equal(first.begin(), first.end(), next.begin()));
  // Without a next turn a part of a block is known by the partly filled one, and an answer by nobody.
  CHECK(std::equal(other.begin(), other.begin() + 12, first.begin()));
  CHECK(other[12] != first[12]);
  CHECK(other[13] != first[13]);
  CHECK_THROWS_WITH(RequestBlocks(trace, 24), Catch::Contains("64 tokens are not whole blocks of 24"));
}

TEST_CASE("stores are dropped while they take long", "[serving][engine]") {
  BackPressure pressure({.on = seconds(1), .off = seconds(0.5), .stores = 4, .probe = 3});
  for (int i = 0; i < 4; ++i) pressure.stored(seconds(0.9));
  CHECK(pressure.admits());
  for (int i = 0; i < 4; ++i) pressure.stored(seconds(1.2));
  CHECK(pressure.dropping());
  // Every third one is let through.
  CHECK_FALSE(pressure.admits());
  CHECK_FALSE(pressure.admits());
  CHECK(pressure.admits());
  pressure.stored(seconds(0.6));
  CHECK(pressure.dropping());
  for (int i = 0; i < 4; ++i) pressure.stored(seconds(0.1));
  CHECK_FALSE(pressure.dropping());
  CHECK(pressure.admits());
}

TEST_CASE("K and V that pass the memory of a GPU take its bandwidth from the kernels", "[serving][engine]") {
  const ServingTrace trace = TraceOf(64).add(kZero, 4 * 64, 3, {1, 2, 3, 4}).trace();
  EngineSettings settings;
  settings.serving.engine.factor = 4;
  settings.host_blocks = 100;
  settings.rates.copy = {};
  const EngineRun free(settings, trace);
  settings.serving.engine.gpu_memory = Bandwidth{10'000'000'000};
  const SimTime copy = transfer_time(free.tiers().whole_block() * 4, settings.serving.engine.gpu_memory);
  const EngineRun shared(settings, trace);
  CHECK((shared.request(0).life.end - free.request(0).life.end).ps == copy.ps);
  CHECK(shared.request(0).life.first_token == free.request(0).life.first_token);
  settings.serving.engine.unified_memory = true;
  const EngineRun unified(settings, trace);
  CHECK((unified.request(0).life.end - free.request(0).life.end).ps ==
        transfer_time(free.tiers().whole_block() * 8, settings.serving.engine.gpu_memory).ps);
}

TEST_CASE("without time the tiers hit what the replay of the trace hits", "[serving][engine]") {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    CAPTURE(seed);
    const ServingTrace trace = generated_trace("chats", seed, 300, seconds(20), kSizes);
    for (const std::uint64_t capacity : {10U, 60U, 1000U}) {
      EngineSettings settings;
      if (seed % 2 == 0) settings.tiers.files = files_without_time();
      settings.serving.engine.prefix_caching = false;
      settings.serving.engine.factor = 4;  // two blocks of the trace
      settings.serving.engine.stores_answers = false;
      settings.serving.engine.most_running = 1;
      settings.rates = {};
      settings.drive_blocks = capacity;
      const EngineRun run(settings, trace);
      std::uint64_t hit = 0;
      for (const ServedRequest& r : run.meter().requests()) hit += r.hit_drives;

      // The requests in the order in which they began. A hit on all of a prompt leaves its last block to be computed.
      std::vector<std::vector<KvBlockId>> ids;
      for (const ServedRequest& r : run.meter().requests())
        ids.push_back(whole_tier_blocks(trace.blocks_of(trace.requests[r.life.id.value]).first(r.life.prompt / 32), 2));
      KvBlockManager tier = manager(capacity);
      PrefixHits hits;
      std::uint64_t expected = 0;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint64_t before = hits.hit_blocks;
        const std::uint64_t prompt = run.meter().requests()[i].life.prompt;
        replay_request({prompt, ids[i]}, 64, tier, hits);
        expected += std::min<std::uint64_t>(hits.hit_blocks - before, (prompt - 1) / 64) * 64;
      }
      CHECK(hit == expected);
      check_books(run, 300);
    }
  }
}

TEST_CASE("every combination of policies serves every request", "[serving][engine]") {
  Rng rng(20261128, "combinations");
  std::uint64_t promotion_failures = 0, promoted_unread = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const auto pick = [&](auto... values) {
      const std::array all{values...};
      return all[rng.below(all.size())];
    };
    const EngineSettings settings = random_settings(rng, {260, 400, 2000});
    const ServingTrace trace = generated_trace(pick("chats", "bursts", "closed-loop", "agents"), rng.below(1000), 120,
                                               SimTime::microseconds(pick(20U, 400U)), kSizes);
    const EngineRun run(settings, trace);
    check_books(run, trace.requests.size());
    promotion_failures += run.tiers().use().promotion_failures;
    promoted_unread += run.tiers().use().promoted_unread;
    const EngineRun again(settings, trace);
    REQUIRE(again.now() == run.now());
  }
  CHECK(promotion_failures > 20);
  CHECK(promoted_unread > 20);
}

TEST_CASE("a faster drive does not lower hit rates", "[serving][engine]") {
  Rng rng(20261129, "faster drives");
  int lower = 0;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    EngineSettings settings = random_settings(rng, {260, 400, 2000});
    settings.serving.engine.retrieval = RetrievalPolicy::load;
    settings.serving.engine.promotion = PromotionPolicy::with_load;
    settings.tiers.back_pressure.reset();
    settings.host_blocks.reset();
    settings.drive_blocks = 20 + rng.below(5000);
    const ServingTrace trace = generated_trace("chats", rng.below(1000), 120, SimTime::microseconds(400), kSizes);
    double before = 0;
    for (const std::uint64_t rate : {50'000'000ULL, 500'000'000ULL, 5'000'000'000ULL}) {
      settings.rates.read = settings.rates.write = Bandwidth{rate};
      const EngineRun run(settings, trace);
      double hits = 0, prompts = 0;
      for (const ServedRequest& r : run.meter().requests()) {
        hits += double(r.hit_gpu + r.hit_drives);
        prompts += r.life.prompt;
      }
      // Requests join in another order, which may move a few blocks.
      if (hits / prompts < before - 0.01) ++lower;
      before = hits / prompts;
    }
  }
  CHECK(lower == 0);
}

}  // namespace test_serving_engine
