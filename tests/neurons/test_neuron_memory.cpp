// The matrix of neurons against a std::map, and its costs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/features/neurons/model/neuron_memory.h"
#include "host_runtime/core/features/neurons/model/neuron_window.h"

namespace test_neuron_memory {

using namespace csdsim;
using namespace csdsim::host;

namespace {

using Neurons = std::vector<std::uint32_t>;

/// The rows as a user of the memory keeps them: it does what the updates say, and nothing else.
struct Matrix {
  std::vector<std::uint32_t> rows;

  explicit Matrix(std::uint32_t size) : rows(size, ~0U) {}
  void apply(const NeuronMemory::Update& update) {
    for (const auto& move : update.moves) rows.at(move.to) = rows.at(move.from);
    for (const auto& placed : update.placed) rows.at(placed.row) = placed.neuron;
  }
};

Neurons random_subset(Rng& rng, std::uint32_t neurons, std::uint64_t most) {
  std::set<std::uint32_t> chosen;
  for (std::uint64_t i = rng.below(most + 1); i > 0; --i) chosen.insert(static_cast<std::uint32_t>(rng.below(neurons)));
  return {chosen.begin(), chosen.end()};
}

}  // namespace

TEST_CASE("the last row moves into the hole, from the highest hole to the lowest", "[neurons]") {
  NeuronMemory memory(10, 6);
  memory.update(Neurons{0, 1, 2, 3, 4, 5}, {});
  const auto& update = memory.update(Neurons{7}, Neurons{1, 4});
  REQUIRE(update.moves.size() == 2);
  CHECK((update.moves[0].from == 5 && update.moves[0].to == 4));
  CHECK((update.moves[1].from == 4 && update.moves[1].to == 1));
  REQUIRE(update.placed.size() == 1);
  CHECK((update.placed[0].neuron == 7 && update.placed[0].row == 4));
  CHECK(memory.used() == 5);
  CHECK(memory.row_of(5) == 1);
  CHECK_FALSE(memory.contains(4));
}

TEST_CASE("a full memory evicts the neurons whose last use is oldest", "[neurons]") {
  NeuronMemory memory(10, 3);
  memory.update(Neurons{1, 2, 3}, {});
  memory.update(Neurons{1}, {});
  CHECK(memory.update(Neurons{8}, {}).evicted == Neurons{2});
  CHECK(memory.update(Neurons{3, 9}, {}).evicted == Neurons{1});
  CHECK(memory.contains(8));
  CHECK(memory.contains(3));
  // 8 was evicted before it left the window.
  CHECK(memory.update(Neurons{4, 5, 6}, {}).evicted == Neurons{8, 3, 9});
  CHECK(memory.update(Neurons{4}, Neurons{8}).moves.empty());
}

TEST_CASE("more active neurons than rows are refused and change nothing", "[neurons]") {
  NeuronMemory memory(10, 2);
  memory.update(Neurons{3, 4}, {});
  CHECK_THROWS_WITH(memory.update(Neurons{5, 6, 7}, Neurons{3}),
                    "3 neurons of a layer are active at a time, but there is memory for 2");
  CHECK(memory.used() == 2);
  CHECK(memory.contains(3));
  CHECK_THROWS_AS(memory.update(Neurons{3}, Neurons{3}), InternalError);
  CHECK_THROWS_AS(NeuronMemory(4, 0), UserError);
  CHECK_THROWS_AS(memory.row_of(5), InternalError);
  CHECK_THROWS_AS(memory.neuron_at(2), InternalError);
}

TEST_CASE("a million random steps leave the same contents as a std::map", "[neurons]") {
  const std::uint64_t seed = GENERATE(1, 2, 3, 4);
  CAPTURE(seed);
  Rng rng(seed, "neuron memory");
  const auto neurons = static_cast<std::uint32_t>(20 + rng.below(100));
  const auto rows = static_cast<std::uint32_t>(5 + rng.below(neurons));
  NeuronMemory memory(neurons, rows);
  Matrix matrix(memory.rows());
  std::map<std::uint32_t, std::uint64_t> last_use;  // the neurons in memory

  for (std::uint64_t step = 0; step < 250'000; ++step) {
    const Neurons active = random_subset(rng, neurons, std::min<std::uint64_t>(memory.rows(), 8));
    Neurons drop;
    for (const std::uint32_t neuron : random_subset(rng, neurons, 6))
      if (!std::binary_search(active.begin(), active.end(), neuron)) drop.push_back(neuron);

    const std::uint32_t before = memory.used();
    const auto& update = memory.update(active, drop);
    matrix.apply(update);

    std::size_t dropped = 0;
    for (const std::uint32_t neuron : drop) dropped += last_use.erase(neuron);
    for (const std::uint32_t neuron : update.evicted) {
      // No other neuron in memory has an older use, the active ones aside.
      REQUIRE(last_use.contains(neuron));
      const std::uint64_t use = last_use[neuron];
      last_use.erase(neuron);
      for (const auto& [other, other_use] : last_use)
        REQUIRE((other_use >= use || std::binary_search(active.begin(), active.end(), other)));
    }
    for (const std::uint32_t neuron : active) last_use[neuron] = step;

    // O(dropped): no more moves than rows that were freed.
    REQUIRE(update.moves.size() <= dropped + update.evicted.size());
    REQUIRE(memory.used() == last_use.size());
    REQUIRE(memory.used() == before - dropped - update.evicted.size() + update.placed.size());
    if (!update.evicted.empty()) REQUIRE(memory.used() == memory.rows());
    if (step % 16 != 0) continue;
    std::uint32_t row = 0;
    for (; row < memory.used(); ++row) {
      REQUIRE(memory.row_of(memory.neuron_at(row)) == row);
      REQUIRE(matrix.rows[row] == memory.neuron_at(row));
      REQUIRE(last_use.contains(memory.neuron_at(row)));
    }
    for (std::uint32_t neuron = 0; neuron < neurons; ++neuron)
      REQUIRE(memory.contains(neuron) == last_use.contains(neuron));
  }
}

TEST_CASE("the memory holds exactly the window where it has room", "[neurons]") {
  Rng rng(7, "window and memory");
  NeuronWindow window(64, 4);
  NeuronMemory memory(64, 64);
  for (int step = 0; step < 20'000; ++step) {
    const Neurons active = random_subset(rng, 64, 10);
    const auto& change = window.step(active);
    const auto& update = memory.update(active, change.drop);
    REQUIRE(update.evicted.empty());
    REQUIRE(update.placed.size() == change.load.size());
    REQUIRE(memory.used() == window.size());
    for (std::uint32_t neuron = 0; neuron < 64; ++neuron) REQUIRE(memory.contains(neuron) == window.contains(neuron));
  }
}

}  // namespace test_neuron_memory
