// Callables without allocation, and the queue that keeps its memory.
#include <catch2/catch.hpp>

#include <array>
#include <deque>
#include <functional>
#include <memory>

#include "base/callback.h"
#include "base/ring_queue.h"
#include "base/rng.h"

namespace test_callback {

using namespace csdsim;

namespace {

/// Counts the copies of itself that are alive.
struct Counted {
  int* alive;
  explicit Counted(int& n) : alive(&n) { ++n; }
  Counted(Counted&& o) noexcept : alive(o.alive) { ++*alive; }
  Counted(const Counted&) = delete;
  ~Counted() { --*alive; }
};

}  // namespace

TEST_CASE("a callback calls what it was made from, small or large, copyable or not") {
  int sum = 0;
  Callback<int(int)> small = [&sum](int x) { return sum += x; };
  CHECK(small(3) == 3);
  CHECK(small(4) == 7);
  std::array<int, 100> large{};
  large[99] = 5;
  Callback<int(int)> allocated = [large](int x) { return large[99] + x; };
  CHECK(allocated(1) == 6);
  Callback<int(int)> owner = [held = std::make_unique<int>(8)](int x) { return *held + x; };
  Callback<int(int)> moved = std::move(owner);
  CHECK(moved(1) == 9);
  CHECK_FALSE(owner);
  CHECK(moved);
}

TEST_CASE("an empty function makes an empty callback") {
  CHECK_FALSE(Callback<void()>());
  CHECK_FALSE(Callback<void()>(nullptr));
  CHECK_FALSE(Callback<void()>(std::function<void()>()));
  CHECK(Callback<void()>([] {}) != nullptr);
}

TEST_CASE("what a callback holds is destroyed once") {
  int alive = 0;
  {
    Callback<void()> a = [held = Counted(alive)] {};
    CHECK(alive == 1);
    Callback<void()> b = std::move(a);
    CHECK(alive == 1);
    a = std::move(b);
    CHECK(alive == 1);
    a = [held = Counted(alive), more = std::array<char, 64>{}] {};
    CHECK(alive == 1);
    a = nullptr;
    CHECK(alive == 0);
    b = [held = Counted(alive)] {};
  }
  CHECK(alive == 0);
}

TEST_CASE("a ring queue is a queue") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  INFO("seed " << seed);
  Rng rng(seed, "ring_queue");
  RingQueue<std::uint64_t> ring;
  std::deque<std::uint64_t> oracle;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    if (!oracle.empty() && rng.below(100) < (i / 2'000 % 2 == 0 ? 40U : 60U)) {
      REQUIRE(ring.front() == oracle.front());
      ring.pop_front();
      oracle.pop_front();
    } else {
      ring.push_back(i);
      oracle.push_back(i);
    }
    REQUIRE(ring.size() == oracle.size());
    if (oracle.empty()) continue;
    REQUIRE(ring.back() == oracle.back());
    const auto at = static_cast<std::size_t>(rng.below(oracle.size()));
    REQUIRE(ring[at] == oracle[at]);
  }
}

}  // namespace test_callback
