#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/fp16.h"

namespace test_fp16 {

using namespace csdsim;

TEST_CASE("every half survives the round trip through float") {
  for (std::uint32_t h = 0; h <= 0xFFFF; ++h) {
    const float f = half_to_float(static_cast<Half>(h));
    if (std::isnan(f)) {
      REQUIRE(std::isnan(half_to_float(float_to_half(f))));
    } else {
      REQUIRE(float_to_half(f) == h);
    }
  }
}

TEST_CASE("narrowing agrees with the compiler's _Float16 at and around every midpoint") {
  for (std::uint32_t h = 0; h < 0x7C00; ++h) {
    const float lo = half_to_float(static_cast<Half>(h));
    const float hi = h + 1 == 0x7C00 ? 65536.0f : half_to_float(static_cast<Half>(h + 1));
    const float mid = lo + (hi - lo) / 2;
    for (float f : {std::nextafter(mid, 0.0f), mid, std::nextafter(mid, 1e9f)}) {
      REQUIRE(half_to_float(float_to_half(f)) == static_cast<float>(static_cast<_Float16>(f)));
      REQUIRE(half_to_float(float_to_half(-f)) == static_cast<float>(static_cast<_Float16>(-f)));
    }
  }
  CHECK(std::isinf(half_to_float(float_to_half(std::numeric_limits<float>::infinity()))));
}

}  // namespace test_fp16
