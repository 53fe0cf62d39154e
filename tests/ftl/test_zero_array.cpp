#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <utility>

#include "base/rng.h"
#include "ftl/core/sparse_array.h"
#include "ftl/core/zero_array.h"
#include "ftl/core/zero_pieces.h"

namespace test_zero_array {

using namespace csdsim;
using namespace csdsim::ftl;

TEST_CASE("an array of zeros is zero whatever memory it gets, small or large, and keeps what is written") {
  const std::size_t size = GENERATE(0u, 1u, 1000u, 1u << 20);
  CAPTURE(size);
  for (int round = 0; round < 3; ++round) {  // memory that was used before
    ZeroArray<std::uint64_t> array(size);
    CHECK(array.size() == size);
    CHECK((array.data() == nullptr) == (size == 0));
    std::uint64_t sum = 0;
    for (const std::uint64_t& v : array) sum |= v;
    CHECK(sum == 0);
    for (std::size_t i = 0; i < size; ++i) array[i] = ~i;
    const ZeroArray<std::uint64_t> moved = std::move(array);
    for (std::size_t i = 0; i < size; ++i) sum |= moved[i] ^ ~i;
    CHECK(sum == 0);
  }
}

TEST_CASE("a sparse array is zero where it was not written, and passes over segments that were never written") {
  constexpr std::uint64_t kSize = (std::uint64_t{5} << 18) + 7, kSegment = std::uint64_t{1} << 18;
  SparseArray<std::uint32_t> array(kSize);
  CHECK(array.next_written(0) >= kSize);
  array[3 * kSegment + 5] = 7;
  array[kSize - 1] = 8;  // in a segment of seven elements
  CHECK(array.get(0) == 0);
  CHECK(array.get(3 * kSegment + 4) == 0);
  CHECK(array.get(3 * kSegment + 5) == 7);
  CHECK(array.get(kSize - 1) == 8);
  CHECK(array.next_written(0) == 3 * kSegment);
  CHECK(array.next_written(4 * kSegment) == 5 * kSegment);
}

TEST_CASE("a sparse array is as a map of what was written, in whatever order, and skips only what was not") {
  const std::uint64_t size = GENERATE(1ULL, 300ULL, 40'000ULL, (5ULL << 18) + 7);
  CAPTURE(size);
  SparseArray<std::uint64_t> array(size);
  std::map<std::uint64_t, std::uint64_t> expected;
  Rng rng(size);
  // The upper part of the array stays unwritten at first.
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t i = rng.below(step < 10'000 ? (size + 1) / 2 : size);
    if (step % 2 == 0) {
      const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(size - i, 1 + rng.below(600)));
      const std::uint64_t value = rng();
      if (rng.below(2) == 0) {
        array[i] = value;
        expected[i] = value;
      } else if (step % 16 == 0) {
        array.set_run(i, value, count);
        for (std::uint32_t n = 0; n < count; ++n) expected[i + n] = value + n;
      }
    }
    const auto found = expected.find(i);
    REQUIRE(array.get(i) == (found == expected.end() ? 0 : found->second));
    const auto next = expected.lower_bound(i);
    REQUIRE(array.next_written(i) <= (next == expected.end() ? size + (1 << 18) : next->first));
    REQUIRE(array.next_written(i) >= i);
  }
  for (const auto& [i, value] : expected) REQUIRE(array.get(i) == value);
}

TEST_CASE("pieces of memory are zero and apart, however many there are and however large") {
  const auto [bytes, pieces] = GENERATE(table<std::size_t, std::uint64_t>(
      {{8, 1}, {8, 600'000}, {1088, 20}, {1088, 5'000}, {100'000, 300}, {5'000'000, 3}}));
  CAPTURE(bytes, pieces);
  ZeroPieces memory(bytes, pieces);
  std::map<std::byte*, std::uint64_t> begins;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    auto* const piece = static_cast<std::byte*>(memory.take());
    REQUIRE(reinterpret_cast<std::uintptr_t>(piece) % 8 == 0);
    REQUIRE((piece[0] == std::byte{} && piece[bytes - 1] == std::byte{}));
    piece[0] = piece[bytes - 1] = std::byte{1};
    REQUIRE(begins.emplace(piece, i).second);
  }
  for (auto piece = begins.begin(); std::next(piece) != begins.end(); ++piece)
    REQUIRE(std::next(piece)->first - piece->first >= static_cast<std::ptrdiff_t>(bytes));
}

}  // namespace test_zero_array
