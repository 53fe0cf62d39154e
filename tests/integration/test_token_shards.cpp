// Drives that divide the tokens of a sequence: the tokens of attention in one place, closed forms of bytes and pages,
// sampled runs, and more drives than KV heads.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "experiment/memory/check_controller_dram.h"
#include "experiment/sampling/sampling_search.h"
#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "platform/platform.h"
#include "tests/integration/forced_run.h"
#include "tests/integration/small_model.h"

namespace test_token_shards {

using namespace csdsim;
using namespace csdsim::test;

namespace {

std::shared_ptr<const host::OffloadSystem> dense(host::ShardBy shard) {
  auto system = std::make_shared<host::InstinferDense>();
  system->shard = shard;
  return system;
}

/// Prompts of 1 and 2 tokens leave some drives without a token of these sequences.
Prompts some_prompts() {
  return {text_prompt(40), text_prompt(300, 50), text_prompt(1, 400), text_prompt(129, 700), text_prompt(2, 900)};
}

void check_carried(const experiment::GenerationSetup& setup, const Prompts& prompts, const SmallModel& model) {
  experiment::GenerationSetup one = setup;
  one.platform.drives = 1;
  one.plan.mini_batches = 1;
  const ForcedRun oracle(one, prompts, model, false);
  const ForcedRun drives(setup, prompts, model, true, &oracle.tokens);
  const ForcedRun parts(setup, prompts, model, false, &oracle.tokens);
  CHECK(drives.digest == parts.digest);  // the drives return the bits that the host gets from the same tokens
  CHECK(drives.logits == parts.logits);
  CHECK(drives.digest != oracle.digest);  // partial outputs are rounded before they are merged
  check_close(drives, oracle);
}

/// Six layers of eight query heads over four KV heads of 64, on drives of 4 planes; timing only.
experiment::GenerationSetup timing_setup(std::vector<std::uint32_t> prompts, std::uint32_t drives,
                                         host::ShardBy shard = host::ShardBy::token) {
  experiment::GenerationSetup setup;
  setup.platform.drive.geometry = {.channels = 2,
                                   .dies_per_channel = 2,
                                   .planes_per_die = 1,
                                   .blocks_per_plane = 256,
                                   .pages_per_block = 64,
                                   .page_size = Bytes::kib(4)};
  setup.platform.drive.data = ftl::DataMode::timing;
  setup.platform.drive.dram = Bytes::gib(1);
  setup.platform.drive.kv_share = 1;
  setup.platform.drives = drives;
  setup.platform.host_memory = Bytes::gib(16);
  setup.platform.gpu_memory = Bytes::gib(16);
  setup.gpu_link = {.bandwidth = Bandwidth{20'000'000'000}, .latency = {}};
  setup.system = dense(shard);
  host::ModelShape& model = setup.plan.model;
  model.layers = 6;
  model.width = 512;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_dim = 64;
  model.ffn = 2048;
  model.vocab = 8000;
  model.positions = 8192;
  setup.plan.workload.set_prompts(prompts);
  setup.plan.workload.output_tokens = 9;
  setup.plan.mini_batches = 1;
  setup.sampling.off = true;
  return setup;
}

constexpr std::uint32_t kPageTokens = 32;  // 4096 / (64 x 2)

/// What crosses the memory of buffers and the link of each drive in a run.
struct Traffic {
  experiment::GenerationOutcome out;
  std::vector<std::uint64_t> link;  ///< [drive] payload, both directions
  nvme::RegionTraffic gpu, host;

  explicit Traffic(const experiment::GenerationSetup& setup) {
    platform::Platform* at = nullptr;
    experiment::GenerationHooks hooks;
    hooks.before_start = [&](platform::Platform& platform) { at = &platform; };
    hooks.before_end = [&](platform::Platform&) {
      for (std::uint32_t d = 0; d < at->drives(); ++d) link.push_back(at->drive(d).totals().link_bytes);
      gpu = at->traffic(nvme::RegionKind::gpu_memory);
      host = at->traffic(nvme::RegionKind::host_dram);
    };
    out = experiment::run_generation(setup, hooks);
  }
};

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

TEST_CASE("divided tokens give the tokens of attention in one place: 4 KV heads over 2, 3 and 5 drives") {
  for (const std::uint32_t drives : {2U, 3U, 5U}) {
    CAPTURE(drives);
    experiment::GenerationSetup setup = small_setup(small_drive(), some_prompts(), 40, "instinfer-dense");
    setup.system = dense(host::ShardBy::token);
    setup.platform.drives = drives;
    check_carried(setup, some_prompts(), SmallModel::get());
  }
}

TEST_CASE("divided tokens with grouped queries: 2 KV heads over 3 and 7 drives, in mini-batches, cut and copied") {
  const Prompts prompts = some_prompts();
  const std::vector<std::function<void(experiment::GenerationSetup&)>> ways{
      [](auto&) {}, [](auto& s) { s.plan.mini_batches = 2; }, [](auto& s) { s.plan.through_host = true; },
      [](auto& s) { s.granularity = nvme::Granularity::head; },
      [](auto& s) {
        s.granularity = nvme::Granularity::sequence;
        s.platform.drive.nvme.controller.mdts = Bytes::kib(8);
        s.plan.through_host = true;
      }};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    CAPTURE(way);
    experiment::GenerationSetup setup = small_setup(small_drive(), prompts, 16, "instinfer-dense", grouped());
    setup.system = dense(host::ShardBy::token);
    setup.platform.drives = way % 2 == 0 ? 3 : 7;
    ways[way](setup);
    check_carried(setup, prompts, grouped());
  }
}

TEST_CASE("heads that the drives do not divide evenly: 4 over 3 drives") {
  const Prompts prompts = some_prompts();
  experiment::GenerationSetup setup = small_setup(small_drive(), prompts, 24, "instinfer-dense");
  setup.platform.drives = 3;
  const DecodeRun drive = decode_in_drive(setup, prompts, {});
  const DecodeRun host = decode_on_host(setup, prompts, {});
  CHECK(drive.tokens == host.tokens);
  CHECK(drive.attention_digest == host.attention_digest);
}

TEST_CASE("one drive: shard: token is shard: head, to the bit and the picosecond") {
  const Prompts prompts{text_prompt(40), text_prompt(65, 50)};
  experiment::GenerationSetup setup = small_setup(small_drive(), prompts, 12, "instinfer-dense");
  const DecodeRun heads = decode_in_drive(setup, prompts, {});
  setup.system = dense(host::ShardBy::token);
  const DecodeRun tokens = decode_in_drive(setup, prompts, {});
  CHECK(tokens.attention_digest == heads.attention_digest);
  CHECK(tokens.outcome.simulated == heads.outcome.simulated);
  CHECK(tokens.outcome.times.decode_s == heads.outcome.times.decode_s);
}

TEST_CASE("bytes of each drive: its tokens once, q and a partial output in every step, k and v where they are kept") {
  for (const bool through_host : {false, true})
    for (const std::uint32_t drives : {2U, 3U, 6U}) {
      CAPTURE(through_host, drives);
      experiment::GenerationSetup setup = timing_setup({700, 650, 4, 300}, drives);
      setup.plan.through_host = through_host;
      const Traffic run(setup);
      const host::ModelShape& model = setup.plan.model;
      const host::BatchLengths& lengths = setup.plan.workload;
      const host::KvDivision division = experiment::kv_division(setup);
      const std::uint64_t row = model.head_dim * 2;  // fp16
      std::uint64_t in = 0, back = 0;
      for (std::uint32_t d = 0; d < drives; ++d) {
        std::uint64_t to_drive = 0, from_drive = 0;
        for (const std::uint32_t prompt : lengths.prompts())
          to_drive += 2 * row * model.kv_heads * division.prompt(host::DriveIndex{d}, prompt).count;
        for (std::uint32_t step = 0; step < lengths.decode_steps(); ++step) {
          std::uint64_t asked = 0;
          const bool appends = division.appends(host::DriveIndex{d}, step);
          for (const std::uint32_t prompt : lengths.prompts())
            asked += division.tokens(host::DriveIndex{d}, prompt, step) > 0 || appends ? 1 : 0;
          to_drive += 32 * asked + aligned(asked * model.heads * row);
          if (appends) to_drive += 2 * aligned(asked * model.kv_heads * row);
          from_drive += aligned(asked * model.heads * row) + aligned(asked * model.heads * 2 * sizeof(float));
        }
        CAPTURE(d);
        // The link also carries commands and completions.
        const double data = double((to_drive + from_drive) * model.layers);
        CHECK(double(run.link[d]) >= data);
        CHECK(double(run.link[d]) <= 1.01 * data);
        in += to_drive * model.layers;
        back += from_drive * model.layers;
      }
      if (through_host) {
        CHECK(run.gpu.bytes_from_region + run.gpu.bytes_to_region == 0);
        CHECK(run.host.bytes_from_region >= in);
        CHECK(run.host.bytes_to_region >= back);
      } else {
        CHECK(run.gpu.bytes_from_region == in);
        CHECK(run.gpu.bytes_to_region == back);
      }
    }
}

TEST_CASE("pages: every drive programs and reads the full groups of its own tokens") {
  constexpr std::uint32_t kDrives = 3;
  // 5 tokens and at most 3 new ones per drive: no group fills during decode.
  const std::vector<std::uint32_t> groups{7, 6, 2, 0};
  std::vector<std::uint32_t> prompts;
  double all = 0;
  for (const std::uint32_t g : groups) {
    prompts.push_back(kDrives * (g * kPageTokens + 5));
    all += kDrives * g;
  }
  const experiment::GenerationSetup setup = timing_setup(prompts, kDrives);
  const experiment::GenerationOutcome out = experiment::run_generation(setup);
  const host::ModelShape& model = setup.plan.model;
  const double pages = 2.0 * all * model.kv_heads * model.layers;  // K and V
  const std::uint32_t steps = setup.plan.workload.decode_steps();
  CHECK(out.prefill.page_ops + out.decode.page_ops == pages + steps * pages);
  CHECK(double(out.simulated_page_ops) == pages + steps * pages);
  const experiment::PlannedWork planned = experiment::planned_work(setup);
  CHECK(planned.prefill == pages);
  CHECK(planned.decode == Approx(steps * pages));
}

TEST_CASE("more drives are never slower at a long context, also beyond the KV heads") {
  const auto decode_s = [](std::uint32_t drives, host::ShardBy shard) {
    return experiment::run_generation(timing_setup({4000, 4000}, drives, shard)).times.decode_s;
  };
  double last = decode_s(1, host::ShardBy::token);
  for (const std::uint32_t drives : {2U, 4U, 8U, 16U}) {
    CAPTURE(drives);
    const double now = decode_s(drives, host::ShardBy::token);
    CHECK(now < last);
    last = now;
  }
  // Two drives read the same pages either way; what is added is the merge and m and z.
  CHECK(decode_s(2, host::ShardBy::token) == Approx(decode_s(2, host::ShardBy::head)).epsilon(0.05));
  CHECK(decode_s(8, host::ShardBy::token) < decode_s(4, host::ShardBy::head));
}

TEST_CASE("sampled runs of divided tokens are within 1 % of whole ones, and within their estimated error") {
  for (const std::uint32_t drives : {3U, 8U})
    for (const bool ragged : {false, true}) {
      CAPTURE(drives, ragged);
      experiment::GenerationSetup setup = timing_setup(
          ragged ? std::vector<std::uint32_t>{1800, 950, 1203, 700} : std::vector<std::uint32_t>(4, 1500), drives);
      setup.plan.model.layers = 12;
      setup.plan.workload.output_tokens = 257;
      setup.plan.mini_batches = 2;
      setup.sampling.cooldown = 1;
      const experiment::GenerationOutcome whole = experiment::run_generation(setup);
      setup.sampling.off = false;
      setup.sampling.steps = 16;
      const experiment::GenerationOutcome sampled = experiment::run_generation(setup);
      CHECK(sampled.simulated_page_ops * 3 < whole.simulated_page_ops);
      const auto off_by = [](double a, double b) { return std::abs(a / b - 1); };
      const double decode = off_by(sampled.times.decode_s, whole.times.decode_s);
      const double ttft = off_by(sampled.times.ttft_s, whole.times.ttft_s);
      CAPTURE(decode, sampled.error.decode(), ttft, sampled.error.prefill, sampled.statement);
      CHECK(decode <= 0.01);
      CHECK(decode <= 1.5 * sampled.error.decode() + 2e-4);
      CHECK(ttft <= 1.5 * sampled.error.prefill + 2e-4);
      CHECK(off_by(sampled.decode.channel_bytes, whole.decode.channel_bytes) <= 0.01);
      CHECK(double(whole.simulated_page_ops) == Approx(experiment::planned_work(setup).total()).epsilon(0.03));
    }
}

TEST_CASE("controller DRAM is checked for a drive's own tokens: 16 drives, or one with a sixteenth of them") {
  const experiment::GenerationSetup setup = timing_setup({7000, 6500}, 16);
  const experiment::KvFormat format(setup);
  const auto fits = [&](std::vector<std::uint32_t> prompts, std::uint32_t outputs, const host::KvDivision& division,
                        Bytes dram) {
    csd_model::DriveConfig drive = setup.platform.drive;
    drive.dram = dram;
    try {
      experiment::check_controller_dram(drive, *format.policy, format.shape, format.layout,
                                        {std::move(prompts), outputs}, division, 6);
      return true;
    } catch (const UserError& e) {
      CHECK_THAT(e.what(), Catch::Contains("controller DRAM"));
      return false;
    }
  };
  const auto least = [&](const std::vector<std::uint32_t>& prompts, std::uint32_t outputs,
                         const host::KvDivision& division) {
    std::uint64_t too_few = 0, enough = Bytes::gib(1).value;
    while (enough - too_few > 1) {
      const std::uint64_t middle = (too_few + enough) / 2;
      (fits(prompts, outputs, division, Bytes{middle}) ? enough : too_few) = middle;
    }
    return enough;
  };
  REQUIRE(format.division.token_parts() == 16);
  CHECK(least({16 * 437, 16 * 405}, 16 * 8 + 1, format.division) == least({437, 405}, 8 + 1, host::KvDivision()));
  CHECK(least({16 * 437, 16 * 405}, 16 * 8 + 1, host::KvDivision()) >
        least({16 * 437, 16 * 405}, 16 * 8 + 1, format.division));
}

}  // namespace test_token_shards
