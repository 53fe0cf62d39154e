// Several methods give the same answer (docs/algorithms.md, Equalities between methods).
#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <vector>

#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "tests/integration/small_model.h"

namespace test_oracles {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr host::SamplingOptions kSampled{.temperature = 1.0f, .seed = 3};
constexpr std::uint32_t kNewTokens = 40;

/// Four query heads over two KV heads of 16 components.
const SmallModel& grouped() {
  static const SmallModel model("tests/data/golden/llama");
  return model;
}

/// Lengths at, below and above full pages of 32 tokens.
const Prompts& prompts() {
  static const Prompts all = [] {
    Prompts result;
    for (const std::uint32_t length : {31U, 64U, 129U}) {
      auto& prompt = result.emplace_back();
      for (std::uint32_t i = 0; i < length; ++i) prompt.emplace_back((i * 37 + length) % 512);
    }
    return result;
  }();
  return all;
}

experiment::GenerationSetup setup_of(const std::string& system, const host::SparfParameters& sparf = {}) {
  csd_model::DriveConfig drive = small_drive();
  drive.geometry.page_size = Bytes::kib(1);
  drive.kv.layout.embedding_group = 8;
  experiment::GenerationSetup setup = small_setup(drive, prompts(), kNewTokens, system, grouped());
  setup.component_major = true;
  if (system == host::InstinferSparf::kKind) setup.system = std::make_shared<host::InstinferSparf>(sparf);
  return setup;
}

DecodeRun in_drive(const experiment::GenerationSetup& setup) {
  DecodeRun run = decode_in_drive(setup, prompts(), kSampled, {}, grouped());
  REQUIRE(run.outcome.integrity_errors == 0);
  return run;
}

struct Way {
  const char* name;
  std::function<void(experiment::GenerationSetup&)> apply;
};

/// Everything that may move pages and time, and must not move a bit of the answer.
const std::vector<Way>& ways() {
  using Setup = experiment::GenerationSetup;
  static const std::vector<Way> all{
      {"two drives, sharded by head", [](Setup& s) { s.platform.drives = 2; }},
      {"pages of 512 B", [](Setup& s) { s.platform.drive.geometry.page_size = Bytes{512}; }},
      {"pages of 4 KiB", [](Setup& s) { s.platform.drive.geometry.page_size = Bytes::kib(4); }},
      {"pages of 16 KiB", [](Setup& s) { s.platform.drive.geometry.page_size = Bytes::kib(16); }},
      {"m = 1", [](Setup& s) { s.platform.drive.kv.layout.embedding_group = 1; }},
      {"m = 16", [](Setup& s) { s.platform.drive.kv.layout.embedding_group = 16; }},
      {"one channel",
       [](Setup& s) { s.platform.drive.geometry.channels = 1, s.platform.drive.geometry.blocks_per_plane = 192; }},
      {"tail in DRAM", [](Setup& s) { s.platform.drive.kv.tail = ftl::TailPolicy::dram; }},
      {"through host memory", [](Setup& s) { s.plan.through_host = true; }},
      {"a command a head", [](Setup& s) { s.granularity = nvme::Granularity::head; }},
      {"three mini-batches", [](Setup& s) { s.plan.mini_batches = 3; }}};
  return all;
}

/// Tokens in the cache, the current one included, by decode step and sequence.
template <class Visit>
void for_each_context(Visit visit) {
  for (std::uint32_t step = 0; step + 1 < kNewTokens; ++step)
    for (const auto& prompt : prompts()) visit(static_cast<std::uint32_t>(prompt.size()) + step + 1);
}

}  // namespace

TEST_CASE("dense = SparQ of everything = SparF of everything = the plain loop, in memory and in the drive") {
  const host::SparfParameters everything{
      .ratio = {1, 1}, .mode = host::RatioMode::uniform, .r = {}, .k = {}, .local = {}};
  const host::GenerationOptions options{.max_new_tokens = kNewTokens, .sampling = kSampled, .stop = {}};
  const Prompts plain =
      host::generate_on_host(*grouped().decoder, std::make_unique<host::DenseAttention>(), prompts(), options);
  CHECK((host::generate_on_host(
             *grouped().decoder,
             std::make_unique<host::SparqAttention>(host::SparqOptions{.components = 16, .tokens = Ratio{1, 1}}),
             prompts(), options) == plain));
  const DecodeRun dense = in_drive(setup_of("instinfer-dense"));
  const DecodeRun sparf = in_drive(setup_of("instinfer-sparf", everything));
  CHECK((dense.tokens == plain));
  CHECK((sparf.tokens == plain));
  CHECK(sparf.attention_digest == dense.attention_digest);
  const DecodeRun host = decode_on_host(setup_of("instinfer-dense"), prompts(), kSampled, grouped());
  CHECK(host.attention_digest == dense.attention_digest);
}

TEST_CASE("pages, maps, drives, tails and transfers change counters and times, not one bit of the answer") {
  const host::SparfParameters budget{.ratio = {1, 4}, .mode = host::RatioMode::uniform, .r = {}, .k = {}, .local = {}};
  for (const char* system : {"instinfer-dense", "instinfer-sparf"}) {
    const DecodeRun host = decode_on_host(setup_of(system, budget), prompts(), kSampled, grouped());
    const DecodeRun reference = in_drive(setup_of(system, budget));
    CHECK(reference.attention_digest == host.attention_digest);
    for (const Way& way : ways()) {
      CAPTURE(system, way.name);
      experiment::GenerationSetup setup = setup_of(system, budget);
      way.apply(setup);
      const DecodeRun run = in_drive(setup);
      // Where the batch is cut, the order in which outputs are digested changes, not what they are.
      if (setup.plan.mini_batches == 1 && setup.platform.drives == 1)
        CHECK(run.attention_digest == reference.attention_digest);
      const DecodeRun same_cut = decode_on_host(setup, prompts(), kSampled, grouped());
      CHECK((run.tokens == same_cut.tokens));
      CHECK(run.outcome.times.decode_s != reference.outcome.times.decode_s);
    }
  }
}

TEST_CASE("what the kernels read is p (r S + 2 k d), dense p 2 S d, whatever the pages; pages hold what they carry") {
  const host::SparfParameters budget{.ratio = {1, 4}, .mode = host::RatioMode::uniform, .r = 4, .k = {}, .local = {}};
  const double d = 16, layers = grouped().checkpoint.config.layers, heads = grouped().checkpoint.config.kv_heads;
  for (const bool sparf : {false, true}) {
    double expected = 0;
    for_each_context([&](std::uint32_t tokens) {
      const double k = std::floor(tokens / 4.0 + 0.5);
      expected += layers * heads * 2 * (sparf ? 4 * tokens + 2 * k * d : 2 * tokens * d);
    });
    double last_page_ops = 0;
    for (const std::uint64_t page : {512U, 1024U, 4096U}) {
      CAPTURE(sparf, page);
      experiment::GenerationSetup setup = setup_of(sparf ? "instinfer-sparf" : "instinfer-dense", budget);
      setup.platform.drive.geometry.page_size = Bytes{page};
      const experiment::PhaseTotals decode = in_drive(setup).outcome.decode;
      CHECK(decode.engine_bytes == expected);
      CHECK(decode.page_ops >= decode.channel_bytes / static_cast<double>(page));
      CHECK(decode.page_ops != last_page_ops);
      last_page_ops = decode.page_ops;
    }
  }
}

}  // namespace test_oracles
