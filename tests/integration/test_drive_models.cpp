// Every architecture through the simulated drive: the tokens of attention on the host, with several query heads a KV
// head, too. The checkpoints are the small random ones of tests/data/golden.
#include <catch2/catch.hpp>
#include <random>

#include "host_runtime/core/decoder/generation.h"
#include "tests/gpu/random_model.h"
#include "tests/integration/small_model.h"

namespace test_drive_models {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr host::SamplingOptions kSampled{.temperature = 1.0f, .seed = 7};

/// Rows of 16 components: 32 tokens fill a page, 64 a window. Of rows of 80 or 96, a page holds 4 (6 and 5 without
/// windows).
csd_model::DriveConfig small_page_drive() {
  csd_model::DriveConfig drive = small_drive();
  drive.geometry.page_size = Bytes::kib(1);
  drive.kv.layout.embedding_group = 8;
  return drive;
}

Prompts random_prompts(const std::vector<std::size_t>& lengths, std::uint32_t vocabulary) {
  std::mt19937 rng(11);
  Prompts prompts;
  for (const std::size_t length : lengths) {
    auto& prompt = prompts.emplace_back();
    for (std::size_t i = 0; i < length; ++i) prompt.emplace_back(static_cast<std::uint32_t>(rng() % vocabulary));
  }
  return prompts;
}

}  // namespace

void check_equal(const DecodeRun& drive, const DecodeRun& host) {
  CHECK((drive.tokens == host.tokens));
  CHECK(drive.attention_digest == host.attention_digest);
  CHECK(drive.outcome.integrity_errors == 0);
  CHECK(drive.outcome.requests_issued == drive.outcome.requests_completed);
}

TEST_CASE("every family with grouped queries: tokens through the drive are those of the host") {
  // mistral has heads of 80 elements, qwen3 of 96: their rows leave the end of a page empty.
  for (const char* name : {"llama", "llama3", "qwen2", "opt", "mistral", "qwen3"}) {
    const SmallModel model(std::string("tests/data/golden/") + name);
    const host::ModelConfig& config = model.checkpoint.config;
    const Prompts prompts = random_prompts({1, 31, 32, 150}, config.vocab);
    for (const std::string system : {"instinfer-dense", "instinfer-sparf"}) {
      for (const std::uint32_t mini_batches : {1u, 2u}) {
        CAPTURE(name, system, mini_batches, config.group_size());
        experiment::GenerationSetup setup = small_setup(small_page_drive(), prompts, 150, system, model);
        setup.component_major = true;
        setup.plan.mini_batches = mini_batches;
        setup.platform.drives = std::min(2u, config.kv_heads);
        const DecodeRun drive = decode_in_drive(setup, prompts, kSampled, {}, model);
        const DecodeRun host = decode_on_host(setup, prompts, kSampled, model);
        check_equal(drive, host);
        // The plain loop, which knows nothing of plans: equal where the prefill multiplies the same rows together.
        if (system == "instinfer-dense" && mini_batches == 1) {
          const host::GenerationOptions options{.max_new_tokens = 150, .sampling = kSampled, .stop = {}};
          CHECK((host::generate_on_host(*model.decoder, std::make_unique<host::DenseAttention>(), prompts, options) ==
                 drive.tokens));
        }
      }
    }
  }
}

TEST_CASE("OPT-2.7B's heads through the drive: tokens are those of the host") {
  constexpr std::uint64_t kSeed = 27;
  host::ModelConfig config;
  config.layers = 2;
  config.width = 2560;
  config.heads = config.kv_heads = 32;
  config.head_dim = 80;
  config.ffn = 10240;
  config.vocab = 512;
  config.max_positions = 2048;
  const SmallModel model(host::Checkpoint{config, std::make_unique<gpu_test::RandomWeights>(config, kSeed)});
  const Prompts prompts = random_prompts({9, 30}, config.vocab);
  for (const std::string system : {"instinfer-dense", "instinfer-sparf"}) {
    INFO("weights of seed " << kSeed << ", " << system);
    experiment::GenerationSetup setup = small_setup(small_drive(), prompts, 4, system, model);
    setup.component_major = true;
    const DecodeRun drive = decode_in_drive(setup, prompts, kSampled, {}, model);
    const DecodeRun host = decode_on_host(setup, prompts, kSampled, model);
    check_equal(drive, host);
  }
}

}  // namespace test_drive_models
