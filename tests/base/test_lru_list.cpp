// The one list of least recently used slots, against a std::list.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <list>
#include <vector>

#include "base/lru_list.h"
#include "base/rng.h"

namespace test_lru_list {

using namespace csdsim;

TEST_CASE("lists that share links hold their slots in the order of use") {
  Rng rng(1, "slots of two lists");
  constexpr std::uint32_t kSlots = 12;
  LruLinks links;
  LruList lists[2];
  std::list<std::uint32_t> models[2];  // the newest first
  std::vector<int> in(kSlots, -1);
  for (int step = 0; step < 4000; ++step) {
    CAPTURE(step);
    const auto slot = static_cast<std::uint32_t>(rng.below(kSlots));
    if (in[slot] < 0) {
      in[slot] = static_cast<int>(rng.below(2));
      links.cover(slot);
      lists[in[slot]].push_newest(links, slot);
      models[in[slot]].push_front(slot);
    } else if (rng.below(3) == 0) {
      lists[in[slot]].remove(links, slot);
      models[in[slot]].remove(slot);
      in[slot] = -1;
    } else {
      lists[in[slot]].to_newest(links, slot);
      models[in[slot]].remove(slot);
      models[in[slot]].push_front(slot);
    }
    for (int i = 0; i < 2; ++i) {
      REQUIRE(lists[i].size() == models[i].size());
      REQUIRE(lists[i].newest() == (models[i].empty() ? kNoSlot : models[i].front()));
      REQUIRE(lists[i].oldest() == (models[i].empty() ? kNoSlot : models[i].back()));
      const auto even = [](std::uint32_t s) { return s % 2 == 0; };
      const auto oldest = std::find_if(models[i].rbegin(), models[i].rend(), even);
      REQUIRE(lists[i].oldest_if(links, even) == (oldest == models[i].rend() ? kNoSlot : *oldest));
    }
  }
}

}  // namespace test_lru_list
