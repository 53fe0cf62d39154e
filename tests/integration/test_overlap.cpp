// platform.overlap and platform.host.io_cores in generation runs: without overlap the stages of a layer add up, with it
// nothing gets slower, and the tokens stay the same.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/integration/small_model.h"

namespace test_overlap {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr host::SamplingOptions kGreedy{};
const SimTime kOverhead = SimTime::nanoseconds(5600);
constexpr std::uint32_t kHeads = 4, kLayers = 6, kDim = 64;  // sizes of opt-6m
constexpr std::uint32_t kBatch = 6, kPromptTokens = 300;

struct Overlap {
  bool mini_batches = false, engine_flash = false, host_drive = false;
};

Prompts prompts() {
  Prompts all;
  for (std::uint32_t i = 0; i < kBatch; ++i) all.push_back(text_prompt(kPromptTokens, 100 * i));
  return all;
}

/// One command per sequence and head, all heads in the engine at the same time, one core for all queues.
experiment::GenerationSetup setup_of(const Overlap& overlap, std::uint32_t new_tokens,
                                     const std::string& system = "instinfer-dense") {
  csd_model::DriveConfig drive = small_drive();
  drive.engine.jobs_in_flight = 1024;
  drive.engine.macs_per_cycle = 2;  // so that the engine takes a good part of a step
  drive.engine.overlap_flash = overlap.engine_flash;
  experiment::GenerationSetup setup = small_setup(drive, prompts(), new_tokens, system);
  setup.granularity = nvme::Granularity::head;
  setup.platform.io_overhead = kOverhead;
  setup.platform.io_cores = 1;
  setup.platform.overlap_host_drive = overlap.host_drive;
  setup.plan.overlap_mini_batches = overlap.mini_batches;
  return setup;
}

using Parts = std::array<double, host::kPathParts>;

double part(const Parts& parts, host::PathPart which) { return parts[static_cast<std::size_t>(which)]; }

/// The critical path of the last decode step: what a run with one more token has in addition.
Parts last_step(const experiment::GenerationSetup& setup) {
  const Prompts all = prompts();
  experiment::GenerationSetup shorter = setup;
  --shorter.plan.workload.output_tokens;
  Parts parts = decode_in_drive(setup, all, kGreedy).outcome.times.decode_path_s;
  const Parts before = decode_in_drive(shorter, all, kGreedy).outcome.times.decode_path_s;
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] -= before[i];
  return parts;
}

}  // namespace

TEST_CASE("without overlap a decode step is host, flash, engine, link and GPU, one after another") {
  constexpr std::uint32_t kNewTokens = 5;
  const experiment::GenerationSetup setup = setup_of({}, kNewTokens);
  const Parts parts = last_step(setup);
  double step = 0;
  for (const double p : parts) step += p;
  // The parts add up to the time of a run.
  const experiment::GenerationOutcome whole = decode_in_drive(setup, prompts(), kGreedy).outcome;
  double all = 0;
  for (const double p : whole.times.decode_path_s) all += p;
  CHECK(all == Approx(whole.times.decode_s).epsilon(1e-9));

  // Host: each command in turn on the one core.
  CHECK(part(parts, host::PathPart::host) == Approx(kLayers * kBatch * kHeads * kOverhead.seconds()).epsilon(1e-6));
  // Engine: all heads of a layer on two kernels.
  const engine::EngineConfig& engine = setup.platform.drive.engine;
  const std::uint64_t context = kPromptTokens + kNewTokens - 1;
  const std::uint64_t cycles = (2 * context * kDim + engine.macs_per_cycle - 1) / engine.macs_per_cycle +
                               (context + engine.softmax_per_cycle - 1) / engine.softmax_per_cycle;
  const double kernels = cycles_time(cycles, engine.clock).seconds() * kBatch * kHeads / engine.kernels * kLayers;
  CHECK(part(parts, host::PathPart::engine) == Approx(kernels).epsilon(0.01));
  // Flash: at least what the planes take to sense the pages, which here is more than the channels take.
  const FlashGeometry& g = setup.platform.drive.geometry;
  const double pages = std::floor(kPromptTokens / 32.0) * 2 * kBatch * kHeads * kLayers;
  const double sensing = pages / static_cast<double>(g.planes()) * setup.platform.drive.flash.read_latency.seconds();
  CHECK(part(parts, host::PathPart::flash) >= sensing);
  CHECK(part(parts, host::PathPart::flash) < 1.3 * sensing);
  CHECK(part(parts, host::PathPart::gpu) > 0);
  CHECK(part(parts, host::PathPart::kv_link) > 0);
  // What is left is firmware and interrupts.
  CHECK(part(parts, host::PathPart::drive_other) < 0.02 * step);

  // With overlap, a part of that time is hidden.
  const Parts hidden = last_step(setup_of({.engine_flash = true, .host_drive = true}, kNewTokens));
  double with_overlap = 0;
  for (const double p : hidden) with_overlap += p;
  CHECK(with_overlap < 0.8 * step);
  CHECK(part(hidden, host::PathPart::host) < 0.5 * part(parts, host::PathPart::host));
}

TEST_CASE("each overlap makes runs faster or leaves them as they are, and changes no token") {
  const Prompts all = prompts();
  for (const char* const system : {"instinfer-dense", "instinfer-sparf"})
    for (const std::uint32_t mini_batches : {1u, 3u}) {
      // By the bits: mini_batches, engine_flash, host_drive.
      std::array<DecodeRun, 8> runs;
      for (std::size_t bits = 0; bits < runs.size(); ++bits) {
        experiment::GenerationSetup setup = setup_of({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0}, 12, system);
        setup.plan.mini_batches = mini_batches;
        runs[bits] = decode_in_drive(setup, all, kGreedy);
      }
      for (std::size_t bits = 0; bits < runs.size(); ++bits)
        for (const std::size_t bit : {1u, 2u, 4u}) {
          if ((bits & bit) != 0) continue;
          CAPTURE(system, mini_batches, bits, bit);
          const double off = runs[bits].outcome.times.decode_s, on = runs[bits | bit].outcome.times.decode_s;
          // Several mini-batches may interleave in another order, and with SparF work that comes later may need a turn
          // of its own (docs/overlap.md). One core for I/O makes what the overlap with the host gains larger than that.
          CHECK(on <= off * (mini_batches == 1 ? 1 : 1.001));
          // One mini-batch has no other to overlap with.
          if (mini_batches == 1) CHECK((on < off) == (bit != 1));
        }
      CHECK(runs[7].outcome.times.decode_s < 0.9 * runs[0].outcome.times.decode_s);
      for (const DecodeRun& run : runs) {
        CHECK((run.tokens == runs[0].tokens));
        CHECK(run.attention_digest == runs[0].attention_digest);
        CHECK(run.outcome.integrity_errors == 0);
        CHECK(run.outcome.requests_issued == run.outcome.requests_completed);
      }
    }
}

TEST_CASE("with one core for I/O the host's time is the same for any number of drives") {
  Parts one{};
  for (const std::uint32_t drives : {1u, 2u, 4u}) {
    CAPTURE(drives);
    experiment::GenerationSetup setup = setup_of({}, 5);
    setup.platform.drives = drives;
    const Parts parts = last_step(setup);
    const double host = part(parts, host::PathPart::host);
    CHECK(host == Approx(kLayers * kBatch * kHeads * kOverhead.seconds()).epsilon(1e-6));
    if (drives == 1) one = parts;
    if (drives > 1) CHECK(part(parts, host::PathPart::flash) < 0.7 * part(one, host::PathPart::flash));
    // A core for each queue: queues share the work of a drive, and drives work side by side.
    const std::uint32_t queues = setup.platform.queues, commands = kBatch * kHeads / drives;
    setup.platform.io_cores = drives * queues;
    CHECK(part(last_step(setup), host::PathPart::host) ==
          Approx(kLayers * ((commands + queues - 1) / queues) * kOverhead.seconds()).epsilon(1e-6));
  }
}

TEST_CASE("without CPU time for commands, host and drive have nothing to overlap") {
  experiment::GenerationSetup setup = setup_of({.engine_flash = true}, 20);
  setup.platform.io_overhead = {};
  const experiment::GenerationOutcome apart = decode_in_drive(setup, prompts(), kGreedy).outcome;
  setup.platform.overlap_host_drive = true;
  const experiment::GenerationOutcome together = decode_in_drive(setup, prompts(), kGreedy).outcome;
  CHECK(apart.times.decode_s == together.times.decode_s);
  CHECK((apart.times.decode_path_s == together.times.decode_path_s));
  CHECK(part(apart.times.decode_path_s, host::PathPart::host) == 0);
}

}  // namespace test_overlap
