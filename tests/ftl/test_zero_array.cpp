#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>

#include "ftl/core/sparse_array.h"
#include "ftl/core/zero_array.h"

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

}  // namespace test_zero_array
