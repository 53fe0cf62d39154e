// The systems without drives that attend, from scenarios: tokens, bytes, sampled runs, monotony.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "tests/integration/small_platform.h"

namespace test_offload_systems {

using namespace csdsim;

namespace {

const std::string kFlexGen = "system={kind: flexgen-ssd, policy: given}";
const std::vector<std::string> kSystems = {
    "system.kind=gpu-only",
    "system.kind=host-kv",
    "system={kind: host-kv, attention: host}",
    kFlexGen,
    "system={kind: flexgen-ssd, policy: given, kv_on_gpu: 30 %, kv_on_host: 30 %}",
    "system={kind: flexgen-ssd, policy: given, weights_on_host: 50 %}",
    "system={kind: flexgen-ssd}",
    "system.kind=deepspeed-host"};

/// Runs that carry data cannot have weights in files.
const std::string kWeightsInFiles =
    "system={kind: flexgen-ssd, policy: given, kv_on_host: 50 %, weights_on_host: 25 %, weights_in_files: 50 %}";
const std::string kOnlyWeightsInFiles =
    "system={kind: flexgen-ssd, policy: given, kv_on_gpu: 50 %, kv_on_host: 50 %, weights_on_host: 25 %, "
    "weights_in_files: 50 %}";

const std::string kPlatform = test::small_platform("offload");

scenario::Scenario load(const std::string& text, const std::vector<std::string>& sets) {
  return experiment::load_scenario_text(text, "offload.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
}

/// A model of 6 layers whose K and V of a token and layer take 1 KiB.
scenario::Scenario timing(std::vector<std::string> sets, const std::string& workload =
                                                             "batch: 4, input_tokens: 200, "
                                                             "output_tokens: 9") {
  return load(kPlatform +
                  "model: {layers: 6, heads: 8, kv_heads: 4, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                  "vocab_size: 1000, max_positions: 4096}\n"
                  "workload: {kind: generation, " +
                  workload + "}\nsimulation: {sampling: off}\n",
              sets);
}

experiment::GenerationSetup setup_of(const scenario::Scenario& s) {
  const auto& workload = experiment::generation_of(s);
  return experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens));
}

experiment::GenerationOutcome run(const scenario::Scenario& s) { return experiment::run_generation(setup_of(s)); }

double seconds(const experiment::GenerationOutcome& out) { return out.times.ttft_s + out.times.decode_s; }

/// Tokens in the cache before decode step s, of all sequences.
std::uint64_t context(const host::BatchLengths& lengths, std::uint32_t step) {
  std::uint64_t tokens = 0;
  for (const std::uint32_t prompt : lengths.prompts()) tokens += prompt + step;
  return tokens;
}

struct Tokens {
  std::uint64_t kept = 0;    ///< tokens of the prompts
  std::uint64_t made = 0;    ///< new in the decode steps
  std::uint64_t copied = 0;  ///< read in the decode steps
};

Tokens tokens_of(const host::BatchLengths& lengths) {
  Tokens t{.kept = context(lengths, 0), .made = lengths.size() * lengths.decode_steps()};
  for (std::uint32_t s = 0; s < lengths.decode_steps(); ++s) t.copied += context(lengths, s);
  return t;
}

void check_carried(const std::vector<std::string>& sets) {
  const scenario::Scenario s = load(kPlatform +
                                        "model: {path: models/opt-6m}\n"
                                        "workload: {kind: generation, batch: 3, input_tokens: 50, output_tokens: 8}\n"
                                        "simulation: {data: carried, compare: [host]}\n",
                                    sets);
  const scenario::RunResult result = experiment::run_scenario(s);
  CHECK(result.failure.empty());
  const std::string text = result.document.dump();
  CHECK(text.find("\"tokens_compared\":24,\"tokens_equal\":24") != std::string::npos);
  CHECK(result.document["stats"]["integrity_errors"] == 0);
}

}  // namespace

TEST_CASE("carried runs make the tokens of attention on the host, wherever K, V and weights are") {
  for (const std::string& system : kSystems) {
    CAPTURE(system);
    check_carried({system});
    check_carried({system, "workload.mini_batches=2"});
  }
  for (const char* const written : {"1", "7", "64"})
    check_carried({"system={kind: flexgen-sparq, written_tokens: " + std::string(written) + "}",
                   "platform.host.file.io_size=4 KiB"});
  for (const char* const cache : {"0 B", "200 KiB"})
    for (const char* const access : {"cached", "bounce"}) {
      CAPTURE(cache, access);
      if (std::string(access) == "cached")
        check_carried({kFlexGen, std::string("platform.host.file.page_cache=") + cache,
                       "platform.host.file.dirty_ratio=0.1", "platform.host.file.io_size=16 KiB"});
    }
}

TEST_CASE("carried runs make the same tokens when K and V swap") {
  for (const char* const rewrites : {"true", "false"}) {
    const std::vector<std::string> sets = {
        std::string("system={kind: deepspeed-host, weights_on_host: 0 %, rewrites_cache: ") + rewrites + "}",
        "platform.host.memory=6 MiB",
        "workload.input_tokens=280",
        "workload.output_tokens=8",
        "platform.device.nvme.queues=1",
        "platform.device.nvme.queue_depth=16"};
    CAPTURE(rewrites);
    check_carried(sets);
  }
}

TEST_CASE(
    "the GPU's link carries K and V that leave the GPU once, their copies in each step, and weights once a step") {
  for (const std::string& system : kSystems)
    for (const char* const mini_batches : {"1", "2"}) {
      if (system == "system={kind: flexgen-ssd}") continue;  // chooses what it likes
      CAPTURE(system, mini_batches);
      const scenario::Scenario s = timing({system, std::string("workload.mini_batches=") + mini_batches});
      const experiment::GenerationSetup setup = setup_of(s);
      const host::ModelShape& model = setup.plan.model;
      const host::BatchLengths& lengths = setup.plan.workload;
      const Tokens tokens = tokens_of(lengths);
      const bool at_host = system.find("attention: host") != std::string::npos;
      const std::uint64_t heads = system == kSystems[0] ? 0 : system == kSystems[4] ? 3 : 4;
      const std::uint64_t token = (model.kv_bytes_per_token_and_head() * heads * model.layers).value;
      std::uint64_t expected = (tokens.kept + tokens.made + (at_host ? 0 : tokens.copied)) * token;
      if (at_host) expected += 2 * tokens.made * model.query_bytes({KvHead{0}, 4}).value * model.layers;
      const double on_host = system == kSystems[5] ? 0.5 : system == kSystems[7] ? 1 : 0;
      expected += static_cast<std::uint64_t>(on_host * static_cast<double>(model.layer_weight_bytes().value)) *
                  model.layers * lengths.output_tokens;
      const experiment::GenerationOutcome out = experiment::run_generation(setup);
      CHECK(out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes == double(expected));
      // An operation across the end of the prefill counts where it ends, so both phases are taken together.
      for (const auto kind : {host::ResourceKind::gpu, host::ResourceKind::host, host::ResourceKind::host_to_gpu,
                              host::ResourceKind::gpu_to_host})
        CHECK(out.prefill.of(kind).busy_s + out.decode.of(kind).busy_s <= seconds(out) * (1 + 1e-9));
      if (!out.files) continue;
      // K and V of the tokens in files: written once, or as a whole in each step; read once in each step.
      const std::uint64_t in_files =
          (model.kv_bytes_per_token_and_head() * model.layers).value * (system == kSystems[4] ? 2 : 4);
      const bool rewritten = system == kSystems[7];
      std::uint64_t wanted = tokens.kept + tokens.copied;
      wanted += rewritten ? tokens.copied + tokens.made : tokens.made;
      CHECK(out.files->wanted.value == wanted * in_files);
    }
}

TEST_CASE("flexgen-ssd without a page cache reads and writes exactly the pages of K and V") {
  // K and V of a token and layer take two pages.
  const auto pages = [](const std::string& access) {
    const scenario::Scenario s = load(
        kPlatform +
            "model: {layers: 3, heads: 2, kv_heads: 2, head_dim: 1024, hidden_size: 512, ffn_size: 1024, "
            "vocab_size: 1000, max_positions: 4096}\n"
            "workload: {kind: generation, batch: 3, input_tokens: 40, output_tokens: 6}\nsimulation: {sampling: off}\n",
        {kFlexGen, "platform.host.file.access=" + access});
    const experiment::GenerationSetup setup = setup_of(s);
    const experiment::GenerationOutcome out = experiment::run_generation(setup);
    const Tokens tokens = tokens_of(setup.plan.workload);
    CHECK(out.files->transferred == out.files->wanted);
    CHECK(out.simulated_page_ops == (tokens.kept + tokens.made + tokens.copied) * 3 * 2);
    return seconds(out);
  };
  CHECK(pages("direct") < pages("bounce"));
}

TEST_CASE("weights in files: every step reads their share from the drives and copies it over the GPU's link") {
  for (const char* const drives : {"1", "2"})
    for (const char* const mini_batches : {"1", "2"}) {
      CAPTURE(drives, mini_batches);
      // K and V are on the GPU and the host: files hold weights only, and need no page cache.
      const scenario::Scenario s =
          timing({kOnlyWeightsInFiles, std::string("workload.mini_batches=") + mini_batches,
                  std::string("platform.device.count=") + drives, "platform.host.file.access=direct"});
      const experiment::GenerationSetup setup = setup_of(s);
      const host::ModelShape& model = setup.plan.model;
      const Tokens tokens = tokens_of(setup.plan.workload);
      const std::uint64_t steps = setup.plan.workload.output_tokens;
      const std::uint64_t layer = model.layer_weight_bytes().value, kv = model.kv_bytes_per_token().value / 2;
      const experiment::GenerationOutcome out = experiment::run_generation(setup);
      CHECK(out.files->wanted.value == steps * model.layers * (layer / 2));
      // Whole blocks of 4 KiB at the ends.
      CHECK(out.files->transferred.value == steps * model.layers * ((layer / 2 + 4095) / 4096 * 4096));
      CHECK(out.simulated_page_ops == out.files->transferred.value / 4096);
      CHECK(out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes ==
            double(steps * model.layers * (layer / 2 + layer / 4) + (tokens.kept + tokens.made + tokens.copied) * kv));
    }
}

TEST_CASE("weights in files and K and V share the page cache") {
  // Weights take 12.6 MB, K and V 2.4 to 2.6 MB: either of them fits where both do not.
  const auto read = [](const std::string& cache) {
    const experiment::GenerationOutcome out = run(timing({kWeightsInFiles, "platform.host.file.page_cache=" + cache}));
    return (out.files->transferred - out.files->written_back).value;
  };
  const auto once = std::uint64_t{6} * (timing({}).model.shape().layer_weight_bytes().value / 2);
  const std::uint64_t all = read("32 MiB");
  CHECK(all >= once);
  CHECK(all <= once + 6 * 128 * 1024);
  CHECK(read("13 MiB") > 8 * once);
}

TEST_CASE("OPT-66B on a GPU of 48 GiB and a host of 96 GiB: bytes of the SSD and of the GPU's link in closed form") {
  const scenario::Scenario s = experiment::load_scenario(CSDSIM_SOURCE_DIR "/scenarios/weights_on_ssd.yaml",
                                                         {"workload.output_tokens=2", "simulation.sampling=off"})
                                   .base.scenario;
  const experiment::GenerationSetup setup = setup_of(s);
  const host::ModelShape& model = setup.plan.model;
  const Tokens tokens = tokens_of(setup.plan.workload);
  const double layer = double(model.layer_weight_bytes().value) * model.layers,
               kv = double(model.kv_bytes_per_token().value);
  const experiment::GenerationOutcome out = experiment::run_generation(setup);
  CHECK(out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes ==
        Approx(2 * 0.8 * layer + double(tokens.kept + tokens.made + tokens.copied) * kv).epsilon(1e-3));
  // What the SSD moves: weights in each step, K and V once into the files, and in the steps what the page cache lacks.
  const double written = double(tokens.kept) * kv;
  const double moved = out.prefill.link_bytes + out.decode.link_bytes;
  CHECK(moved >= 2 * 0.45 * layer + written);
  CHECK(moved <= (2 * 0.45 * layer + written + double(tokens.copied) * kv) * 1.02);
}

TEST_CASE("flexgen-ssd searches for shares of weights in files where memory does not hold them") {
  const auto searched = [](const std::string& host) {
    const scenario::Scenario s =
        timing({"system={kind: flexgen-ssd}", "platform.gpu.memory=24 MiB", "platform.device.nvme.queues=1",
                "platform.device.nvme.queue_depth=16", "platform.host.memory=" + host});
    Bytes in_files;
    for (const host::Resident& resident :
         s.system->needs({.model = s.model.shape(), .workload = experiment::generation_of(s).lengths()}).residents)
      if (resident.read_only) in_files += resident.bytes;
    CHECK(run(s).times.decode_s > 0);
    return in_files;
  };
  CHECK(searched("64 MiB") == Bytes{});
  CHECK(searched("12 MiB").value > 0);
}

TEST_CASE("flexgen-ssd: a page cache that holds everything leaves only writes to the drive") {
  const experiment::GenerationOutcome out = run(timing({kFlexGen}));
  CHECK(out.files->transferred == out.files->written_back);
  CHECK(out.files->written_back.value >= 4 * 208 * 6 * 1024);
}

TEST_CASE("deepspeed-host: in memory that suffices nothing is swapped, in less the drive is used") {
  const experiment::GenerationOutcome fits = run(timing({"system.kind=deepspeed-host"}));
  CHECK(fits.simulated_page_ops == 0);
  CHECK(fits.files->transferred == Bytes{});
  // 2 x 5.1 MB of K and V.
  const experiment::GenerationOutcome swaps =
      run(timing({"system={kind: deepspeed-host, weights_on_host: 0 %}", "platform.host.memory=8 MiB",
                  "platform.device.nvme.queues=1", "platform.device.nvme.queue_depth=16"}));
  CHECK(swaps.files->written_back.value > 0);
  CHECK(swaps.files->transferred > swaps.files->written_back);
  CHECK(swaps.times.decode_s > fits.times.decode_s);
}

// The drive is large enough that nothing is collected: what garbage collection costs late in a run, a sample misses.
TEST_CASE(
    "sampled decoding is within 1 % of the whole, with a page cache that overflows in the middle of the run, too") {
  const std::string tokens = "batch: 4, input_tokens: 128, output_tokens: 161";
  const std::vector<std::vector<std::string>> cases = {
      {"system.kind=gpu-only"},
      {"system.kind=host-kv"},
      {"system={kind: host-kv, attention: host}"},
      {"system={kind: host-kv, weights_on_host: 50 %}"},
      {kFlexGen},
      {kFlexGen, "platform.host.file.page_cache=2 MiB"},
      {kFlexGen, "platform.host.file.page_cache=10 MiB"},  // K and V take 6.3 to 14 MB
      {kSystems[4], "platform.host.file.page_cache=5 MiB"},
      {kOnlyWeightsInFiles, "platform.host.file.access=direct"},
      {kWeightsInFiles, "platform.host.file.page_cache=16 MiB"},  // never holds all
      {kWeightsInFiles, "platform.host.file.page_cache=28 MiB"},  // holds all for some steps
      {"system.kind=deepspeed-host"},
      {"system={kind: deepspeed-host, weights_on_host: 0 %}", "platform.host.memory=8 MiB",
       "platform.device.nvme.queues=1", "platform.device.nvme.queue_depth=16"}};
  for (std::vector<std::string> sets : cases) {
    for (const char* const more : {"model.layers=12", "platform.device.flash.blocks_per_plane=4096"})
      sets.emplace_back(more);
    CAPTURE(sets);
    experiment::GenerationSetup setup = setup_of(timing(sets, tokens));
    const experiment::GenerationOutcome whole = experiment::run_generation(setup);
    setup.sampling.off = false;
    for (const std::uint32_t layers : {5U, 9U}) {
      setup.sampling.layers = setup.sampling.prefill_layers = layers;
      const experiment::GenerationOutcome sampled = experiment::run_generation(setup);
      const double decode = std::abs(sampled.times.decode_s / whole.times.decode_s - 1);
      const double ttft = std::abs(sampled.times.ttft_s / whole.times.ttft_s - 1);
      CAPTURE(sampled.statement, whole.times.decode_s, sampled.times.decode_s, decode, ttft);
      CHECK(decode <= 1.5 * sampled.error.decode() + 2e-3);
      CHECK(ttft <= 1.5 * sampled.error.prefill + 2e-4);
      if (layers == 9) CHECK(decode <= 0.01);
    }
  }
}

TEST_CASE("a longer context, a slower link, a smaller page cache or slower threads never make a run faster") {
  const std::uint64_t seed = Catch::rngSeed() + 4;
  INFO("seed " << seed);
  Rng rng(seed);
  for (int trial = 0; trial < 10; ++trial) {
    const std::uint64_t which = rng.below(kSystems.size() + 1);
    const std::string system = which < kSystems.size() ? kSystems[which] : kOnlyWeightsInFiles;
    const std::uint64_t prompt = 60 + rng.below(300), link = 1 + rng.below(20), cache = rng.below(6),
                        copy = 1 + rng.below(4);
    const auto time = [&](std::uint64_t tokens, std::uint64_t gb, std::uint64_t mib, std::uint64_t copies) {
      std::vector<std::string> sets = {system,
                                       "workload.input_tokens=" + std::to_string(tokens),
                                       "workload.output_tokens=6",
                                       "platform.gpu.link.bandwidth=" + std::to_string(gb * 100) + " MB/s",
                                       "platform.host.file.page_cache=" + std::to_string(mib) + " MiB",
                                       "platform.host.file.copy_bandwidth=" + std::to_string(copies * 500) + " MB/s"};
      return seconds(run(timing(sets)));
    };
    const double base = time(prompt, 10 * link, cache + 1, copy);
    CAPTURE(trial, system, prompt, link, cache, copy);
    if (system == "system={kind: flexgen-ssd}") continue;  // another policy may be chosen
    // The chunks at the ends of sequences begin elsewhere with other lengths, which matters where they are rewritten.
    CHECK(time(prompt + 40, 10 * link, cache + 1, copy) > base * 0.99);
    CHECK(time(prompt, 3 * link, cache + 1, copy) >= base);
    CHECK(time(prompt, 10 * link, cache, copy) >= base * 0.999);
    if (copy > 1) CHECK(time(prompt, 10 * link, cache + 1, copy - 1) >= base * 0.999);
  }
}

}  // namespace test_offload_systems
