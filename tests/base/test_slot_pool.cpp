#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "base/slot_pool.h"

namespace test_slot_pool {

using namespace csdsim;

TEST_CASE("slots are numbered from 0, and the one that came free last is taken first") {
  SlotPool<int> pool;
  CHECK(pool.put(10) == 0);
  CHECK(pool.put(11) == 1);
  CHECK(pool.put(12) == 2);
  CHECK(pool.in_use() == 3);
  CHECK(pool.release(1) == 11);
  pool.give_back(0);
  CHECK(pool.in_use() == 1);
  CHECK(pool.take() == 0);
  CHECK(pool[0] == 10);  // as it was left
  CHECK(pool.put(13) == 1);
  CHECK(pool.put(14) == 3);
  CHECK(pool[1] == 13);
  CHECK(pool[2] == 12);
}

TEST_CASE("a released slot gives what it held away") {
  SlotPool<std::unique_ptr<int>> pool;
  const auto slot = pool.put(std::make_unique<int>(5));
  const std::unique_ptr<int> held = pool.release(slot);
  REQUIRE(held != nullptr);
  CHECK(*held == 5);
  CHECK(pool.in_use() == 0);
}

}  // namespace test_slot_pool
