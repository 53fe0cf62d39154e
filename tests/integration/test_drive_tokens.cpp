// Real tokens through the simulated drive: the same as with attention on the host.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "tests/integration/small_model.h"

namespace test_drive_tokens {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr std::uint32_t kPageTokens = 32;  // n = 4096 / (64 x 2)
constexpr host::SamplingOptions kGreedy{};
constexpr host::SamplingOptions kSampled{.temperature = 1.0f, .seed = 7};

void check_equal(const experiment::GenerationSetup& setup, const Prompts& prompts,
                 const host::SamplingOptions& sampling) {
  const DecodeRun drive = decode_in_drive(setup, prompts, sampling);
  const DecodeRun host = decode_on_host(setup, prompts, sampling);
  CHECK(drive.tokens == host.tokens);
  CHECK(drive.attention_digest == host.attention_digest);
  CHECK(drive.outcome.integrity_errors == 0);
  CHECK(drive.outcome.requests_issued == drive.outcome.requests_completed);
}

}  // namespace

TEST_CASE("dense attention in the drive gives the tokens of host attention over 512 new tokens") {
  // m = 8, T = 256: runs of 512 tokens and more cross two embedding windows.
  csd_model::DriveConfig drive = small_drive();
  drive.kv.layout.embedding_group = 8;
  for (const std::size_t length : {std::size_t{1}, std::size_t{kPageTokens - 1}, std::size_t{kPageTokens},
                                   std::size_t{kPageTokens + 1}, std::size_t{700}})
    for (const host::SamplingOptions& sampling : {kGreedy, kSampled}) {
      CAPTURE(length, sampling.temperature);
      const Prompts prompts{text_prompt(length, 100)};
      experiment::GenerationSetup setup = small_setup(drive, prompts, 512, "instinfer-dense");
      setup.component_major = true;
      check_equal(setup, prompts, sampling);
    }
  drive.kv.layout.embedding_group = 2;  // T = 1024
  const Prompts prompts{text_prompt(700, 100)};
  experiment::GenerationSetup setup = small_setup(drive, prompts, 512, "instinfer-dense");
  setup.component_major = true;
  check_equal(setup, prompts, kSampled);
}

TEST_CASE("dense attention without the component-major layout, as InstI-Dense runs it") {
  const Prompts prompts{text_prompt(700, 100)};
  check_equal(small_setup(small_drive(), prompts, 64, "instinfer-dense"), prompts, kSampled);
}

TEST_CASE("SparF in the drive gives the tokens of SparQ in memory") {
  // T = 256 and T = 1024 (m = 2); the same r, k and l.
  for (const std::uint32_t m : {8u, 2u}) {
    csd_model::DriveConfig drive = small_drive();
    drive.kv.layout.embedding_group = m;
    for (const std::size_t length : {std::size_t{1}, std::size_t{kPageTokens}, std::size_t{700}}) {
      CAPTURE(m, length);
      const Prompts prompts{text_prompt(length, 300)};
      experiment::GenerationSetup setup = small_setup(drive, prompts, 512, "instinfer-sparf");
      setup.system = std::make_shared<host::InstinferSparf>(
          host::SparfParameters{.ratio = {1, 8}, .mode = host::RatioMode::uniform, .r = 16, .k = {}, .local = {}});
      check_equal(setup, prompts, kSampled);
    }
  }
}

TEST_CASE("a batch of ragged prompts in mini-batches over two drives") {
  csd_model::DriveConfig drive = small_drive();
  const Prompts prompts{text_prompt(40), text_prompt(300, 50), text_prompt(5, 400), text_prompt(129, 700)};
  for (const char* system : {"instinfer-dense", "instinfer-sparf"}) {
    CAPTURE(system);
    experiment::GenerationSetup setup = small_setup(drive, prompts, 40, system);
    setup.plan.mini_batches = 2;
    setup.platform.drives = 2;
    check_equal(setup, prompts, kSampled);
  }
}

TEST_CASE("channels, arbitration, fidelity and tail policy change times but not one bit of the answers") {
  const Prompts prompts{text_prompt(400), text_prompt(90, 500)};
  for (const char* system : {"instinfer-dense", "instinfer-sparf"}) {
    const auto run = [&](const csd_model::DriveConfig& drive) {
      return decode_in_drive(small_setup(drive, prompts, 24, system), prompts, kSampled);
    };
    const DecodeRun reference = run(small_drive());
    for (const std::uint32_t channels : {1u, 2u, 8u, 16u}) {
      csd_model::DriveConfig drive = small_drive();
      drive.geometry.channels = channels;
      drive.geometry.blocks_per_plane = 768 / channels;
      const DecodeRun other = run(drive);
      CHECK(other.attention_digest == reference.attention_digest);
      CHECK(other.outcome.times.decode_s != reference.outcome.times.decode_s);
    }
    for (const auto arbitration :
         {nfc::BusArbitration::fifo, nfc::BusArbitration::command_first, nfc::BusArbitration::data_first}) {
      csd_model::DriveConfig drive = small_drive();
      drive.flash.arbitration = arbitration;
      CHECK(run(drive).attention_digest == reference.attention_digest);
    }
    csd_model::DriveConfig event_driven = small_drive();
    event_driven.fidelity = csd_model::Fidelity::at;
    const DecodeRun at = run(event_driven);
    CHECK(at.attention_digest == reference.attention_digest);
    CHECK(at.outcome.simulated == reference.outcome.simulated);
    CHECK(at.outcome.times.decode_s == reference.outcome.times.decode_s);

    // Pages of 16 KiB, read whole or by codewords.
    csd_model::DriveConfig large = small_drive();
    large.geometry.page_size = Bytes::kib(16);
    large.geometry.pages_per_block /= 4;
    const DecodeRun whole = run(large);
    CHECK(whole.attention_digest == reference.attention_digest);
    for (const std::uint32_t codeword : {1024u, 4096u}) {
      csd_model::DriveConfig drive = large;
      drive.kv.codeword = drive.block.codeword = Bytes{codeword};
      drive.flash.codewords = nfc::CodewordsConfig{.size = Bytes{codeword}, .parity = {}};
      drive.flash.reuse_register = true;
      const DecodeRun words = run(drive);
      CHECK(words.attention_digest == reference.attention_digest);
      if (std::string_view(system) == "instinfer-sparf")
        CHECK(words.outcome.decode.channel_bytes < 0.8 * whole.outcome.decode.channel_bytes);
    }

    csd_model::DriveConfig tail = small_drive();
    tail.kv.tail = ftl::TailPolicy::dram;
    CHECK(run(tail).attention_digest == reference.attention_digest);
  }
}

TEST_CASE("what goes through host memory arrives as it was") {
  const Prompts prompts{text_prompt(40), text_prompt(65, 50), text_prompt(5, 400)};
  experiment::GenerationSetup setup = small_setup(small_drive(), prompts, 12, "instinfer-sparf");
  setup.plan.mini_batches = 1;  // nothing overlaps: the copies add their time
  setup.platform.drives = 2;
  const DecodeRun peer = decode_in_drive(setup, prompts, kSampled);
  setup.plan.through_host = true;
  const DecodeRun host = decode_in_drive(setup, prompts, kSampled);
  CHECK(host.tokens == peer.tokens);
  CHECK(host.attention_digest == peer.attention_digest);
  CHECK(host.outcome.times.decode_s > peer.outcome.times.decode_s);
}

}  // namespace test_drive_tokens
