// Weights in the block namespaces of drives: where they are, the operations that read them, and what these read.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/features/neurons/flash_feed_forward.h"
#include "host_runtime/core/features/neurons/flash_neurons.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/llm_in_a_flash/llm_in_a_flash.h"
#include "tests/support/planner_support.h"
#include "tests/support/resolver.h"

namespace test_flash_weights {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint32_t kNeurons = 256;  // neurons of small_model(); a row is 64 elements, 128 B

FlashOptions options(NeuronReads choice = NeuronReads::predicted) {
  return {.choice = choice, .memory_share = {1, 1}, .memory = {}, .predictor_rank = {}, .locality = {}};
}

FlashWeights weights_of(const FlashOptions& of, std::uint32_t layers = 4, std::uint32_t drives = 1,
                        Bytes block = Bytes{512}) {
  return {of, {.model = small_model(layers), .workload = {}, .drives = drives, .block_size = block}};
}

/// The operations of one layer of a step, by kind; each kind at most once.
struct LayerOps {
  std::map<OpKind, Operation> ops;
  LayerOps(const std::vector<Operation>& all, Phase phase, std::uint32_t step, std::uint32_t layer) {
    for (const Operation& op : all)
      if (op.tag.phase == phase && op.tag.step == step && op.tag.layer == LayerId{layer}) ops.emplace(op.kind, op);
  }
  const Operation& at(OpKind kind) const { return ops.at(kind); }
  bool has(OpKind kind) const { return ops.contains(kind); }
  bool depends(OpKind user, OpKind on) const {
    return std::ranges::find(at(user).deps, at(on).id) != at(user).deps.end();
  }
};

std::vector<Operation> plan(const LlmInAFlash& system, std::uint32_t layers = 3, bool through_host = false) {
  PlannerInputs in = small_inputs(layers, {5, 7}, 3, 1);
  in.through_host = through_host;
  in.block_size = Bytes{512};
  return all_operations(*system.plan(in));
}

std::uint64_t blocks_of(const std::vector<Extent>& extents) {
  std::uint64_t blocks = 0;
  for (const Extent& extent : extents) blocks += extent.blocks;
  return blocks;
}

LlmInAFlash system_of(FlashTechnique technique) {
  LlmInAFlash system;
  system.flash.technique = technique;
  system.flash.memory_share = {1, 1};
  return system;
}

}  // namespace

TEST_CASE("a layer's end in parts costs what it costs as a whole") {
  for (const std::uint32_t matrices : {2u, 3u}) {
    ModelShape model = small_model();
    model.ffn_matrices = matrices;
    const ComputeWork whole = model.finish_layer(7), first = model.finish_attention(7),
                      rest = model.feed_forward(7, model.ffn);
    CHECK(whole.flops == first.flops + rest.flops);
    CHECK(whole.weights == first.weights + rest.weights);
    CHECK(whole.activations == first.activations + rest.activations);
    CHECK(whole.launches == first.launches + rest.launches);
    CHECK(model.feed_forward(7, 64).flops == 2 * 7 * matrices * 64 * 64);
    CHECK(model.predict_neurons(3, 16).flops == 2 * 3 * 16 * (64 + 256));
    CHECK(model.predict_neurons(3, 16).weights == Bytes{16 * (64 + 256) * 2});
    // The input, both sides of the rank, the scores and the choice.
    CHECK(model.predict_neurons(3, 16).activations == Bytes{3 * (64 + 2 * 16 + 2 * 256) * 2});
  }
}

TEST_CASE("what stays in memory and what is read adds up to the model") {
  const ModelShape model = small_model();
  const Bytes networks{model.ffn_parameters() * model.layers * 2}, others = model.weight_bytes() - networks;
  FlashOptions all = options(NeuronReads::all);

  all.resident_share = {0, 1};
  const FlashWeights naive = weights_of(all);
  CHECK(naive.in_blocks() == model.weight_bytes());
  CHECK(naive.resident_neurons() == 0);

  all.resident_share = {7, 8};
  const FlashWeights most = weights_of(all);
  CHECK(most.layer_rest() == Bytes{});
  CHECK(most.resident_neurons() > 0);
  const auto resident = double((model.weight_bytes() - most.in_blocks()).value) / double(model.weight_bytes().value);
  CHECK(resident <= 0.875);
  CHECK(resident > 0.875 - double(naive.row().value * model.layers) / double(model.weight_bytes().value));

  // A part of attention and embeddings.
  all.resident_share = Ratio::of(others.value / 2, model.weight_bytes().value);
  const FlashWeights half = weights_of(all);
  const std::uint64_t missing = half.in_blocks().value - networks.value;
  CHECK(missing <= (others.value + 1) / 2);
  CHECK(missing + model.layers + 1 >= others.value / 2);
  all.attention_resident = true;
  CHECK(weights_of(all).in_blocks() == networks);

  const FlashWeights predicted = weights_of(options());
  CHECK(predicted.in_blocks() == networks);
  CHECK(predicted.predictors().value == 128 * (64 + 256) * 2 * model.layers);
  FlashOptions bounded = options();
  bounded.memory = Bytes{10 * 256 * model.layers + 100};
  CHECK(weights_of(bounded).memory_rows() == 10);
  bounded.memory.reset();
  bounded.memory_share = Ratio::of(1, 3);
  CHECK(weights_of(bounded).memory_rows() == 85);
}

TEST_CASE("a predictor has one rank, or one per layer; an unset one is the checkpoint's or the usual one") {
  const ModelShape model = small_model(3);
  FlashOptions of = options();
  const auto weights = [&](std::vector<std::uint32_t> of_checkpoint) {
    return FlashWeights(
        of, {.model = model, .workload = {}, .block_size = {512}, .predictor_rank = std::move(of_checkpoint)});
  };
  const Bytes per_rank{(64 + 256) * 2};
  CHECK(weights({}).predictors() == per_rank * (3 * 128));
  CHECK(weights({9}).predictors() == per_rank * (3 * 9));
  CHECK(weights({9}).layers_alike());
  of.predictor_rank = {16, 16, 64};
  CHECK(weights({9}).predictors() == per_rank * 96);
  CHECK_FALSE(weights({9}).layers_alike());
  LlmInAFlash system = system_of(FlashTechnique::bundling);
  system.flash.predictor_rank = of.predictor_rank;
  const auto ops = plan(system);
  for (std::uint32_t layer = 0; layer < 3; ++layer)
    CHECK(std::get<ComputeWork>(LayerOps(ops, Phase::decode, 1, layer).at(OpKind::select_neurons).work) ==
          small_model().predict_neurons(2, of.predictor_rank[layer]));
  // Nobody asks the predictor where all neurons are read.
  of.choice = NeuronReads::all;
  CHECK(weights({}).layers_alike());
  CHECK(weights({}).predictors() == Bytes{});
}

TEST_CASE("some layers of a model have what they have in the whole one") {
  const auto of = [](const FlashOptions& options, std::uint32_t layers) {
    return FlashWeights(options,
                        {.model = small_model(layers), .workload = {}, .block_size = {512}, .whole_layers = 40});
  };
  FlashOptions all = options(NeuronReads::all), bounded = options();
  bounded.memory = Bytes{256 * 40 * 30};
  for (const Ratio share : {Ratio::of(1, 50), Ratio::of(1, 2), Ratio::of(4, 5)}) {
    all.resident_share = share;
    CHECK(of(all, 5).resident_neurons() == of(all, 40).resident_neurons());
    CHECK(of(all, 5).layer_rest() == of(all, 40).layer_rest());
    CHECK(of(all, 5).tables() == of(all, 40).tables());
  }
  CHECK(of(bounded, 5).memory_rows() == 30);
  CHECK(of(bounded, 40).memory_rows() == 30);
}

TEST_CASE("extents of a drive do not overlap, and layers are on the drives in turn") {
  FlashOptions all = options(NeuronReads::all);
  all.resident_share = {0, 1};
  for (const RecordLayout layout : {RecordLayout::rows, RecordLayout::bundled})
    for (const std::uint32_t drives : {1u, 3u}) {
      all.layout = layout;
      const FlashWeights weights = weights_of(all, 4, drives);
      std::vector<std::vector<Extent>> used(drives);
      for (LayerId layer{0}; layer.value < 4; ++layer.value) {
        std::vector<Extent>& on = used[weights.drive_of(layer).value];
        CHECK(weights.drive_of(layer).value == layer.value % drives);
        Bytes records;
        for (const Extent& extent : weights.all_records(layer)) {
          on.push_back(extent);
          records += Bytes{512} * extent.blocks;
        }
        CHECK(records == weights.layer_buffer());
        on.push_back(weights.rest_of(layer));
      }
      used[0].push_back(weights.table_blocks());
      for (std::uint32_t drive = 0; drive < drives; ++drive) {
        std::ranges::sort(used[drive]);
        for (std::size_t i = 1; i < used[drive].size(); ++i) CHECK(used[drive][i - 1].end() <= used[drive][i].first);
        CHECK(used[drive].back().end() <= weights.blocks(DriveIndex{drive}));
      }
    }
}

TEST_CASE("a predicted layer: select, read, delete, insert, compute; one after another") {
  const auto ops = plan(system_of(FlashTechnique::bundling));
  for (const std::uint32_t step : {0u, 1u})
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      const LayerOps of(ops, Phase::decode, step, layer);
      CHECK_FALSE(of.has(OpKind::finish_layer));
      CHECK_FALSE(of.has(OpKind::partial_feed_forward));
      CHECK_FALSE(of.has(OpKind::transfer));
      CHECK(of.depends(OpKind::select_neurons, OpKind::finish_attention));
      CHECK(of.depends(OpKind::read_blocks, OpKind::select_neurons));
      CHECK(of.depends(OpKind::delete_records, OpKind::read_blocks));
      CHECK(of.depends(OpKind::insert_records, OpKind::delete_records));
      CHECK(of.depends(OpKind::insert_records, OpKind::read_blocks));
      CHECK(of.depends(OpKind::feed_forward, OpKind::insert_records));
      const auto& read = std::get<BlockWork>(of.at(OpKind::read_blocks).work);
      CHECK(read.extents.empty());
      CHECK(read.outstanding == 32);
      CHECK(read.chunk == Bytes::kib(32));
      CHECK(read.memory == Place::gpu());
      if (layer > 0) {
        const LayerOps before(ops, Phase::decode, step, layer - 1);
        CHECK(std::ranges::count(of.at(OpKind::attention_inputs).deps, before.at(OpKind::feed_forward).id) == 1);
      }
    }
  // The prompt's tokens use all neurons.
  const LayerOps prompt(ops, Phase::prefill, 0, 1);
  CHECK_FALSE(prompt.has(OpKind::select_neurons));
  CHECK(prompt.depends(OpKind::read_blocks, OpKind::finish_attention));
  CHECK(prompt.depends(OpKind::feed_forward, OpKind::read_blocks));
  CHECK(moved_bytes(prompt.at(OpKind::read_blocks).work) == Bytes{kNeurons * 512});  // a record of 256 B per block
  CHECK(prompt.at(OpKind::feed_forward).work.index() == 0);
  CHECK(std::get<ComputeWork>(prompt.at(OpKind::feed_forward).work) == small_model().feed_forward(12, kNeurons));
}

TEST_CASE("with overlap, neurons in memory are computed and others deleted while records are read") {
  LlmInAFlash system = system_of(FlashTechnique::bundling);
  system.flash.overlap_flash = system.flash.overlap_memory = true;
  const LayerOps of(plan(system), Phase::decode, 1, 2);
  CHECK_FALSE(of.depends(OpKind::delete_records, OpKind::read_blocks));
  CHECK(of.depends(OpKind::delete_records, OpKind::select_neurons));
  CHECK(of.depends(OpKind::partial_feed_forward, OpKind::delete_records));
  CHECK(of.depends(OpKind::insert_records, OpKind::partial_feed_forward));
  CHECK(of.depends(OpKind::insert_records, OpKind::read_blocks));
}

TEST_CASE("records that pass through host memory are copied over the GPU's link") {
  const LayerOps of(plan(system_of(FlashTechnique::bundling), 3, true), Phase::decode, 0, 1);
  CHECK(std::get<BlockWork>(of.at(OpKind::read_blocks).work).memory == Place::host());
  CHECK(of.depends(OpKind::transfer, OpKind::read_blocks));
  CHECK(of.depends(OpKind::insert_records, OpKind::transfer));
}

TEST_CASE(
    "naive: all weights of a step are read, the head before the sample, and rows of tables before the embedding") {
  for (const bool overlap : {false, true}) {
    LlmInAFlash system = system_of(FlashTechnique::naive);
    system.flash.overlap_flash = overlap;
    PlannerInputs in = small_inputs(4, {5, 7}, 3, 1);
    in.model.tied_embeddings = false;
    in.model.positions = 300;
    in.block_size = Bytes{512};
    const auto ops = all_operations(*system.plan(in));
    const FlashWeights weights = system.flash_weights(in);
    CHECK(weights.head().value * 2 < weights.tables().value);
    const auto step_op = [&](OpKind kind) {
      return *std::ranges::find_if(ops, [&](const Operation& op) {
        return op.kind == kind && op.tag.phase == Phase::decode && op.tag.step == 0;
      });
    };
    const Operation embed = step_op(OpKind::embed), sample = step_op(OpKind::sample);
    const LayerOps last(ops, Phase::decode, 0, 3);
    std::uint64_t layers = 0, head = 0, rows = 0;
    for (const Operation& op : ops) {
      if (op.kind != OpKind::read_blocks || op.tag.phase != Phase::decode || op.tag.step != 0) continue;
      const bool for_sample = std::ranges::count(sample.deps, op.id) == 1;
      CHECK((std::ranges::count(embed.deps, op.id) == 1) == (!op.tag.layer && !for_sample));
      (op.tag.layer ? layers : for_sample ? head : rows) += moved_bytes(op.work).value;
      if (!for_sample) continue;
      // The head is read when the last layer has been computed, or when its attention has.
      CHECK((std::ranges::count(op.deps, last.at(OpKind::feed_forward).id) == 1) != overlap);
      CHECK(std::ranges::count(op.deps, last.at(OpKind::finish_attention).id) == 1);
    }
    const auto whole = [](Bytes bytes) { return (bytes.value + 511) / 512 * 512; };
    CHECK(layers == 4 * (weights.layer_buffer().value + whole(weights.layer_rest())));
    CHECK(head == whole(weights.head()));
    CHECK(rows == 512 * blocks_of(weights.looked_up(2)));  // two sequences
    CHECK_FALSE(last.has(OpKind::select_neurons));
  }
}

TEST_CASE("tables in flash: the head is read whole, of the others the rows that tokens look up") {
  for (const bool tied : {true, false})
    for (const std::uint32_t positions : {0U, 30U})
      for (const Ratio resident : {Ratio{0, 1}, Ratio::of(1, 20)}) {
        CAPTURE(tied, positions, resident.value());
        ModelShape model = small_model(2);
        model.tied_embeddings = tied;
        model.positions = positions;
        model.vocab = 1001;
        FlashOptions all = options(NeuronReads::all);
        all.resident_share = resident;
        const FlashWeights weights(all, {.model = model, .workload = {}, .block_size = {512}});
        const Bytes row{std::uint64_t{model.width} * 2}, table = row * model.vocab;
        const Bytes norm{(model.weight_bytes() - model.layer_weight_bytes() * model.layers).value -
                         (table * (tied ? 1 : 2) + row * positions).value};
        const double in_flash =
            double(weights.tables().value) / double((table * (tied ? 1 : 2) + row * positions + norm).value);
        CHECK((in_flash < 1) == (resident.value() > 0));
        CHECK(double(weights.head().value) == Approx(in_flash * double((table + norm).value)).margin(2));
        // No block is read twice, all are in the tables, and outside the head if it is a table of its own.
        for (const std::uint64_t tokens : {1U, 7U, 5000U}) {
          const std::vector<Extent> rows = weights.looked_up(tokens);
          REQUIRE(!rows.empty());
          CHECK(std::ranges::is_sorted(rows));
          for (std::size_t i = 1; i < rows.size(); ++i) CHECK(rows[i - 1].end() <= rows[i].first);
          CHECK(rows.back().end() <= weights.table_blocks().end());
          if (!tied) CHECK(rows.front().first + 1 >= weights.head_blocks().end());
          // A row of 128 B lies in one block, or in two.
          if (tokens > 100) continue;
          const auto least = static_cast<std::uint64_t>(std::ceil(in_flash * double(tokens))) * (positions > 0 ? 2 : 1);
          CHECK(blocks_of(rows) <= 2 * least);
          CHECK(blocks_of(rows) >= (tokens == 1 ? 1 : least / 2));
        }
        CHECK(blocks_of(weights.looked_up(5000)) + weights.head_blocks().blocks * (tied ? 0 : 1) >=
              weights.table_blocks().blocks - 1);
      }
  CHECK(weights_of(options()).looked_up(10).empty());  // tables are in memory
}

TEST_CASE("hybrid: with overlap, a layer is read while the one before it is computed") {
  LlmInAFlash system = system_of(FlashTechnique::hybrid);
  system.flash.resident_share = Ratio::of(3, 4);
  system.flash.overlap_flash = true;
  const auto ops = plan(system, 4);
  const LayerOps first(ops, Phase::decode, 1, 1), second(ops, Phase::decode, 1, 2), third(ops, Phase::decode, 1, 3);
  // Two buffers, and one read of the drive at a time.
  CHECK(third.at(OpKind::read_blocks).deps ==
        std::vector<OperationId>{first.at(OpKind::feed_forward).id, second.at(OpKind::read_blocks).id});
  system.flash.overlap_flash = false;
  const LayerOps serial(plan(system, 4), Phase::decode, 1, 3);
  CHECK(serial.depends(OpKind::read_blocks, OpKind::finish_attention));
}

TEST_CASE("the plan runs: every operation finds its tensors, and every technique ends") {
  for (const FlashTechnique technique : {FlashTechnique::naive, FlashTechnique::hybrid, FlashTechnique::predictor,
                                         FlashTechnique::windowing, FlashTechnique::bundling})
    for (const bool overlap : {false, true})
      for (const bool through_host : {false, true}) {
        LlmInAFlash system = system_of(technique);
        system.flash.overlap_flash = system.flash.overlap_memory = overlap;
        PlannerInputs in = small_inputs(3, {5, 7}, 4, 1);
        in.through_host = through_host;
        in.drives = 2;
        in.block_size = Bytes{512};
        const auto planner = system.plan(in);
        const auto weights = system.flash_weights(in);
        std::optional<ModelledNeurons> neurons;
        if (weights.predicts()) neurons.emplace(weights, 1);
        FunctionBackend backend([](const Operation&) { return SimTime::nanoseconds(10); });
        Router router;
        for (const ResourceKind kind :
             {ResourceKind::gpu, ResourceKind::host, ResourceKind::host_to_gpu, ResourceKind::drive_blocks})
          router.add(kind, backend);
        const host::RunFeatures features = csdsim::host::resolving(
            [&](const Operation& op) { return neurons ? neurons->resolve(op) : std::optional<Work>{}; });
        router.set_features(features);
        router.place(planner->resident());
        Executor executor(*planner, router, {});
        const auto records = run(executor);
        CHECK(executor.report().steps.size() == 4);
        CHECK(executor.report().steps.back().layer_computed.size() == 3);
        Bytes read;
        for (const OperationRecord& record : records)
          if (record.kind == OpKind::read_blocks && record.tag.phase == Phase::decode) read += record.moved;
        CHECK(read > Bytes{});
        if (neurons) CHECK(read <= Bytes{neurons->neurons()->loaded() * 2 * 512});
      }
}

TEST_CASE("weights in flash are for one mini-batch, and for nothing beside them") {
  PlannerInputs in = small_inputs(2, {5, 7}, 2, 2);
  CHECK_THROWS_WITH(LlmInAFlash{}.plan(in), Contains("one mini-batch"));
  in.mini_batches = 1;
  TieredKvPlanner planner(in, TieredKv{.shards = tier_heads(4, {1, 1}, {0, 1})}, WeightPlacement{.on_host = {1, 2}});
  CHECK_THROWS_AS(planner.set_feed_forward(std::make_unique<FlashFeedForward>(weights_of(options(), 2), in)),
                  UserError);
}

}  // namespace test_flash_weights
