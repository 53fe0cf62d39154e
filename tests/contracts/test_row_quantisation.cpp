// Rows with few bits per element: sizes, errors, and values that are exact.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "base/rng.h"
#include "contracts/row_quantisation.h"

namespace test_row_quantisation {

using namespace csdsim;

namespace {

std::vector<float> there_and_back(const RowQuantisation& of, const std::vector<float>& values) {
  std::vector<std::byte> row(of.row(values.size(), 2).value, std::byte{0xAA});
  of.quantise(values, row);
  std::vector<float> back(values.size());
  of.dequantise(row, back);
  return back;
}

}  // namespace

TEST_CASE("a row has its integers and a scale of two bytes per group") {
  CHECK(RowQuantisation{.bits = 16, .group = 64}.row(100, 2) == Bytes{200});
  CHECK(RowQuantisation{.bits = 8, .group = 64}.row(128, 2) == Bytes{128 + 2 * 2});
  CHECK(RowQuantisation{.bits = 8, .group = 64}.row(129, 2) == Bytes{129 + 3 * 2});
  CHECK(RowQuantisation{.bits = 4, .group = 32}.row(4096, 2) == Bytes{2048 + 128 * 2});
  CHECK(RowQuantisation{.bits = 4, .group = 10}.row(7, 2) == Bytes{4 + 2});
  CHECK_THROWS_AS((RowQuantisation{.bits = 5, .group = 64}.row(8, 2)), InternalError);
  CHECK_THROWS_AS((RowQuantisation{.bits = 4, .group = 0}.row(8, 2)), InternalError);
}

TEST_CASE("multiples of a scale are exact, and every element keeps its place") {
  for (const std::uint32_t bits : {4u, 8u}) {
    const int most = bits == 4 ? 7 : 127;
    std::vector<float> values;
    for (int i = -most; i <= most; ++i) values.push_back(static_cast<float>(i) * 0.125f);  // an odd number of elements
    CHECK(there_and_back({.bits = bits, .group = 1000}, values) == values);
    // One element per group: the element is the scale times the largest integer, as FP16 has it.
    const std::vector<float> alone = there_and_back({.bits = bits, .group = 1}, {7.0f, -14.0f, 0.0f});
    CHECK(alone[0] == Approx(7).epsilon(1e-3));
    CHECK(alone[1] == Approx(-14).epsilon(1e-3));
    CHECK(alone[2] == 0);
  }
}

TEST_CASE("errors are at most half a step of the group's scale") {
  const std::uint64_t seed = GENERATE(take(20, random(1, 1'000'000)));
  CAPTURE(seed);
  Rng rng(seed, "rows");
  for (const std::uint32_t bits : {4u, 8u})
    for (const std::uint32_t group : {1u, 3u, 64u, 500u}) {
      const RowQuantisation of{.bits = bits, .group = group};
      std::vector<float> values(1 + rng.below(300));
      for (float& value : values) value = static_cast<float>((rng.unit() - 0.5) * std::pow(10, 3 * rng.unit() - 2));
      const std::vector<float> back = there_and_back(of, values);
      for (std::size_t first = 0; first < values.size(); first += group) {
        const std::size_t end = std::min<std::size_t>(first + group, values.size());
        float largest = 0;
        for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
        const float step = largest / (bits == 4 ? 7.0f : 127.0f);
        // The scale is rounded to FP16, also a subnormal one, which the largest integers multiply.
        const float bound = step / 2 + largest * 0x1p-10f + 127 * 0x1p-25f;
        for (std::size_t i = first; i < end; ++i) CHECK(std::abs(back[i] - values[i]) <= bound);
      }
    }
}

TEST_CASE("the values of rows give rows back that stand for them") {
  const std::uint64_t seed = GENERATE(take(20, random(1, 1'000'000)));
  CAPTURE(seed);
  Rng rng(seed, "rows");
  for (const std::uint32_t bits : {4u, 8u})
    for (const std::uint32_t group : {1u, 16u, 48u}) {
      const RowQuantisation of{.bits = bits, .group = group};
      // Large, small and subnormal scales.
      const double size = std::pow(10, 12 * rng.unit() - 8);
      std::vector<float> values(96);
      for (float& value : values) value = rng.below(8) == 0 ? 0.0f : static_cast<float>((rng.unit() - 0.5) * size);
      std::vector<std::byte> row(of.row(values.size(), 2).value), back(row.size());
      std::vector<Half> made(values.size()), again(values.size());
      of.quantise(values, row);
      dequantise_rows(of, row, values.size(), made);
      of.restore(made, back);
      dequantise_rows(of, back, values.size(), again);
      CHECK(again == made);
    }
  std::vector<std::byte> row(RowQuantisation{.bits = 4, .group = 4}.row(4, 2).value);
  const std::vector<Half> others{float_to_half(7), float_to_half(1.5F), float_to_half(2), float_to_half(3)};
  CHECK_THROWS_AS((RowQuantisation{.bits = 4, .group = 4}.restore(others, row)), InternalError);
}

}  // namespace test_row_quantisation
