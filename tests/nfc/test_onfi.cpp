#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "nfc/core/onfi.h"

namespace test_onfi {

using namespace csdsim;
using namespace csdsim::nfc;

namespace {

/// Bytes a second of an 8-bit bus with `per_period` transfers in `picoseconds`.
double bytes_per_second(double per_period, double picoseconds) { return per_period / (picoseconds * 1e-12); }

/// Data periods of the specifications, in ps: tRC of SDR, tCK of NV-DDR, tRC/tDSC of the rest.
const std::map<std::string, double> kPeriods{
    {"onfi-sdr-10", 100'000},
    {"onfi-sdr-20", 50'000},
    {"onfi-sdr-29", 35'000},
    {"onfi-sdr-33", 30'000},
    {"onfi-sdr-40", 25'000},
    {"onfi-sdr-50", 20'000},
    {"onfi-nvddr-40", 50'000},
    {"onfi-nvddr-67", 30'000},
    {"onfi-nvddr-100", 20'000},
    {"onfi-nvddr-133", 15'000},
    {"onfi-nvddr-167", 12'000},
    {"onfi-nvddr-200", 10'000},
    {"onfi-nvddr2-67", 30'000},
    {"onfi-nvddr2-80", 25'000},
    {"onfi-nvddr2-133", 15'000},
    {"onfi-nvddr2-167", 12'000},
    {"onfi-nvddr2-200", 10'000},
    {"onfi-nvddr2-267", 7'500},
    {"onfi-nvddr2-333", 6'000},
    {"onfi-nvddr2-400", 5'000},
    {"onfi-nvddr2-533", 3'750},
    {"onfi-nvddr3-533", 3'750},
    {"onfi-nvddr3-667", 3'000},
    {"onfi-nvddr3-800", 2'500},
    {"onfi-nvddr3-1067", 1'875},
    {"onfi-nvddr3-1200", 1'666.67},
    {"onfi-nvddr3-1333", 1'500},
    {"onfi-nvddr3-1467", 1'363.6},
    {"onfi-nvddr3-1600", 1'250},
    {"onfi-nvddr3-1800", 1'111.1},
    {"onfi-nvddr3-2000", 1'000},
    {"onfi-nvddr3-2200", 909.09},
    {"onfi-nvddr3-2400", 833.33},
    {"onfi-nvlpddr4-800", 2'500},
    {"onfi-nvlpddr4-1200", 1'666.67},
    {"onfi-nvlpddr4-1600", 1'250},
    {"onfi-nvlpddr4-1800", 1'111.1},
    {"onfi-nvlpddr4-2000", 1'000},
    {"onfi-nvlpddr4-2200", 909.09},
    {"onfi-nvlpddr4-2400", 833.33},
    {"onfi-nvlpddr4-3600", 555.56},
    {"toggle-133", 15'000},
    {"toggle-400", 5'000},
    {"toggle-800", 2'500},
    {"toggle-1000", 2'000},
    {"toggle-1200", 1'666.67},
    {"toggle-1400", 1'428.57},
    {"toggle-2000", 1'000},
    {"toggle-2400", 833.33},
    {"toggle-3200", 625},
    {"toggle-3600", 555.56},
};

}  // namespace

TEST_CASE("the bandwidth of every interface mode is that of its data period, to 0.1 %") {
  CHECK(interface_modes().size() == kPeriods.size());
  std::set<std::string_view> names;
  for (const InterfaceMode& mode : interface_modes()) {
    INFO(mode.name);
    REQUIRE(kPeriods.contains(std::string(mode.name)));
    CHECK(names.insert(mode.name).second);
    const double per_period = mode.name.starts_with("onfi-sdr") ? 1 : 2;
    const double stated = bytes_per_second(per_period, kPeriods.at(std::string(mode.name)));
    const auto bandwidth = static_cast<double>(mode.channel_bandwidth().bytes_per_second);
    CHECK(std::abs(bandwidth / stated - 1) < 1e-3);
    // The name is the rate in MT/s, rounded.
    const std::string number(mode.name.substr(mode.name.rfind('-') + 1));
    CHECK(std::lround(static_cast<double>(mode.transfers) * 1e-6) == std::atol(number.c_str()));
    // A page takes the time that this bandwidth says, to a picosecond.
    const double page = 16384.0 / bandwidth * 1e12;
    CHECK(static_cast<double>(transfer_time(Bytes::kib(16), mode.channel_bandwidth()).ps) ==
          Approx(page).margin(1.001));
    CHECK(find_interface_mode(mode.name) == &mode);
    CHECK_FALSE(mode.source.empty());
  }
  CHECK(find_interface_mode("onfi-nvddr3-801") == nullptr);
}

TEST_CASE("transfers a second are whole numbers, rounded to the nearest") {
  const auto transfers = [](const char* name) { return find_interface_mode(name)->transfers; };
  CHECK(transfers("onfi-sdr-50") == 50'000'000);       // a period of 20 ns
  CHECK(transfers("onfi-nvddr-200") == 200'000'000);   // two in 10 ns
  CHECK(transfers("onfi-nvddr-67") == 66'666'667);     // two in 30 ns
  CHECK(transfers("onfi-nvddr-133") == 133'333'333);   // two in 15 ns
  CHECK(transfers("onfi-nvddr3-800") == 800'000'000);  // two in 2.5 ns
  CHECK(transfers("toggle-2400") == 2'400'000'000);
}

TEST_CASE("commands and data-outs take the cycles of the specification") {
  const auto times = [](const char* name) {
    const InterfaceMode& mode = *find_interface_mode(name);
    return std::pair(mode.command_time().ps, mode.data_out_setup.ps);
  };
  // tCS + 7 tWC + tCH and tRR + tREA.
  CHECK(times("onfi-sdr-10") == std::pair<std::int64_t, std::int64_t>(790'000, 80'000));
  CHECK(times("onfi-sdr-50") == std::pair<std::int64_t, std::int64_t>(160'000, 36'000));
  // tCS + 7 tCAD + tCH and tWRCK + tDQSCK.
  CHECK(times("onfi-nvddr-200") == std::pair<std::int64_t, std::int64_t>(332'000, 45'000));
  // tCS + 7 tWC + tCH and tRPRE + tDQSRE, two cycles of 2.5 ns and of 0.556 ns in front of fast data.
  CHECK(times("onfi-nvddr2-400") == std::pair<std::int64_t, std::int64_t>(200'000, 40'000));
  CHECK(times("onfi-nvddr3-800") == std::pair<std::int64_t, std::int64_t>(200'000, 45'000));
  CHECK(times("onfi-nvlpddr4-3600") == std::pair<std::int64_t, std::int64_t>(200'000, 41'111));
  CHECK(times("toggle-1400") == std::pair<std::int64_t, std::int64_t>(200'000, 42'857));
}

}  // namespace test_onfi
