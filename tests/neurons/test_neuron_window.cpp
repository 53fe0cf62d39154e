// The sliding window against its definition: the union of the last k active sets.
#include <catch2/catch.hpp>
#include <deque>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/features/neurons/model/neuron_window.h"

namespace test_neuron_window {

using namespace csdsim;
using namespace csdsim::host;

namespace {

using Neurons = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a window loads and drops the difference of unions", "[neurons]") {
  const std::uint32_t tokens = GENERATE(1, 2, 5, 17);
  CAPTURE(tokens);
  Rng rng(tokens, "neuron window");
  NeuronWindow window(40, tokens);
  std::deque<Neurons> last;
  std::set<std::uint32_t> held;
  for (int step = 0; step < 5'000; ++step) {
    std::set<std::uint32_t> active;
    for (std::uint64_t i = rng.below(12); i > 0; --i) active.insert(static_cast<std::uint32_t>(rng.below(40)));
    const auto& change = window.step(Neurons(active.begin(), active.end()));

    last.emplace_back(active.begin(), active.end());
    if (last.size() > tokens) last.pop_front();
    std::set<std::uint32_t> now;
    for (const Neurons& of : last) now.insert(of.begin(), of.end());
    Neurons load, drop;
    for (const std::uint32_t n : now)
      if (!held.contains(n)) load.push_back(n);
    for (const std::uint32_t n : held)
      if (!now.contains(n)) drop.push_back(n);
    REQUIRE(change.load == load);
    REQUIRE(change.drop == drop);
    REQUIRE(window.size() == now.size());
    held = now;
  }
}

TEST_CASE("a window of no tokens is refused", "[neurons]") {
  CHECK_THROWS_WITH(NeuronWindow(8, 0), "a window of 0 tokens keeps no neurons, must be at least 1");
}

}  // namespace test_neuron_window
