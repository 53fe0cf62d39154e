#include <catch2/catch.hpp>
#include <unordered_map>

#include "base/rng.h"
#include "base/slot_index.h"

namespace test_slot_index {

using namespace csdsim;

TEST_CASE("slots are found by their numbers as in a map, however many come and go") {
  const std::uint64_t seed = GENERATE(1, 2, 3, 4);
  // Few numbers come back often; of many, the table grows.
  const std::uint64_t numbers = GENERATE(20ULL, 3'000ULL, ~0ULL);
  CAPTURE(seed, numbers);
  Rng rng(seed);
  SlotIndex index;
  std::unordered_map<std::uint64_t, std::uint32_t> expected;
  std::vector<std::uint64_t> known;
  for (std::uint32_t step = 0; step < 30'000; ++step) {
    const std::uint64_t number = rng.below(numbers);
    const auto found = expected.find(number);
    REQUIRE(index.find(number) == (found == expected.end() ? SlotIndex::kNone : found->second));
    // The number of entries rises and falls.
    if (rng.below(100) < (step / 5'000 % 2 == 0 ? 70U : 30U)) {
      const auto [entry, added] = expected.try_emplace(number, step);
      if (added) known.push_back(number);
      REQUIRE(index.find_or_insert(number, step) == entry->second);
    } else if (!known.empty()) {
      std::swap(known[rng.below(known.size())], known.back());
      index.erase(known.back());
      expected.erase(known.back());
      known.pop_back();
    }
    REQUIRE(index.empty() == expected.empty());
  }
  for (const auto& [number, slot] : expected) REQUIRE(index.find(number) == slot);
}

}  // namespace test_slot_index
