#include "nfc/core/onfi.h"

#include <algorithm>

namespace csdsim::nfc {
namespace {

constexpr SimTime ns(double v) { return SimTime::picoseconds(static_cast<std::int64_t>(v * 1000 + 0.5)); }

/// Transfers a second of a strobe with two transfers a period.
constexpr std::uint64_t per_second(double mega) { return static_cast<std::uint64_t>(mega * 1e6 + 0.5); }

struct SdrTimes {
  double tcs, twc, tch, trr, trea;
};
/// Asynchronous: a transfer each tRC.
constexpr InterfaceMode sdr(std::string_view name, std::string_view source, double trc, SdrTimes t) {
  return {name, source, per_second(1000 / trc), ns(t.tcs), ns(t.twc), ns(t.tch), ns(t.trr + t.trea)};
}

constexpr double kTcad = 45, kTwrck = 20, kTdqsck = 25;
/// Source-synchronous with a clock: two transfers each tCK.
constexpr InterfaceMode nv_ddr(std::string_view name, std::string_view source, double tck, double tcs, double tch) {
  return {name, source, per_second(2000 / tck), ns(tcs), ns(kTcad), ns(tch), ns(kTwrck + kTdqsck)};
}

constexpr double kTcs = 20, kTwc = 25, kTch = 5, kTrpre = 15, kTdqsre = 25, kWarmUpCycles = 2;
/// Bidirectional strobe, asynchronous commands: alike in NV-DDR2, NV-DDR3, NV-LPDDR4 and Toggle.
constexpr InterfaceMode strobed(std::string_view name, std::string_view source, double mega) {
  const double warm_up = mega >= 800 ? kWarmUpCycles * 2000 / mega : 0;
  return {name, source, per_second(mega), ns(kTcs), ns(kTwc), ns(kTch), ns(kTrpre + kTdqsre + warm_up)};
}

constexpr InterfaceMode kModes[] = {
    sdr("onfi-sdr-10", "ONFI 1.0, SDR mode 0", 100, {70, 100, 20, 40, 40}),
    sdr("onfi-sdr-20", "ONFI 1.0, SDR mode 1", 50, {35, 45, 10, 20, 30}),
    sdr("onfi-sdr-29", "ONFI 1.0, SDR mode 2", 35, {25, 35, 10, 20, 25}),
    sdr("onfi-sdr-33", "ONFI 1.0, SDR mode 3", 30, {25, 30, 5, 20, 20}),
    sdr("onfi-sdr-40", "ONFI 1.0, SDR mode 4", 25, {20, 25, 5, 20, 20}),
    sdr("onfi-sdr-50", "ONFI 1.0, SDR mode 5", 20, {15, 20, 5, 20, 16}),

    nv_ddr("onfi-nvddr-40", "ONFI 2.1, NV-DDR mode 0", 50, 35, 10),
    nv_ddr("onfi-nvddr-67", "ONFI 2.1, NV-DDR mode 1", 30, 25, 5),
    nv_ddr("onfi-nvddr-100", "ONFI 2.1, NV-DDR mode 2", 20, 15, 4),
    nv_ddr("onfi-nvddr-133", "ONFI 2.1, NV-DDR mode 3", 15, 15, 3),
    nv_ddr("onfi-nvddr-167", "ONFI 2.1, NV-DDR mode 4", 12, 15, 2.5),
    nv_ddr("onfi-nvddr-200", "ONFI 2.1, NV-DDR mode 5", 10, 15, 2),

    strobed("onfi-nvddr2-67", "ONFI 3.2, NV-DDR2 mode 0", 200.0 / 3),
    strobed("onfi-nvddr2-80", "ONFI 3.2, NV-DDR2 mode 1", 80),
    strobed("onfi-nvddr2-133", "ONFI 3.2, NV-DDR2 mode 2", 400.0 / 3),
    strobed("onfi-nvddr2-167", "ONFI 3.2, NV-DDR2 mode 3", 500.0 / 3),
    strobed("onfi-nvddr2-200", "ONFI 3.2, NV-DDR2 mode 4", 200),
    strobed("onfi-nvddr2-267", "ONFI 3.2, NV-DDR2 mode 5", 800.0 / 3),
    strobed("onfi-nvddr2-333", "ONFI 3.2, NV-DDR2 mode 6", 1000.0 / 3),
    strobed("onfi-nvddr2-400", "ONFI 3.2, NV-DDR2 mode 7", 400),
    strobed("onfi-nvddr2-533", "ONFI 3.2, NV-DDR2 mode 8", 1600.0 / 3),

    strobed("onfi-nvddr3-533", "ONFI 4.0, NV-DDR3 mode 8", 1600.0 / 3),
    strobed("onfi-nvddr3-667", "ONFI 4.0, NV-DDR3 mode 9", 2000.0 / 3),
    strobed("onfi-nvddr3-800", "ONFI 4.0, NV-DDR3 mode 10", 800),
    strobed("onfi-nvddr3-1067", "ONFI 4.1, NV-DDR3 mode 11", 3200.0 / 3),
    strobed("onfi-nvddr3-1200", "ONFI 4.1, NV-DDR3 mode 12", 1200),
    strobed("onfi-nvddr3-1333", "ONFI 4.2, NV-DDR3 mode 13", 4000.0 / 3),
    strobed("onfi-nvddr3-1467", "ONFI 4.2, NV-DDR3 mode 14", 4400.0 / 3),
    strobed("onfi-nvddr3-1600", "ONFI 4.2, NV-DDR3 mode 15", 1600),
    strobed("onfi-nvddr3-1800", "ONFI 5.0, NV-DDR3 mode 16", 1800),
    strobed("onfi-nvddr3-2000", "ONFI 5.0, NV-DDR3 mode 17", 2000),
    strobed("onfi-nvddr3-2200", "ONFI 5.0, NV-DDR3 mode 18", 2200),
    strobed("onfi-nvddr3-2400", "ONFI 5.0, NV-DDR3 mode 19", 2400),

    strobed("onfi-nvlpddr4-800", "ONFI 5.0, NV-LPDDR4 mode 10", 800),
    strobed("onfi-nvlpddr4-1200", "ONFI 5.0, NV-LPDDR4 mode 12", 1200),
    strobed("onfi-nvlpddr4-1600", "ONFI 5.0, NV-LPDDR4 mode 15", 1600),
    strobed("onfi-nvlpddr4-1800", "ONFI 5.0, NV-LPDDR4 mode 16", 1800),
    strobed("onfi-nvlpddr4-2000", "ONFI 5.0, NV-LPDDR4 mode 17", 2000),
    strobed("onfi-nvlpddr4-2200", "ONFI 5.0, NV-LPDDR4 mode 18", 2200),
    strobed("onfi-nvlpddr4-2400", "ONFI 5.0, NV-LPDDR4 mode 19", 2400),
    strobed("onfi-nvlpddr4-3600", "ONFI 5.1 (JEDEC JESD230F), the fastest NV-LPDDR4", 3600),

    strobed("toggle-133", "Toggle DDR 1.0 (JEDEC JESD230)", 400.0 / 3),
    strobed("toggle-400", "Toggle DDR 2.0 (JEDEC JESD230)", 400),
    strobed("toggle-800", "Toggle DDR 3.0 (JEDEC JESD230C)", 800),
    strobed("toggle-1000", "Toggle DDR, 64-layer V-NAND: 1.4 Gb/s of its successor are 40 % more, as Samsung states",
            1000),
    strobed("toggle-1200", "Toggle DDR 4.0 (JEDEC JESD230D)", 1200),
    strobed("toggle-1400", "Toggle DDR 4.0, as Samsung states for its fifth V-NAND", 1400),
    strobed("toggle-2000", "Toggle DDR 5.0 (JEDEC JESD230E)", 2000),
    strobed("toggle-2400", "Toggle DDR 5.0 (JEDEC JESD230E)", 2400),
    strobed("toggle-3200", "Toggle DDR 5.1, as Samsung states for its ninth V-NAND", 3200),
    strobed("toggle-3600", "Toggle DDR 6.0 (JEDEC JESD230F)", 3600),
};

}  // namespace

std::span<const InterfaceMode> interface_modes() { return kModes; }

const InterfaceMode* find_interface_mode(std::string_view name) {
  const auto it = std::find_if(std::begin(kModes), std::end(kModes), [&](const auto& m) { return m.name == name; });
  return it == std::end(kModes) ? nullptr : it;
}

}  // namespace csdsim::nfc
