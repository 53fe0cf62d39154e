#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "base/quantity.h"
#include "base/rng.h"

namespace test_quantity {

using namespace csdsim;

TEST_CASE("every unit is what it says") {
  CHECK(parse_time("1 ps").ps == 1);
  CHECK(parse_time("1 ns").ps == 1'000);
  CHECK(parse_time("50 us").ps == 50'000'000);
  CHECK(parse_time("50 \u00b5s").ps == 50'000'000);       // micro sign
  CHECK(parse_time("50\u00a0\u03bcs").ps == 50'000'000);  // Greek mu behind a no-break space
  CHECK(parse_time("50\u202fus").ps == 50'000'000);
  CHECK(parse_time("3 ms").ps == 3'000'000'000);
  CHECK(parse_time("2 s").ps == 2'000'000'000'000);
  CHECK(parse_time("1 min").ps == 60'000'000'000'000);
  CHECK(parse_bytes("7 B").value == 7);
  CHECK(parse_bytes("1 kB").value == 1'000);
  CHECK(parse_bytes("1 MB").value == 1'000'000);
  CHECK(parse_bytes("1 GB").value == 1'000'000'000);
  CHECK(parse_bytes("1 TB").value == 1'000'000'000'000);
  CHECK(parse_bytes("4 KiB").value == 4'096);
  CHECK(parse_bytes("4 MiB").value == 4'194'304);
  CHECK(parse_bytes("4 GiB").value == 4'294'967'296);
  CHECK(parse_bytes("4 TiB").value == 4'398'046'511'104);
  CHECK(parse_bandwidth("9 B/s").bytes_per_second == 9);
  CHECK(parse_bandwidth("9 kB/s").bytes_per_second == 9'000);
  CHECK(parse_bandwidth("700 MB/s").bytes_per_second == 700'000'000);
  CHECK(parse_bandwidth("1.4 GB/s").bytes_per_second == 1'400'000'000);
  CHECK(parse_bandwidth("1 TB/s").bytes_per_second == 1'000'000'000'000);
  CHECK(parse_bandwidth("1 KiB/s").bytes_per_second == 1'024);
  CHECK(parse_bandwidth("1 MiB/s").bytes_per_second == 1'048'576);
  CHECK(parse_bandwidth("1 GiB/s").bytes_per_second == 1'073'741'824);
  CHECK(parse_bandwidth("8 Mb/s").bytes_per_second == 1'000'000);
  CHECK(parse_bandwidth("10 Gb/s").bytes_per_second == 1'250'000'000);
  CHECK(parse_frequency("1 Hz").hertz == 1);
  CHECK(parse_frequency("1 kHz").hertz == 1'000);
  CHECK(parse_frequency("285 MHz").hertz == 285'000'000);
  CHECK(parse_frequency("1.5 GHz").hertz == 1'500'000'000);
  CHECK(parse_compute_rate("1 MFLOPS").flop_per_second == 1'000'000);
  CHECK(parse_compute_rate("1 GFLOPS").flop_per_second == 1'000'000'000);
  CHECK(parse_compute_rate("154.8 TFLOPS").flop_per_second == 154'800'000'000'000);
  CHECK(parse_compute_rate("1 PFLOPS").flop_per_second == 1'000'000'000'000'000);
  CHECK(parse_energy("1 fJ").femtojoules == 1);
  CHECK(parse_energy("1.5 pJ").femtojoules == 1'500);
  CHECK(parse_energy("1 nJ").femtojoules == 1'000'000);
  CHECK(parse_energy("1 uJ").femtojoules == 1'000'000'000);
  CHECK(parse_energy("1 mJ").femtojoules == 1'000'000'000'000);
  CHECK(parse_energy("2 J").joules() == 2);
  CHECK(parse_power("1 nW").nanowatts == 1);
  CHECK(parse_power("33 uW").nanowatts == 33'000);
  CHECK(parse_power("82.5 mW").nanowatts == 82'500'000);
  CHECK(parse_power("1.5 W").watts() == 1.5);
  CHECK(parse_power("1 kW").watts() == Approx(1000));
}

TEST_CASE("decimals are exact where doubles are not") {
  CHECK(parse_time("0.1 ns").ps == 100);
  CHECK(parse_time("2.925715 us").ps == 2'925'715);
  CHECK(parse_time("4.35 ns").ps == 4'350);  // 4.35 * 1000 is 4349.999... in doubles
  CHECK(parse_bandwidth("6.459 GB/s").bytes_per_second == 6'459'000'000);
  CHECK(parse_time("9223372.036854775807 s").ps == std::numeric_limits<std::int64_t>::max());
  CHECK(parse_count("18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
  CHECK(parse_count("1e6") == 1'000'000);
  CHECK(parse_count("1.5e3") == 1'500);
  CHECK(parse_count("0") == 0);
  CHECK(parse_time("50us").ps == 50'000'000);
  CHECK(parse_time("  50   us ").ps == 50'000'000);
  CHECK(parse_time("0.000 us").ps == 0);
}

TEST_CASE("ratios are fractions") {
  CHECK(parse_ratio("1/8") == Ratio{1, 8});
  CHECK(parse_ratio("2 / 16") == Ratio{1, 8});
  CHECK(parse_ratio("0.07") == Ratio{7, 100});
  CHECK(parse_ratio("0.125") == Ratio{1, 8});
  CHECK(parse_ratio("1") == Ratio{1, 1});
  CHECK(parse_ratio("1e-3") == Ratio{1, 1000});
  CHECK(parse_ratio("12.5 %") == Ratio{1, 8});
  CHECK(parse_ratio("1%") == Ratio{1, 100});
  CHECK(parse_ratio("300 %") == Ratio{3, 1});
  CHECK(Ratio::of(1, 3).floor_of(10) == 3);
  CHECK(Ratio::of(1, 8).round_of(12) == 2);
  CHECK(Ratio::of(1, 8).round_of(11) == 1);
  CHECK(Ratio::of(7, 100).floor_of(std::uint64_t{1} << 60) == 80704505322479288);
  CHECK(Ratio::of(1, 8) < Ratio::of(1, 7));
  for (const char* bad : {"", "1/0", "1/", "/8", "1/8/2", "-1/8", "0.1/2", "a", "1 % %", "1/8 %", "01/8", "1/08"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_ratio(bad), UserError);
  }
}

TEST_CASE("what is no quantity is refused with what would be right") {
  CHECK_THROWS_WITH(parse_time("50"), "'50' has no unit: write a time such as 50 us");
  CHECK_THROWS_WITH(parse_time("0"), "'0' has no unit: write a time such as 50 us");
  CHECK_THROWS_WITH(parse_time("50 us us"), Catch::Contains("'us us', which is not one of a time"));
  CHECK_THROWS_WITH(parse_time("-5 us"), "'-5 us' is negative");
  CHECK_THROWS_WITH(parse_time("050 us"), Catch::Contains("starts with a zero"));
  CHECK_THROWS_WITH(parse_time("1.5 ps"), "'1.5 ps' is not a whole number of picoseconds");
  CHECK_THROWS_WITH(parse_time("9223372.036854775808 s"), Catch::Contains("is too large"));
  CHECK_THROWS_WITH(parse_bytes("4 KB"), "'4 KB' is ambiguous: write kB for 1000 or KiB for 1024");
  CHECK_THROWS_WITH(parse_bandwidth("4 KB/s"), "'4 KB/s' is ambiguous: write kB/s for 1000 or KiB/s for 1024");
  CHECK_THROWS_WITH(parse_bandwidth("3 Mb/s x"), Catch::Contains("not one of a bandwidth"));
  CHECK_THROWS_WITH(parse_count("18446744073709551616"), Catch::Contains("is too large"));
  CHECK_THROWS_WITH(parse_count("16K"), Catch::Contains("write 16000 or 16384"));
  CHECK_THROWS_WITH(parse_count("1.5k"), Catch::Contains("write 1500 or 1536"));
  CHECK_THROWS_WITH(parse_count("1e400"), Catch::Contains("exponent beyond 60"));
  CHECK_THROWS_WITH(parse_count("1e50"), Catch::Contains("is too large"));
  CHECK_THROWS_WITH(parse_count("123456789012345678901"), Catch::Contains("more than 20 digits"));
  for (const char* bad :
       {"", " ", "us", ".5", "5.", "1,000", "0x10", "1_000", "+5", "nan", ".inf", "1e", "8.5", "1e-1"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_count(bad), UserError);
  }
}

TEST_CASE("quantities are written in the unit that people use") {
  CHECK(format_quantity(SimTime::microseconds(50)) == "50 us");
  CHECK(format_quantity(SimTime{2'925'715}) == "2925.715 ns");
  CHECK(format_quantity(SimTime{-1500}) == "-1.5 ns");
  CHECK(format_quantity(Bytes::kib(4)) == "4 KiB");
  CHECK(format_quantity(Bytes{64'000'000'000}) == "64 GB");
  CHECK(format_quantity(Bytes{4000}) == "4 kB");
  CHECK(format_quantity(Bytes{0}) == "0 B");
  CHECK(format_quantity(Bandwidth{7'876'000'000}) == "7.876 GB/s");
  CHECK(format_quantity(Frequency{285'000'000}) == "285 MHz");
  CHECK(format_quantity(ComputeRate{155'000'000'000'000}) == "155 TFLOPS");
  CHECK(format_quantity(ComputeRate{1'234'567}) == "1.234567 MFLOPS");
  CHECK(format_quantity(Ratio::of(1, 8)) == "0.125");
  CHECK(format_quantity(Ratio::of(1, 3)) == "1/3");
  CHECK(format_quantity(Ratio{1, 1}) == "1");
}

TEST_CASE("what is written reads back to the same value") {
  constexpr std::uint64_t kSeed = 3;
  INFO("seed " << kSeed);
  Rng rng(kSeed);
  for (int i = 0; i < 20'000; ++i) {
    std::uint64_t v = rng.next() >> rng.below(63);
    if (rng.below(2)) v = v / 1'000'000 * 1'000'000;
    INFO(v);
    const auto time = static_cast<std::int64_t>(v >> 1);
    REQUIRE(parse_time(format_quantity(SimTime{time})).ps == time);
    REQUIRE(parse_bytes(format_quantity(Bytes{v})).value == v);
    REQUIRE(parse_bandwidth(format_quantity(Bandwidth{v})).bytes_per_second == v);
    REQUIRE(parse_frequency(format_quantity(Frequency{v})).hertz == v);
    REQUIRE(parse_compute_rate(format_quantity(ComputeRate{v})).flop_per_second == v);
    const Ratio ratio = Ratio::of(v, 1 + rng.below(2000));
    REQUIRE(parse_ratio(format_quantity(ratio)) == ratio);
  }
}

}  // namespace test_quantity
