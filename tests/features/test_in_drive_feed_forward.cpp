// Plans whose feed-forward networks are computed in drives: operations, divisions of the neurons, tensors.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "base/error.h"
#include "host_runtime/core/features/neurons/flash_neurons.h"
#include "host_runtime/core/features/neurons/in_drive_feed_forward.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/systems/in_drive_ffn/in_drive_ffn.h"
#include "tests/support/planner_support.h"
#include "tests/support/resolver.h"

namespace test_in_drive_feed_forward {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kNeurons = 256;  ///< neurons of small_model()

PlannerInputs inputs(std::uint32_t drives, std::uint32_t mini_batches = 1, bool through_host = false) {
  PlannerInputs in = small_inputs(3, {5, 7}, 4, mini_batches);
  in.drives = drives;
  in.through_host = through_host;
  in.block_size = Bytes{512};
  return in;
}

FlashWeights weights_of(const InDriveFfn& system, std::uint32_t drives) { return system.flash_weights(inputs(drives)); }

/// The operations of a kind in a layer of decode step 1.
std::vector<Operation> of_kind(const std::vector<Operation>& ops, OpKind kind, std::uint32_t layer) {
  std::vector<Operation> found;
  for (const Operation& op : ops)
    if (op.kind == kind && op.tag.phase == Phase::decode && op.tag.step == 1 && op.tag.layer == LayerId{layer})
      found.push_back(op);
  return found;
}

bool depends(const Operation& op, const Operation& on) { return std::ranges::count(op.deps, on.id) == 1; }

}  // namespace

TEST_CASE("drives divide neurons: each neuron has one drive and an address of its own") {
  for (const RecordLayout records : {RecordLayout::rows, RecordLayout::bundled})
    for (const std::uint32_t drives : {1u, 2u, 3u, 7u, 256u}) {
      InDriveFfn system;
      system.records = records;
      const FlashWeights weights = weights_of(system, drives);
      CHECK(weights.parts() == drives);
      CHECK(weights.memory_rows() == 0);
      std::uint32_t all = 0;
      for (std::uint32_t part = 0; part < drives; ++part) {
        CHECK(weights.drive_of(LayerId{2}, part) == DriveIndex{part});
        all += weights.neurons_of(part);
        CHECK(weights.blocks(DriveIndex{part}) == weights.directory().blocks());
      }
      CHECK(all == kNeurons);
      CHECK(weights.neurons_of(0) - weights.neurons_of(drives - 1) <= 1);
      std::set<std::pair<std::uint32_t, Bytes>> rows;
      for (std::uint32_t layer = 0; layer < 3; ++layer)
        for (std::uint32_t neuron = 0; neuron < kNeurons; ++neuron)
          for (const std::uint32_t matrix : {0u, 1u})
            rows.emplace(neuron % drives, weights.address(LayerId{layer}, neuron, matrix));
      CHECK(rows.size() == 3u * kNeurons * 2);
      // The prompt reads every record: 512 B per record, or 256 B of a row in a block.
      std::uint64_t blocks = 0;
      for (std::uint32_t part = 0; part < drives; ++part)
        for (const Extent& extent : weights.all_records(LayerId{1}, part)) blocks += extent.blocks;
      CHECK(blocks == kNeurons * (records == RecordLayout::rows ? 2 : 1));
    }
}

TEST_CASE("a drive's list: the chosen neurons that it has, in ascending order, for each mini-batch") {
  const FlashWeights weights = weights_of({}, 3);
  DriveNeurons neurons(weights);
  neurons.step(LayerId{1}, MiniBatch{0}, std::vector<std::uint32_t>{0, 1, 3, 4, 9, 200});
  neurons.step(LayerId{1}, MiniBatch{1}, std::vector<std::uint32_t>{2});
  const auto op_of = [](std::uint32_t drive, std::uint32_t mini_batch) {
    return Operation{.id = {},
                     .kind = OpKind::feed_forward,
                     .resource = Resource::drive_blocks(DriveIndex{drive}),
                     .tag = {.phase = Phase::decode, .layer = LayerId{1}, .mini_batch = MiniBatch{mini_batch}},
                     .deps = {},
                     .work = NeuronWork{.tokens = 2, .width = 64}};
  };
  CHECK(neurons.of(op_of(0, 0)) == std::vector<std::uint32_t>{0, 3, 9});
  CHECK(neurons.of(op_of(1, 0)) == std::vector<std::uint32_t>{1, 4});
  CHECK(neurons.of(op_of(2, 0)) == std::vector<std::uint32_t>{200});
  CHECK(neurons.of(op_of(0, 1)).empty());
  CHECK(neurons.of(op_of(2, 1)) == std::vector<std::uint32_t>{2});
  // Neurons 0 and 3 are neighbours on drive 0.
  const auto work = std::get<NeuronWork>(neurons.resolve(op_of(0, 0)).value());
  REQUIRE(work.runs.size() == 2);
  CHECK(work.runs[0].count == 2);
  CHECK(work.runs[0].up == weights.address(LayerId{1}, 0, 0));
  CHECK(work.runs[0].up + work.runs[0].stride == weights.address(LayerId{1}, 3, 0));
  CHECK(work.runs[1].down == weights.address(LayerId{1}, 9, 1));
  CHECK(work.tokens == 2);
  Operation other = op_of(0, 0);
  other.tag.layer = LayerId{2};
  CHECK_THROWS_AS(neurons.of(other), InternalError);
}

TEST_CASE("a decode layer: select, a network per drive, one merge; no read") {
  for (const NeuronDivision divide : {NeuronDivision::neurons, NeuronDivision::layers})
    for (const bool through_host : {false, true}) {
      InDriveFfn system;
      system.divide = divide;
      const auto planner = system.plan(inputs(3, 1, through_host));
      const std::vector<Operation> ops = all_operations(*planner);
      for (std::uint32_t layer = 0; layer < 3; ++layer) {
        CHECK(of_kind(ops, OpKind::read_blocks, layer).empty());
        CHECK(of_kind(ops, OpKind::finish_layer, layer).empty());
        const auto select = of_kind(ops, OpKind::select_neurons, layer);
        const auto networks = of_kind(ops, OpKind::feed_forward, layer);
        const auto copies = of_kind(ops, OpKind::transfer, layer);
        const auto merge = of_kind(ops, OpKind::merge_feed_forward, layer);
        REQUIRE(select.size() == 1);
        REQUIRE(merge.size() == 1);
        const std::size_t parts = divide == NeuronDivision::neurons ? 3 : 1;
        REQUIRE(networks.size() == parts);
        REQUIRE(copies.size() == (through_host ? parts + 1 : 0));
        CHECK(depends(select[0], of_kind(ops, OpKind::finish_attention, layer).at(0)));
        std::set<std::uint32_t> drives;
        for (std::size_t i = 0; i < parts; ++i) {
          drives.insert(networks[i].resource.index);
          const auto& work = std::get<NeuronWork>(networks[i].work);
          CHECK(work.tokens == 2);
          CHECK(work.width == 64);
          CHECK(work.bias);
          CHECK(work.runs.empty());
          CHECK(work.memory.in_host() == through_host);
          CHECK(depends(networks[i], through_host ? copies[0] : select[0]));
          CHECK(depends(merge[0], through_host ? copies[1 + i] : networks[i]));
          if (through_host) {
            CHECK(moved_bytes(copies[0].work) == Bytes{2 * 64 * 2});
            CHECK(moved_bytes(copies[1 + i].work) == Bytes{2 * 64 * 4});
          }
        }
        CHECK(drives == (divide == NeuronDivision::neurons ? std::set<std::uint32_t>{0, 1, 2}
                                                           : std::set<std::uint32_t>{layer % 3}));
        CHECK(std::get<ComputeWork>(merge[0].work) ==
              small_model().merge_feed_forward(2, static_cast<std::uint32_t>(parts)));
        if (layer < 2) CHECK(depends(of_kind(ops, OpKind::attention_inputs, layer + 1).at(0), merge[0]));
      }
    }
}

TEST_CASE("the sums of drives cost the GPU bytes, not weights") {
  const ComputeWork work = small_model().merge_feed_forward(3, 4);
  CHECK(work.weights == Bytes{64 * 2});
  CHECK(work.activations == Bytes{3 * 64 * (4 * 4 + 2 * 2)});
  CHECK(work.launches == 1);
}

TEST_CASE("with K and V in the drives, their attention and their networks take turns in a layer") {
  InDriveFfn system;
  system.kv = Place::drive_kv();
  CHECK(system.needs({.model = small_model(), .workload = inputs(2).workload}).kv == Place::drive_kv());
  CHECK(InDriveFfn{}.needs({.model = small_model(), .workload = inputs(2).workload}).kv == Place::gpu());
  const auto planner = system.plan(inputs(2));
  const std::vector<Operation> ops = all_operations(*planner);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const auto attends = of_kind(ops, OpKind::attend, layer);
    REQUIRE(attends.size() == 2);
    for (const Operation& attend : attends) CHECK(depends(of_kind(ops, OpKind::finish_attention, layer).at(0), attend));
    CHECK(of_kind(ops, OpKind::feed_forward, layer).size() == 2);
  }
}

TEST_CASE("the plan runs: every operation finds its tensors, and none is left") {
  for (const Place kv : {Place::gpu(), Place::drive_kv()})
    for (const NeuronDivision divide : {NeuronDivision::neurons, NeuronDivision::layers})
      for (const std::uint32_t mini_batches : {1u, 2u})
        for (const bool through_host : {false, true}) {
          InDriveFfn system;
          system.kv = kv;
          system.divide = divide;
          const PlannerInputs in = inputs(2, mini_batches, through_host);
          const auto planner = system.plan(in);
          ModelledNeurons neurons(system.flash_weights(in), 1);
          CHECK(neurons.neurons() == nullptr);
          std::uint64_t computed = 0;
          FunctionBackend backend([&](const Operation& op) {
            if (const auto* work = std::get_if<NeuronWork>(&op.work)) computed += neuron_count(work->runs);
            return SimTime::nanoseconds(10);
          });
          Router router;
          for (const ResourceKind kind :
               {ResourceKind::gpu, ResourceKind::host, ResourceKind::host_to_gpu, ResourceKind::gpu_to_host,
                ResourceKind::drive_kv, ResourceKind::drive_blocks})
            router.add(kind, backend);
          const host::RunFeatures features =
              csdsim::host::resolving([&](const Operation& op) { return neurons.resolve(op); });
          router.set_features(features);
          router.place(planner->resident());
          const Bytes before = router.tensors().footprint(Place::gpu()).now;
          Executor executor(*planner, router, {});
          run(executor);
          CHECK(executor.report().steps.size() == 4);
          CHECK(computed > 3u * 3 * kNeurons / 20);
          CHECK(computed < 3u * 3 * kNeurons / 2);
          // Steps leave nothing but K and V on the GPU.
          const Bytes kv_bytes = small_model(3).kv_bytes_per_token() * (5 + 7 + 2 * 3);
          CHECK(router.tensors().footprint(Place::gpu()).now - before == (kv == Place::gpu() ? kv_bytes : Bytes{}));
        }
}

TEST_CASE("steps that are skipped choose the neurons that would have been chosen, with any mini-batches") {
  const FlashWeights weights = weights_of({}, 2);
  ModelledNeurons one(weights, 7), other(weights, 7);
  const auto op_of = [](OpKind kind, std::uint32_t mini_batch, Work work) {
    return Operation{.id = {},
                     .kind = kind,
                     .resource = kind == OpKind::feed_forward ? Resource::drive_blocks(DriveIndex{1}) : Resource::gpu(),
                     .tag = {.phase = Phase::decode,
                             .layer = LayerId{0},
                             .mini_batch = MiniBatch{mini_batch},
                             .sequences = std::make_shared<const std::vector<StepSequence>>(
                                 std::vector<StepSequence>{{SequenceId{mini_batch}, 9, 1}})},
                     .deps = {},
                     .work = std::move(work)};
  };
  for (std::uint32_t step = 0; step < 6; ++step)
    for (const std::uint32_t mini_batch : {0u, 1u})
      one.resolve(op_of(OpKind::select_neurons, mini_batch, ComputeWork{}));
  other.skip_to(4, 1, 2);
  other.skip_to(5, 1, 2);
  for (const std::uint32_t mini_batch : {0u, 1u})
    other.resolve(op_of(OpKind::select_neurons, mini_batch, ComputeWork{}));
  for (const std::uint32_t mini_batch : {0u, 1u}) {
    const auto runs = [&](ModelledNeurons& of) {
      return std::get<NeuronWork>(of.resolve(op_of(OpKind::feed_forward, mini_batch, NeuronWork{})).value()).runs;
    };
    CHECK(runs(one) == runs(other));
    CHECK_FALSE(runs(one).empty());
  }
}

TEST_CASE("neurons that several drives divide do not stay in memory") {
  FlashOptions options{.choice = NeuronReads::all, .memory = {}, .predictor_rank = {}, .locality = {}};
  options.division = NeuronDivision::neurons;
  CHECK_THROWS_AS(FlashWeights(options, inputs(2)), InternalError);
  options.division = NeuronDivision::layers;
  CHECK_THROWS_AS(InDriveFeedForward(FlashWeights(options, inputs(2)), inputs(2)), InternalError);
}

}  // namespace test_in_drive_feed_forward
