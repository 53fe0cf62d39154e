// flexgen-sparq in simulated time: tokens of SparQ on the host, amplification of reads, sampled runs.
#include <catch2/catch.hpp>

#include <cmath>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/features/head_rows/head_rows_feature.h"
#include "host_runtime/core/machine/file_table.h"
#include "host_runtime/core/systems/flexgen_sparq/flexgen_sparq.h"
#include "host_runtime/sysc/sparse_reads.h"
#include "tests/integration/file_setup.h"

namespace test_flexgen_sparq {

using namespace csdsim;
using namespace csdsim::test;

namespace {

scenario::Scenario timing(const std::vector<std::string>& sets) {
  return experiment::load_scenario_text(R"(csdsim: 1
name: sparq
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320, file: {io_size: 4 KiB}}
  device:
    flash: {channels: 4, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 4096, pages_per_block: 32, page_size: 4 KiB}
    dram: {capacity: 64 MiB}
model: {layers: 6, heads: 4, kv_heads: 4, head_dim: 128, hidden_size: 512, ffn_size: 1024, vocab_size: 1000, max_positions: 8192}
workload: {kind: generation, batch: 2, input_tokens: 1024, output_tokens: 9}
system: {kind: flexgen-sparq}
simulation: {sampling: off}
)",
                                        "sparq.yaml", CSDSIM_SOURCE_DIR, sets)
      .base.scenario;
}

experiment::GenerationSetup setup_of(const scenario::Scenario& s) {
  const auto& workload = experiment::generation_of(s);
  return experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens));
}

experiment::GenerationOutcome run(const scenario::Scenario& s) {
  experiment::GenerationSetup setup = setup_of(s);
  engine::ClusteredSelection selection(0.25, 1);
  setup.platform.drive.selection = &selection;
  return experiment::run_generation(setup);
}

/// The work of a read whose rows `selection` chooses, in files of logical blocks of 4 KiB.
std::optional<host::Work> chosen(const host::Operation& op, engine::SelectionSource& selection) {
  host::FileRows feature;
  feature.begin({.rows = host::selected_rows(selection, Bytes::kib(4))});
  return feature.resolve(op);
}

}  // namespace

TEST_CASE("flexgen-sparq makes the tokens of SparQ on the host, for all head groups and budgets") {
  for (const char* const directory : {"models/opt-6m", "models/llama-gqa-6m"}) {
    const SmallModel model(directory);
    const std::uint32_t vocab = model.checkpoint.config.vocab;
    Prompts prompts = {text_prompt(61), text_prompt(40, 300), text_prompt(17, 700)};
    for (auto& prompt : prompts)
      for (host::TokenId& token : prompt) token.value %= vocab;
    const host::SparfParameters budgets[] = {{}, {.ratio = Ratio::of(1, 2)}, {.r = 3, .k = 9, .local = 0}, {.k = 45}};
    for (const host::SparfParameters& budget : budgets)
      for (const std::uint32_t unit : {1U, 5U, 64U}) {
        host::FlexGenSparq system;
        system.sparq.budget = budget;
        system.sparq.written_tokens = unit;
        experiment::GenerationSetup setup = file_setup(prompts, 10, "flexgen-sparq", model);
        setup.plan.mini_batches = unit == 5 ? 2 : 1;
        setup.system = system.clone();
        const DecodeRun drive = decode_in_drive(setup, prompts, {.temperature = 0}, {}, model);
        host::ConfiguredMethod method =
            host::configure_method("sparq", system.traits().method.settings, model.checkpoint.config.head_dim);
        const Prompts expected =
            host::generate_on_host(*model.decoder, std::move(method.method), prompts,
                                   {.max_new_tokens = 10, .sampling = {.temperature = 0}, .stop = {}});
        CAPTURE(directory, unit, budget.k.value_or(0));
        CHECK(drive.tokens == expected);
        CHECK(drive.outcome.integrity_errors == 0);
      }
  }
}

TEST_CASE("reads of single rows: whole blocks, at most 16 times the wanted bytes, never less") {
  // 128 components of 2 B: 16 rows of a token in a block of 4 KiB.
  host::HeadRows rows{.kind = host::HeadRows::Kind::tokens,
                      .heads = {KvHead{0}, 4},
                      .head_dim = 128,
                      .element_bytes = 2,
                      .components = 16};
  rows.sequences = {
      {.sequence = SequenceId{3}, .room = 2048, .stored = 1536, .context = 1540, .top_k = 192, .local = 48}};
  host::FileWork planned{.file = "f"};
  planned.rows = rows;
  host::Operation op;
  op.kind = host::OpKind::read_file;
  op.resource = host::Resource::file({});
  op.tag.phase = host::Phase::decode;
  op.tag.layer = LayerId{2};
  op.work = planned;
  host::FileTable table(Bytes::kib(4));
  table.add("f", {{0, 2048 * 256 * 4 * 2 / 4096}});
  for (const double share : {0.05, 0.125, 0.25, 1.0}) {
    engine::ClusteredSelection selection(share, 5);
    const auto work = chosen(op, selection);
    REQUIRE(work.has_value());
    host::Operation resolved = op;
    resolved.work = *work;
    std::uint64_t wanted = 0, read = 0;
    for (const host::FileRange& range : std::get<host::FileWork>(*work).ranges) wanted += range.size.value;
    for (const host::FileIo& io : table.cut(resolved, Bytes::kib(4))) read += 4096 * io.extent.blocks;
    // k tokens but for the 4 newest, which are not in the file; K and V of 4 heads.
    CHECK(wanted == (192 - 4) * 2 * 256 * 4);
    const std::uint64_t groups = 1536 / 16,
                        touched = std::max<std::uint64_t>(std::llround(share * groups), (188 + 15) / 16);
    CHECK(read == touched * 4096 * 2 * 4);
    CHECK(read <= 16 * wanted);
  }
  rows.kind = host::HeadRows::Kind::components;
  std::get<host::FileWork>(op.work).rows = rows;
  engine::ClusteredSelection selection(0.25, 5);
  const auto work = chosen(op, selection);
  std::uint64_t wanted = 0;
  for (const host::FileRange& range : std::get<host::FileWork>(work.value()).ranges) wanted += range.size.value;
  CHECK(wanted == 16 * 1536 * 2 * 4);
}

TEST_CASE("flexgen-sparq without a page cache reads whole blocks in every step, as many as are touched") {
  // One layer's reads at a time: nothing of an earlier step is left in a cache of 64 KiB.
  const experiment::GenerationOutcome out =
      run(timing({"platform.host.file.page_cache=64 KiB", "system.written_tokens=1024", "workload.input_tokens=2048"}));
  const std::uint64_t heads = 2 * 6 * 4;                    // heads of all sequences and layers
  std::uint64_t wanted = heads * 2048 * 256 * 3, read = 0;  // the prompts are written
  for (std::uint64_t context = 2049; context <= 2056; ++context) {
    const std::uint64_t k = (context + 4) / 8, l = k / 4, newest = context - 2048;
    wanted += heads * (16 * 2048 * 2 + 2 * (k - std::min(l, newest)) * 256);
    // A row of a component is 4 KiB long, with room for 9 tokens more: it is in two blocks, or in one.
    read += heads * (2 * 32 * 4096);
  }
  CHECK(out.files->wanted.value == wanted);
  const double drive = double((out.files->transferred - out.files->written_back).value);
  const double components = 8.0 * heads * 16 * 2 * 4096;
  CHECK(drive >= double(read));
  CHECK(drive <= 1.1 * (2 * double(read) + components + double(heads) * 2048 * 256 * 3));
}

TEST_CASE("flexgen-sparq moves less over the GPU's link than flexgen-ssd, by the ratio of the elements") {
  const auto link = [](const std::string& system) {
    const experiment::GenerationOutcome out = run(timing({system, "workload.output_tokens=5"}));
    return out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes;
  };
  const double prompts = 2.0 * 1024 * 6 * 2048;  // K and V, once
  const double dense = link("system={kind: flexgen-ssd, policy: given}") - prompts;
  const double sparse = link("system={kind: flexgen-sparq}") - prompts;
  CHECK(sparse / dense == Approx(0.1875).epsilon(0.03));
}

TEST_CASE("sampled flexgen-sparq agrees with the whole run") {
  for (const char* const cache : {"256 MiB", "2 MiB"}) {
    experiment::GenerationSetup setup =
        setup_of(timing({"model.layers=12", "workload.input_tokens=256", "workload.output_tokens=129",
                         "system.written_tokens=16", std::string("platform.host.file.page_cache=") + cache}));
    engine::ClusteredSelection selection(0.25, 1);
    setup.platform.drive.selection = &selection;
    const experiment::GenerationOutcome whole = experiment::run_generation(setup);
    setup.sampling.off = false;
    setup.sampling.layers = setup.sampling.prefill_layers = 7;
    const experiment::GenerationOutcome sampled = experiment::run_generation(setup);
    const double decode = std::abs(sampled.times.decode_s / whole.times.decode_s - 1);
    CAPTURE(cache, sampled.statement, whole.times.decode_s, sampled.times.decode_s, decode);
    CHECK(decode <= 1.5 * sampled.error.decode() + 2e-3);
    CHECK(decode <= 0.05);
  }
}

TEST_CASE("a longer context, a smaller page cache or slower threads never make flexgen-sparq faster") {
  const auto time = [](const char* tokens, const char* cache, const char* copies) {
    const experiment::GenerationOutcome out = run(
        timing({std::string("workload.input_tokens=") + tokens, std::string("platform.host.file.page_cache=") + cache,
                std::string("platform.host.file.copy_bandwidth=") + copies, "workload.output_tokens=4"}));
    return out.times.ttft_s + out.times.decode_s;
  };
  const double base = time("1024", "64 MiB", "2 GB/s");
  CHECK(time("1536", "64 MiB", "2 GB/s") > base);
  CHECK(time("1024", "1 MiB", "2 GB/s") > base);
  CHECK(time("1024", "64 MiB", "1 GB/s") > base);
}

}  // namespace test_flexgen_sparq
