// Drives that attend to K and V of 8 and 4 bits: tokens against attention over the same rounded values, bytes and time.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "tests/integration/few_bits.h"

namespace test_few_bits_in_drives {

using namespace csdsim;
using namespace csdsim::test;

namespace {

/// Where the first token of a sequence differs from the expected one, the two are the likeliest ones and nearly as
/// likely: partial outputs are rounded to fp16 before they are merged.
void check_tokens(const scenario::RunResult& result, const Tokens& expected) {
  const Tokens made = tokens_of(result);
  REQUIRE(made.size() == expected.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto [at, other] = std::ranges::mismatch(made[i], expected[i]);
    if (at == made[i].end()) continue;
    const auto& top = result.document["logprobs"][i][static_cast<std::size_t>(at - made[i].begin())]["top"];
    CHECK(top[0][0] == at->value);
    CHECK(top[1][0] == other->value);
    CHECK(top[0][1].get<double>() - top[1][1].get<double>() < 0.05);
  }
}

constexpr std::uint64_t kSequences = 4, kLayers = 6, kHeads = 8, kHeadDim = 64, kPrompt = 1000, kSteps = 8;
constexpr std::uint64_t kJobs = kSequences * kLayers * kHeads;  // heads that a step attends to

/// No group of tokens of any format used here fills in the decode steps.
experiment::GenerationOutcome timing(const std::string& kv, Sets sets = {}) {
  sets.insert(sets.begin(),
              {"platform.device.flash.program_latency=20 us", "system={kind: instinfer-dense" + kv + "}"});
  const scenario::Scenario s = load_few_bits(
      "model: {layers: 6, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
      "vocab_size: 1000, max_positions: 4096}\n"
      "workload: {kind: generation, batch: 4, input_tokens: 1000, output_tokens: 9, mini_batches: 1}\n"
      "simulation: {sampling: off}\n",
      sets);
  const auto& workload = experiment::generation_of(s);
  return experiment::run_generation(
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens)));
}

struct Format {
  std::string set;
  std::uint64_t row;  ///< bytes of K, or of V, of a token and head
};

const std::vector<Format> kFormats{{"", 128},
                                   {", kv_bits: 8", 64 + 2},
                                   {", kv_bits: 8, kv_group: 32", 64 + 4},
                                   {", kv_bits: 4", 32 + 2},
                                   {", kv_bits: 4, kv_group: 16", 32 + 8}};

/// Bytes of whole pages with K and V that the decode steps read.
double page_bytes(const Format& format) {
  const std::uint64_t groups = kPrompt / (4096 / format.row);
  return double(kSteps * kJobs * 2 * groups * 4096);
}

}  // namespace

TEST_CASE("carried: drives attend to the same rounded K and V as the host") {
  for (const char* const model : {"opt-6m", "llama-gqa-6m"})
    for (const RowQuantisation& format : {RowQuantisation{4, 32}, {8, 16}}) {
      const std::string kv = fmt::format(", kv_bits: {}, kv_group: {}}}", format.bits, format.group);
      const Tokens expected = rounded_tokens(model, carried_few_bits(model, {"system.kind=instinfer-dense"}), format);
      const auto run = [&](const std::string& system, const std::string& more) {
        CAPTURE(model, kv, system, more);
        return run_checked(carried_few_bits(model, {"system={" + system + kv, more}));
      };
      CHECK((tokens_of(run("kind: instinfer-dense", "platform.device.count=2")) == expected));
      check_tokens(run("kind: hilos, x_cache: 0, write_back_tokens: 4", "platform.device.count=2"), expected);
      if (format.bits == 8) continue;
      for (const char* const more : {"platform.device.nvme.granularity=head", "platform.device.ftl.mapping.kind=paired",
                                     "platform.device.flash.page_buffers=13"})
        CHECK((tokens_of(run("kind: instinfer-dense", more)) == expected));
      check_tokens(run("kind: instinfer-dense, shard: token", "platform.device.count=3"), expected);
      check_tokens(run("kind: hybrid, recomputed_share: 0, gpu_share: 0.2, host_share: 0.3, write_back_tokens: 3",
                       "platform.device.nvme.transfer=host"),
                   expected);
      CHECK((tokens_of(run_checked(carried_few_bits(model, {"system.kind=instinfer-dense"}))) != expected));
    }
}

TEST_CASE("carried: recomputed tokens have 16 bits beside those of few bits in the drives") {
  for (const char* const system : {"{kind: hilos, x_cache: 40 %, write_back_tokens: 4, kv_bits: 4, kv_group: 32}",
                                   "{kind: hybrid, recomputed_share: 30 %, gpu_share: 0.2, host_share: 0.1, "
                                   "write_back_tokens: 2, kv_bits: 8}"})
    for (const char* const model : {"opt-6m", "llama-gqa-6m"}) {
      CAPTURE(system, model);
      run_checked(carried_few_bits(model, {"system=" + std::string(system), "platform.device.count=2"}));
    }
}

TEST_CASE("bytes of flash, engine and link are those of the format") {
  const experiment::GenerationOutcome plain = timing("");
  for (const Format& format : kFormats) {
    CAPTURE(format.set);
    const experiment::GenerationOutcome run = timing(format.set);
    CHECK(run.decode.channel_bytes - run.decode.programmed_bytes == page_bytes(format));
    const std::uint64_t groups = kPrompt / (4096 / format.row);
    // The last programs of the prefill may end in the first decode step.
    CHECK(run.prefill.programmed_bytes + run.decode.programmed_bytes == double(kJobs * 2 * groups * 4096));
    double taken_in = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step)
      taken_in += double(kJobs * 2 * (kPrompt + 1 + step) * format.row);
    CHECK(run.decode.engine_bytes == taken_in);
    const auto saved = double(kJobs * 2 * (128 - format.row));
    // Shorter buffers have fewer PRP entries, too.
    CHECK(plain.prefill.link_bytes - run.prefill.link_bytes == Approx(saved * kPrompt).epsilon(0.005));
    CHECK(plain.decode.link_bytes - run.decode.link_bytes == Approx(saved * kSteps).epsilon(0.005));
  }
}

TEST_CASE("with slow channels a step takes what its pages take, with a slow dequantiser what its elements take") {
  const Sets slow_channels{"platform.device.flash.channel_bandwidth=20 MB/s",
                           "platform.device.flash.read_latency=1 us"};
  const csd_model::DriveWork plain = timing("", slow_channels).decode;
  const double of_byte = plain.channel_busy / plain.channel_bytes;
  CHECK(of_byte == Approx(1 / 20e6).epsilon(0.05));  // with command cycles
  for (const Format& format : kFormats) {
    CAPTURE(format.set);
    const experiment::GenerationOutcome run = timing(format.set, slow_channels);
    CHECK(run.decode.channel_busy == Approx(run.decode.channel_bytes * of_byte).epsilon(0.002));
    CHECK(run.times.decode_s == Approx(run.decode.channel_busy / 4).epsilon(0.02));
  }
  double elements = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) elements += double(kJobs * 2 * (kPrompt + 1 + step) * kHeadDim);
  const Sets slow_intake{"platform.device.engine.dequantised_per_cycle=1", "platform.device.engine.kernels=2",
                         "platform.device.engine.clock=100 MHz"};
  for (const char* const kv : {", kv_bits: 8", ", kv_bits: 4"})
    CHECK(timing(kv, slow_intake).times.decode_s == Approx(elements / 2 / 100e6).epsilon(0.02));
  CHECK(timing("", slow_intake).times.decode_s < elements / 2 / 100e6 / 2);
}

TEST_CASE("the solved division knows how many bits the drives keep") {
  // Without room on the GPU, drives share the tokens with the link. Both move bytes of the format, so that the division
  // hardly changes; drives of 16 bits beside copies of 4 would get few tokens.
  const auto divided = [](const std::string& kv) {
    const Sets sets{"system={kind: hybrid, recomputed_share: 0, gpu_share: 0" + kv + "}",
                    "platform.gpu.link={bandwidth: 1 GB/s}", "platform.device.flash.channel_bandwidth=300 MB/s"};
    return timing("", sets).times.decode_s;
  };
  const double few = divided(", kv_bits: 4"), half = divided("");
  CHECK(few < 0.4 * half);
}

}  // namespace test_few_bits_in_drives
