// Power cuts at any moment of simulated time: what was promised comes back, with an oracle for each unit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "tests/drive/cut_loads.h"
#include "tests/drive/drive_host.h"

namespace test_power_cuts {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr std::uint64_t kUnit = BlockLoad::kUnit;

/// Two planes, small enough to collect all the time.
csd_model::DriveConfig cut_drive(std::uint32_t units, std::uint32_t pages, Bytes write_buffer, bool capacitors) {
  auto config = tiny_drive();
  config.geometry = {.channels = 2,
                     .dies_per_channel = 1,
                     .planes_per_die = 1,
                     .blocks_per_plane = 14,
                     .pages_per_block = 6,
                     .page_size = Bytes{kUnit * units}};
  config.kv_share = 0;
  config.write_buffer = write_buffer;
  if (units * pages > 1) config.mapping_unit = Bytes{kUnit};
  config.flash.word_line_pages = pages;
  config.block.over_provisioning = 0.4;
  config.may_lose_power = true;
  if (capacitors) config.power_loss.protection = csd_model::CapacitorProtection{};
  return config;
}

void cut(DriveHost& host, BlockLoad& load) {
  host.drive().power_off();
  host.driver().lose_controller();
  load.note_cut();
}

void switch_on(DriveHost& host) {
  host.drive().power_on([&host] { host.driver().restart(); });
}

/// Cuts at random moments, also while the drive recovers and while the host brings it up.
csd_model::PowerLosses run_with_cuts(const csd_model::DriveConfig& config, std::uint64_t seed, int cuts) {
  const bool is_volatile = config.power_loss.capacitors() == nullptr && config.write_buffer.value > 0;
  DriveHost host(config);
  BlockLoad load(host, seed);
  Rng rng(seed, "cuts");
  const auto microseconds = [&](std::uint64_t below) {
    return SimTime{static_cast<std::int64_t>(rng.below(below * 1'000'000))};
  };
  for (int i = 0; i < cuts; ++i) {
    for (std::uint64_t left = 20 + rng.below(150); left > 0; --left) {
      while (load.under_way() < 8 && rng.below(4) != 0) load.issue();
      DriveHost::run_for(microseconds(rng.below(3) == 0 ? 800 : 30));
    }
    cut(host, load);
    DriveHost::run_for(microseconds(3000));
    while (rng.below(3) == 0) {
      switch_on(host);
      DriveHost::run_for(microseconds(2500));
      cut(host, load);
      DriveHost::run_for(microseconds(100));
    }
    switch_on(host);
    if (rng.below(2) == 0) continue;
    DriveHost::settle();
    load.read_all();
    DriveHost::settle();
    CHECK(load.under_way() == 0);
  }
  DriveHost::settle();
  load.read_all();
  DriveHost::settle();
  CHECK(load.under_way() == 0);
  CHECK(host.driver().issued() == host.driver().completed());
  CHECK(load.consistent());
  CHECK(host.integrity_errors() == 0);
  csd_model::PowerLosses losses = host.drive().power_losses();
  // What is in DRAM only is really lost.
  if (load.older() > 0) CHECK(losses.lost_units > 0);
  if (is_volatile) CHECK(load.older() > 0);
  return losses;
}

nvme::SubmissionEntry fua_write(std::uint64_t lba) {
  auto entry = nvme::encode_block_io(nvme::nvm_opcode::write, kNamespace, nvme::Lba{lba}, 1);
  entry.cdw12 |= nvme::kForceUnitAccess;
  return entry;
}

/// The host's program in these tests ends with the drive up again.
void cycle(DriveHost& host) {
  host.drive().power_off();
  host.driver().lose_controller();
  switch_on(host);
  DriveHost::settle();
  REQUIRE(host.driver().ready());
}

std::byte first_byte(DriveHost& host, std::uint64_t lba) {
  const SentPtr read = host.send_read(lba, 1);
  REQUIRE(host.run(read).ok());
  return *host.at(read->buffer.address);
}

}  // namespace

TEST_CASE("what was promised comes back after cuts at random moments") {
  struct Case {
    std::uint32_t units, pages;
    Bytes buffer;
    bool capacitors;
    Bytes map_cache = {};
  };
  const auto c =
      GENERATE(Case{4, 1, Bytes::kib(64), false, Bytes{8 * 12}}, Case{2, 3, Bytes::kib(64), true, Bytes{8 * 12}},
               Case{1, 1, Bytes{}, false, Bytes{8 * 12}}, Case{1, 1, Bytes::kib(64), false},
               Case{4, 1, Bytes::kib(64), false}, Case{2, 3, Bytes::kib(64), false}, Case{2, 3, Bytes::kib(64), true},
               Case{1, 1, Bytes{}, false}, Case{2, 1, Bytes{}, false}, Case{4, 1, Bytes::kib(16), true});
  CAPTURE(c.units, c.pages, c.buffer.value, c.capacitors, c.map_cache.value);
  csd_model::PowerLosses all;
  for (const std::uint64_t seed : {1, 2, 3}) {
    CAPTURE(seed);
    auto config = cut_drive(c.units, c.pages, c.buffer, c.capacitors);
    config.map_cache = c.map_cache;
    const csd_model::PowerLosses one = run_with_cuts(config, seed, 12);
    all.torn_programs += one.torn_programs;
    all.half_erases += one.half_erases;
    all.lost_units += one.lost_units;
    all.dumped_units += one.dumped_units;
    all.stale_units += one.stale_units;
    CHECK(one.cuts >= 12);
    CHECK(one.lost_protected == 0);
    CHECK(one.recovery_time.ps > 0);
  }
  CHECK(all.torn_programs > 5);
  CHECK(all.half_erases > 0);
  CHECK(all.stale_units > 100);
  CHECK((all.dumped_units > 10) == c.capacitors);
  CHECK((all.lost_units > 10) == !c.capacitors);
}

TEST_CASE("what was promised comes back with all that planes and registers can do") {
  // These drives have another model of the flash than those above: it tells of ends when it comes to them, which may be
  // after the firmware has heard of them.
  struct Flash {
    const char* name;
    void (*set)(nfc::FlashTiming& flash);
    std::uint32_t planes = 1;
  };
  const Flash flash = GENERATE(
      Flash{"reads first", [](nfc::FlashTiming& t) { t.plane_order = nfc::PlaneOrder::reads_first; }},
      Flash{"suspension", [](nfc::FlashTiming& t) { t.suspend.emplace(); }},
      Flash{"cache registers", [](nfc::FlashTiming& t) { t.cache.emplace(); }},
      Flash{"page types",
            [](nfc::FlashTiming& t) {
              t.page_types.emplace();
              t.page_types->read_latency = {SimTime::microseconds(30), SimTime::microseconds(50)};
              t.page_types->program_latency = {SimTime::microseconds(300), SimTime::microseconds(900)};
              t.page_types->cell = nfc::CellType::mlc;
            }},
      Flash{"priorities",
            [](nfc::FlashTiming& t) {
              t.class_priority = {OpClass::gc, OpClass::host};
            }},
      Flash{"status polls", [](nfc::FlashTiming& t) { t.status_time = SimTime::microseconds(1); }},
      Flash{"multi-plane", [](nfc::FlashTiming& t) { t.plane_mode = nfc::PlaneMode::multi_plane; }, 2},
      Flash{"independent reads", [](nfc::FlashTiming& t) { t.plane_mode = nfc::PlaneMode::independent_reads; }, 2},
      Flash{"independent reads and suspension",
            [](nfc::FlashTiming& t) {
              t.plane_mode = nfc::PlaneMode::independent_reads;
              t.plane_order = nfc::PlaneOrder::reads_first;
              t.suspend.emplace();
            },
            2});
  const bool capacitors = GENERATE(false, true);
  CAPTURE(flash.name, capacitors);
  csd_model::PowerLosses all;
  for (const std::uint64_t seed : {1, 2}) {
    CAPTURE(seed);
    auto config = cut_drive(1, 1, Bytes::kib(64), capacitors);
    config.geometry.planes_per_die = flash.planes;
    flash.set(config.flash);
    const csd_model::PowerLosses one = run_with_cuts(config, seed, 8);
    all.torn_programs += one.torn_programs;
    CHECK(one.cuts >= 8);
    CHECK(one.lost_protected == 0);
  }
  CHECK(all.torn_programs > 1);
}

TEST_CASE("a program is torn from the picosecond in which its array begins until that in which it ends") {
  auto config = cut_drive(2, 1, Bytes::kib(64), false);
  config.link.latency = SimTime::nanoseconds(150);
  config.flash.plane_order = GENERATE(nfc::PlaneOrder::arrival, nfc::PlaneOrder::reads_first);
  // The model that orders operations comes to an end after the picosecond in which it is.
  const SimTime ended = config.flash.plane_order == nfc::PlaneOrder::arrival ? SimTime{} : SimTime{-1};
  const auto run = [&](SimTime before_end, std::uint64_t torn, bool found) {
    CAPTURE(before_end.ps);
    DriveHost host(config);
    const SimTime start = nvme::sim_now();
    const nvme::Segment data = host.buffer(Bytes{kUnit});
    *host.at(data.address) = std::byte{7};
    const SentPtr write = host.send(fua_write(5), data);
    nvme::PcieLink link(config.link);
    const SimTime arrived = link.reserve_read(Bytes{kUnit}, link.reserve_read(Bytes{64}, {}).arrival).arrival;
    const SimTime programmed = arrived + config.flash.command_time +
                               transfer_time(config.geometry.page_size, config.flash.channel_bandwidth) +
                               config.flash.program_latency;
    DriveHost::run_for(start + programmed - before_end - nvme::sim_now());
    const PhysicalPageAddress ppa = host.drive().block_ftl().lookup(ftl::LogicalPage{5});
    REQUIRE(ppa.valid());
    host.drive().power_off();
    CHECK(host.drive().power_losses().torn_programs == torn);
    CHECK(host.drive().backing_store().written(ppa) == (found || torn > 0));
    CHECK(host.drive().backing_store().oob(ppa).has_value() == found);
    host.driver().lose_controller();
    CHECK(host.drive().power_losses().lost_units == (found ? 0 : 1));
    CHECK_FALSE(write->done);
    // What is issued again is written again.
    switch_on(host);
    REQUIRE(host.run(write).ok());
    CHECK(host.driver().reissued() == 1);
    CHECK(first_byte(host, 5) == std::byte{7});
    CHECK(host.integrity_errors() == 0);
  };
  const SimTime program = config.flash.program_latency;
  run(program + SimTime{1}, 0, false);
  run(program, 1, false);
  run(SimTime{1}, 1, false);
  run(ended, 0, true);
}

TEST_CASE("the recovery reads every page that was handed out, planes side by side, before the controller answers") {
  auto config = cut_drive(1, 1, Bytes::kib(64), false);
  config.block.allocation = ftl::PageAllocation::fixed;
  DriveHost host(config);
  for (const std::uint64_t lba : {0U, 2U, 4U, 6U, 8U, 1U})
    REQUIRE(host.run(host.send_write(lba, 1, std::byte(lba + 1))).ok());
  REQUIRE(host.run(nvme::encode_flush(kNamespace)).ok());
  cycle(host);
  const csd_model::PowerLosses& losses = host.drive().power_losses();
  CHECK(losses.cuts == 1);
  CHECK(losses.scanned_pages == 6);
  CHECK(losses.lost_units == 0);
  // Five of them are on one plane, which has its channel for itself.
  const nfc::FlashTiming& flash = config.flash;
  const SimTime page = flash.command_time + flash.read_latency + flash.data_out_setup +
                       transfer_time(config.geometry.page_size, flash.channel_bandwidth);
  CHECK(losses.recovery_time.ps == (page * 5 + flash.ecc_latency).ps);
  CHECK(losses.longest_recovery.ps == losses.recovery_time.ps);
  for (const std::uint64_t lba : {0U, 2U, 4U, 6U, 8U, 1U}) CHECK(first_byte(host, lba) == std::byte(lba + 1));
}

TEST_CASE("capacitors dump the oldest pages first, as far as their energy reaches; what is lost is counted") {
  const std::uint64_t reach = GENERATE(0, 3, 8);
  CAPTURE(reach);
  auto config = cut_drive(1, 1, Bytes::kib(64), true);
  config.power_loss.protection = csd_model::CapacitorProtection{.energy = Energy{1'000'000'000'000'000}};
  // Each unit takes its share of the energy and 1 ms; page numbers and the like are free.
  config.dump = [&](Bytes size) {
    const std::uint64_t units = size.value / kUnit;
    return csd_model::PowerLossDump{SimTime::milliseconds(1) * static_cast<std::int64_t>(units),
                                    static_cast<double>(units) / (static_cast<double>(reach) + 0.5)};
  };
  DriveHost host(config);
  std::vector<SentPtr> writes;
  for (std::uint64_t lba = 0; lba < 8; ++lba) writes.push_back(host.send_write(lba, 1, std::byte(lba + 1)));
  DriveHost::run_for(SimTime::microseconds(40));
  for (const SentPtr& write : writes) REQUIRE(write->done);
  const SimTime cut = nvme::sim_now();
  host.drive().power_off();
  host.driver().lose_controller();
  const csd_model::PowerLosses& losses = host.drive().power_losses();
  CHECK(losses.dumped_units == reach);
  CHECK(losses.lost_protected == 8 - reach);
  CHECK(losses.lost_units == 0);
  CHECK(losses.dump_time.ps == (SimTime::milliseconds(1) * static_cast<std::int64_t>(reach)).ps);
  CHECK(losses.dumped.value / kUnit == reach);
  SimTime answers;
  host.drive().power_on([&] {
    answers = nvme::sim_now();
    host.driver().restart();
  });
  DriveHost::settle();
  CHECK(answers - cut >= losses.dump_time);
  for (std::uint64_t lba = 0; lba < 8; ++lba) CHECK(first_byte(host, lba) == std::byte(lba < reach ? lba + 1 : 0));
}

TEST_CASE("a drive that is switched on again has nothing left to do of what a cut has interrupted") {
  auto config = cut_drive(1, 1, Bytes::kib(64), false);
  SECTION("map lookups") { config.lookup_time = SimTime::milliseconds(2); }
  SECTION("controller DRAM") { config.dram_bandwidth = Bandwidth{kUnit * 500}; }
  // Sixteen reads: those that a cut has interrupted are issued again, and take as long as new ones.
  const auto reads_take = [&](bool interrupted) {
    DriveHost host(config);
    for (std::uint64_t lba = 0; lba < 4; ++lba) REQUIRE(host.run(host.send_write(lba, 1, std::byte{1})).ok());
    REQUIRE(host.run(nvme::encode_flush(kNamespace)).ok());
    std::vector<SentPtr> reads;
    const auto send = [&] {
      for (std::uint64_t i = 0; i < 16; ++i) reads.push_back(host.send_read(i % 4, 1));
    };
    if (interrupted) {
      send();
      DriveHost::run_for(SimTime::microseconds(500));
    }
    host.drive().power_off();
    host.driver().lose_controller();
    switch_on(host);
    while (!host.driver().ready()) DriveHost::run_for(SimTime::microseconds(1));
    if (!interrupted) send();
    const SimTime start = nvme::sim_now();
    DriveHost::settle();
    SimTime last = start;
    for (const SentPtr& read : reads) {
      REQUIRE(read->done);
      last = std::max(last, read->at);
    }
    return last - start;
  };
  const SimTime fresh = reads_take(false);
  CHECK(fresh > SimTime::milliseconds(30));
  CHECK(reads_take(true) < fresh + SimTime::microseconds(100));
}

TEST_CASE("a controller without power does not answer: its registers read as ones, and what is written is lost") {
  DriveHost host(cut_drive(1, 1, Bytes::kib(64), false));
  const std::uint32_t ready = host.read_register(nvme::reg::csts);
  CHECK(ready == 1);
  host.drive().power_off();
  host.driver().lose_controller();
  CHECK(host.read_register(nvme::reg::csts) == ~std::uint32_t{0});
  host.write_register(nvme::reg::cc, 0);
  switch_on(host);
  DriveHost::settle();
  CHECK(host.read_register(nvme::reg::csts) == ready);
}

TEST_CASE("SMART counts a loss of power as an unsafe shutdown, unless the host has shut the controller down") {
  const bool shut_down = GENERATE(false, true);
  DriveHost host(cut_drive(1, 1, Bytes::kib(64), false));
  REQUIRE(host.run(host.send_write(0, 1, std::byte{3})).ok());
  if (shut_down) {
    nvme::Cc cc{.en = true, .iosqes = 6, .iocqes = 4};
    cc.shn = 1;
    host.write_register(nvme::reg::cc, cc.encode());
    DriveHost::settle();
  }
  cycle(host);
  const nvme::SmartLog log = smart_log(host);
  CHECK(log.power_cycles.value == 2);
  CHECK(log.unsafe_shutdowns.value == (shut_down ? 0 : 1));
  CHECK(first_byte(host, 0) == std::byte{3});
}

TEST_CASE("cuts where there can be none are errors") {
  auto config = cut_drive(1, 1, Bytes::kib(64), false);
  {
    DriveHost host(config);
    CHECK_THROWS_AS(host.drive().power_on([] {}), UserError);
    host.drive().power_off();
    CHECK_THROWS_AS(host.drive().power_off(), UserError);
    CHECK_THROWS_AS(host.driver().restart(), UserError);
  }
  config.may_lose_power = false;
  {
    DriveHost host(config);
    CHECK_THROWS_AS(host.drive().power_off(), UserError);
    CHECK_THROWS_AS(host.driver().lose_controller(), UserError);
  }
  const auto refused = [&](auto change) {
    auto changed = cut_drive(1, 1, Bytes::kib(64), false);
    change(changed);
    CHECK_THROWS_AS(DriveHost(changed), UserError);
  };
  refused([](csd_model::DriveConfig& c) { c.data = ftl::DataMode::timing; });
  refused([](csd_model::DriveConfig& c) { c.fidelity = csd_model::Fidelity::at; });
  refused([](csd_model::DriveConfig& c) { c.kv_share = 0.5; });
}

}  // namespace test_power_cuts
