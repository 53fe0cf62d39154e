#include <catch2/catch.hpp>

#include "report/text.h"

namespace test_text {

using csdsim::report::short_number;

TEST_CASE("numbers have four digits, and from 100,000 on a prefix with at most three before the point") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(0.0123) == "0.012300");
  CHECK(short_number(8.71) == "8.710");
  CHECK(short_number(54073) == "54073");
  CHECK(short_number(165'700) == "165.7 k");
  CHECK(short_number(1'171'000) == "1.171 M");
  CHECK(short_number(999'949) == "999.9 k");
  CHECK(short_number(999'999) == "1.000 M");
  CHECK(short_number(46'883'000) == "46.88 M");
  CHECK(short_number(40.682e12) == "40.68 T");
  CHECK(short_number(-40.682e12) == "-40.68 T");
}

}  // namespace test_text
