// The neurons that are in memory, and the work of operations that depends on them.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/features/neurons/flash_neurons.h"
#include "tests/support/planner_support.h"

namespace test_flash_neurons {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;
using Catch::Matchers::Contains;

namespace {

/// Options for small_model(), whose layers have 256 neurons; a row is 64 elements, 128 B.
FlashOptions options() {
  return {.choice = NeuronReads::predicted, .memory_share = {1, 1}, .memory = {}, .predictor_rank = {}, .locality = {}};
}

FlashWeights weights_of(const FlashOptions& of) {
  return {of, {.model = small_model(), .workload = {}, .block_size = {512}}};
}

OpTag decode_tag(std::uint32_t layer, std::uint32_t sequences = 1) {
  std::vector<StepSequence> all;
  for (std::uint32_t i = 0; i < sequences; ++i) all.push_back({SequenceId{i}, 9, 1});
  return {.phase = Phase::decode,
          .step = 0,
          .layer = LayerId{layer},
          .mini_batch = {},
          .sequences = std::make_shared<const std::vector<StepSequence>>(std::move(all))};
}

Operation op_of(OpKind kind, Work work, std::uint32_t layer = 0) {
  return {.id = {}, .kind = kind, .resource = {}, .tag = decode_tag(layer, 2), .deps = {}, .work = std::move(work)};
}

}  // namespace

TEST_CASE("the work of a step follows from its neurons: closed forms") {
  for (const RecordLayout layout : {RecordLayout::bundled, RecordLayout::rows}) {
    FlashOptions of = options();
    of.layout = layout;
    of.window = 2;
    of.chunk = Bytes{512};
    FlashNeurons neurons(weights_of(of));
    const LayerId layer{2};
    neurons.step(layer, std::vector<std::uint32_t>{3, 10, 200});
    CHECK(neurons.latest(layer).in_memory() == 3);
    neurons.step(layer, std::vector<std::uint32_t>{10, 11});
    CHECK(neurons.latest(layer).update.placed.size() == 1);
    neurons.step(layer, std::vector<std::uint32_t>{11, 40, 41});
    // 3 and 200 have left the window of two tokens: 10 and 11 stay.
    const NeuronStep& step = neurons.latest(layer);
    CHECK(step.kept == 2);
    CHECK(step.in_memory() == 4);
    CHECK(neurons.loaded() == 3 + 1 + 2);
    const auto work = [&](OpKind kind, Work planned) { return neurons.resolve(op_of(kind, std::move(planned), 2)); };
    const auto blocks =
        std::get<BlockWork>(*work(OpKind::read_blocks, BlockWork{.outstanding = 7, .block_size = {512}}));
    // A record or a row takes a block of 512 B; a request holds one.
    CHECK(blocks.extents.size() == (layout == RecordLayout::bundled ? 2 : 4));
    CHECK(blocks.outstanding == 7);
    CHECK(moved_bytes(Work{blocks}) == Bytes{512 * blocks.extents.size()});
    CHECK(std::get<LinkWork>(*work(OpKind::transfer, LinkWork{{}, LinkPayload::weights})).bytes == step.read_bytes);
    CHECK_FALSE(work(OpKind::transfer, LinkWork{Bytes{5}, LinkPayload::kv}));
    CHECK(std::get<ComputeWork>(*work(OpKind::insert_records, ComputeWork{})).activations == Bytes{2 * 256 * 2});
    CHECK(std::get<ComputeWork>(*work(OpKind::delete_records, ComputeWork{})).activations ==
          Bytes{2 * 256 * step.update.moves.size()});
    CHECK(std::get<ComputeWork>(*work(OpKind::feed_forward, ComputeWork{})) == small_model().feed_forward(2, 4));
    CHECK(std::get<ComputeWork>(*work(OpKind::partial_feed_forward, ComputeWork{})) ==
          small_model().feed_forward(2, 2));
    CHECK_FALSE(work(OpKind::sample, ComputeWork{}));
    // The prompt does not depend on it.
    Operation prompt = op_of(OpKind::feed_forward, ComputeWork{}, 2);
    prompt.tag.phase = Phase::prefill;
    CHECK_FALSE(neurons.resolve(prompt));
    CHECK_THROWS_AS(neurons.latest(LayerId{1}), InternalError);
  }
}

TEST_CASE("with overlap, the second part of the network runs over the new neurons") {
  FlashOptions of = options();
  of.overlap_flash = true;
  FlashNeurons neurons(weights_of(of));
  neurons.step(LayerId{0}, std::vector<std::uint32_t>{1, 2, 3});
  neurons.step(LayerId{0}, std::vector<std::uint32_t>{3, 4});
  CHECK(std::get<ComputeWork>(*neurons.resolve(op_of(OpKind::partial_feed_forward, ComputeWork{}))) ==
        small_model().feed_forward(2, 3));
  CHECK(std::get<ComputeWork>(*neurons.resolve(op_of(OpKind::feed_forward, ComputeWork{}))) ==
        small_model().feed_forward(2, 1));
}

TEST_CASE("without a window nothing stays in memory; without room the oldest neurons leave, or the step is refused") {
  FlashOptions of = options();
  of.window = 0;
  FlashNeurons without(weights_of(of));
  without.step(LayerId{0}, std::vector<std::uint32_t>{1, 2});
  without.step(LayerId{0}, std::vector<std::uint32_t>{1, 2, 5});
  CHECK(without.latest(LayerId{0}).kept == 0);
  CHECK(without.latest(LayerId{0}).update.placed.size() == 3);
  CHECK(without.latest(LayerId{0}).update.moves.empty());

  of.window = 5;
  of.memory_share = Ratio::of(4, 256);
  FlashNeurons tight(weights_of(of));
  tight.step(LayerId{0}, std::vector<std::uint32_t>{1, 2, 3});
  tight.step(LayerId{0}, std::vector<std::uint32_t>{2, 7, 8});
  CHECK(tight.latest(LayerId{0}).update.evicted.size() == 1);
  CHECK(tight.latest(LayerId{0}).in_memory() == 4);
  CHECK_THROWS_WITH(tight.step(LayerId{0}, std::vector<std::uint32_t>{1, 2, 3, 4, 5}),
                    Contains("system.memory_share") && Contains("5 neurons of layer 0") && Contains("room for 4"));
}

TEST_CASE("steps that are skipped leave the neurons that they would have left") {
  FlashOptions of = options();
  of.locality = {.active = 0.2, .concentration = 1, .persistence = 0.5};
  ModelledNeurons one(weights_of(of), 7), other(weights_of(of), 7);
  for (std::uint32_t step = 0; step < 6; ++step)
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      Operation op = op_of(OpKind::select_neurons, ComputeWork{}, layer);
      CHECK_FALSE(one.resolve(op));
    }
  other.skip_to(4, 3, 2);
  other.skip_to(6, 3, 2);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    CHECK(one.neurons()->latest(LayerId{layer}).active == other.neurons()->latest(LayerId{layer}).active);
    CHECK(one.neurons()->latest(LayerId{layer}).reads.size() == other.neurons()->latest(LayerId{layer}).reads.size());
  }
  CHECK(one.neurons()->loaded() == other.neurons()->loaded());
  // Another seed, other neurons.
  ModelledNeurons third(weights_of(of), 8);
  third.skip_to(6, 3, 2);
  CHECK(third.neurons()->latest(LayerId{0}).active != one.neurons()->latest(LayerId{0}).active);
}

}  // namespace test_flash_neurons
