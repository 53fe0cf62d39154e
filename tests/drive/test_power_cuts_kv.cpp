// Power cuts of drives that hold K and V, alone and beside blocks: what was appended comes back.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "ftl/policies/registry.h"
#include "tests/drive/cut_loads.h"
#include "tests/drive/drive_host.h"

namespace test_power_cuts_kv {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

namespace {

/// Both namespaces, small enough to collect all the time.
csd_model::DriveConfig kv_drive(std::uint32_t units) {
  auto config = tiny_drive();
  config.geometry = {.channels = 2,
                     .dies_per_channel = 1,
                     .planes_per_die = 1,
                     .blocks_per_plane = 30,
                     .pages_per_block = 6,
                     .page_size = Bytes{BlockLoad::kUnit * units}};
  if (units > 1) {
    config.mapping_unit = Bytes{BlockLoad::kUnit};
    config.kv.codeword = config.block.codeword = config.mapping_unit;
    config.flash.codewords = nfc::CodewordsConfig{.size = config.mapping_unit, .parity = {}};
  }
  config.kv_share = 0.5;
  config.kv.check = ftl::PageCheck::key_and_crc;
  config.write_buffer = Bytes::kib(64);
  config.block.over_provisioning = 0.4;
  config.may_lose_power = true;
  config.power_loss.protection = csd_model::CapacitorProtection{};
  return config;
}

/// 1 KiB pages: 32 tokens of K or of V, windows of 64 tokens.
csd_model::DriveConfig small_pages() {
  auto config = kv_drive(1);
  config.geometry.page_size = Bytes::kib(1);
  config.geometry.blocks_per_plane = 40;
  config.nvme.controller.block_size = Bytes{512};
  return config;
}

void cut(DriveHost& host) {
  host.drive().power_off();
  host.driver().lose_controller();
}

void switch_on(DriveHost& host) {
  host.drive().power_on([&host] { host.driver().restart(); });
}

void cycle(DriveHost& host) {
  cut(host);
  switch_on(host);
  DriveHost::settle();
  REQUIRE(host.driver().ready());
}

/// Cuts at random moments beside commands of both namespaces, also while the drive recovers.
csd_model::PowerLosses run_with_cuts(const csd_model::DriveConfig& config, std::uint64_t seed, int cuts) {
  DriveHost host(config);
  BlockLoad blocks(host, seed);
  KvLoad kv(host, seed, 200);
  Rng rng(seed, "cuts");
  const auto microseconds = [&](std::uint64_t below) {
    return SimTime{static_cast<std::int64_t>(rng.below(below * 1'000'000))};
  };
  const auto fail = [&] {
    cut(host);
    blocks.note_cut();
  };
  const auto compare = [&] {
    DriveHost::settle();
    blocks.read_all();
    kv.read_all();
    DriveHost::settle();
    CHECK(blocks.under_way() + kv.under_way() == 0);
    CHECK(host.drive().kv_ftl().verify() == 0);
  };
  for (int i = 0; i < cuts; ++i) {
    for (std::uint64_t left = 20 + rng.below(150); left > 0; --left) {
      while (blocks.under_way() < 4 && rng.below(4) != 0) blocks.issue();
      while (kv.under_way() < 4 && rng.below(4) != 0) kv.issue();
      DriveHost::run_for(microseconds(rng.below(3) == 0 ? 800 : 30));
    }
    fail();
    DriveHost::run_for(microseconds(3000));
    while (rng.below(3) == 0) {
      switch_on(host);
      DriveHost::run_for(microseconds(4000));
      fail();
      DriveHost::run_for(microseconds(100));
    }
    switch_on(host);
    if (rng.below(2) == 0) compare();
  }
  compare();
  CHECK(blocks.consistent());
  CHECK(blocks.older() == 0);
  CHECK(kv.compared() > 20);
  CHECK(host.integrity_errors() == 0);
  // What recoveries have left to be done ends: then capacitors have no page of K or V to save.
  bool drained = false;
  host.drive().when_drained([&] { drained = true; });
  DriveHost::settle();
  CHECK(drained);
  const csd_model::PowerLosses losses = host.drive().power_losses();
  cut(host);
  CHECK(host.drive().power_losses().dumped_pages == losses.dumped_pages);
  return losses;
}

}  // namespace

TEST_CASE("both namespaces come back after cuts at random moments, with all policies and tails") {
  const ftl::PolicyRegistry registry = ftl::PolicyRegistry::with_builtin();
  csd_model::PowerLosses all;
  std::uint64_t seed = 0;
  for (const ftl::PolicyEntry& policy : registry.entries())
    for (const auto tail : {ftl::TailPolicy::token_index, ftl::TailPolicy::dram, ftl::TailPolicy::partial_program})
      for (const std::uint32_t units : {1U, 2U}) {
        ++seed;
        CAPTURE(policy.name, static_cast<int>(tail), units, seed);
        auto config = kv_drive(units);
        config.kv.tail = tail;
        config.mapping = [&](const FlashGeometry& geometry) { return registry.make(policy.name, {geometry, {}}); };
        const csd_model::PowerLosses one = run_with_cuts(config, seed, 6);
        CHECK(one.cuts >= 6);
        CHECK(one.lost_protected == 0);
        CHECK(one.lost_sequences == 0);
        CHECK(one.lost_units == 0);
        all.torn_programs += one.torn_programs;
        all.half_erases += one.half_erases;
        all.dumped_units += one.dumped_units;
        all.dumped_pages += one.dumped_pages;
        all.stale_units += one.stale_units;
      }
  CHECK(all.torn_programs > 20);
  CHECK(all.half_erases > 0);
  CHECK(all.dumped_units > 50);
  CHECK(all.dumped_pages > 50);
  CHECK(all.stale_units > 100);
}

TEST_CASE("K and V in many small pages come back after cuts that follow one another closely") {
  for (const std::uint64_t seed : {100U, 101U}) {
    CAPTURE(seed);
    auto config = small_pages();
    DriveHost host(config);
    KvLoad kv(host, seed, 70);
    Rng rng(seed, "cuts");
    for (int i = 0; i < 20; ++i) {
      for (std::uint64_t left = rng.below(60); left > 0; --left) {
        while (kv.under_way() < 4 && rng.below(4) != 0) kv.issue();
        DriveHost::run_for(SimTime{static_cast<std::int64_t>(rng.below(100'000'000))});
      }
      cut(host);
      DriveHost::run_for(SimTime::microseconds(10));
      switch_on(host);
    }
    DriveHost::settle();
    kv.read_all();
    DriveHost::settle();
    CHECK(kv.under_way() == 0);
    CHECK(kv.compared() > 50);
    CHECK(host.drive().kv_ftl().verify() == 0);
    CHECK(host.integrity_errors() == 0);
    CHECK(host.drive().power_losses().dumped_pages > 0);
  }
}

TEST_CASE("attention that a cut interrupts at any moment has the answer of an undisturbed run") {
  const bool sparf = GENERATE(false, true);
  const auto tail = GENERATE(ftl::TailPolicy::token_index, ftl::TailPolicy::dram, ftl::TailPolicy::partial_program);
  CAPTURE(sparf, static_cast<int>(tail));
  auto config = small_pages();
  config.kv.tail = tail;
  constexpr std::uint32_t kTokens = 150;
  /// The output, how long it took, and how often the command was issued again. `after` < 0: undisturbed.
  struct Answer {
    std::vector<Half> out;
    SimTime took;
    std::uint64_t reissued;
  };
  const auto run = [&](SimTime after) {
    DriveHost host(config);
    REQUIRE(host.create(1, 1, 2) == status::success);
    REQUIRE(host.append(1, 0, 0, kTokens, 0, 2) == status::success);
    const auto descriptor =
        sparf ? sparse_heads_of(1, kTokens, 0, 2, 4, 24, 4, true) : heads_of(1, kTokens, 0, 2, true);
    auto attend = host.prepare_attend(0, {descriptor}, sparf ? nvme::AttendMethod::sparf : nvme::AttendMethod::dense);
    const SimTime start = nvme::sim_now();
    host.send_attend(attend);
    if (after.ps >= 0) {
      DriveHost::run_for(after);
      cut(host);
      DriveHost::run_for(SimTime::microseconds(3));
      switch_on(host);
    }
    REQUIRE(host.run(attend.sent).ok());
    CHECK(host.tokens_of(1) == kTokens + 1);
    CHECK(host.integrity_errors() == 0);
    // The next token is the next one.
    REQUIRE(host.append(1, 0, kTokens + 1, 1, 0, 2) == status::success);
    return Answer{host.output(attend), attend.sent->at - start, host.driver().reissued()};
  };
  const Answer undisturbed = run(SimTime{-1});
  REQUIRE(undisturbed.took.ps > 0);
  std::uint64_t reissued = 0;
  constexpr int kSteps = 40;
  for (int i = 0; i <= kSteps; ++i) {
    CAPTURE(i);
    const Answer cut_short = run(SimTime{undisturbed.took.ps * i / kSteps});
    CHECK(cut_short.out == undisturbed.out);
    reissued += cut_short.reissued;
  }
  CHECK(reissued >= kSteps);
}

TEST_CASE("a page of K is torn from the picosecond in which its array begins until that in which it ends") {
  auto config = small_pages();
  config.write_buffer = {};
  const auto run = [&](SimTime after, std::uint64_t torn, std::uint64_t dumped) {
    CAPTURE(after.ps, torn);
    DriveHost host(config);
    REQUIRE(host.create(1, 1, 1, nvme::create_flag::token_major) == status::success);
    const SimTime start = nvme::sim_now();
    const SentPtr append = host.send_append(1, 0, 0, 32, 0, 1);
    DriveHost::run_for(after);
    host.drive().power_off();
    CHECK(host.drive().power_losses().torn_programs == torn);
    CHECK(host.drive().power_losses().dumped_pages == dumped);
    host.driver().lose_controller();
    CHECK_FALSE(append->done);
    switch_on(host);
    REQUIRE(host.run(append).ok());
    CHECK(host.tokens_of(1) == 32);
    CHECK(host.drive().kv_ftl().verify() == 0);
    CHECK(host.driver().reissued() == 1);
    return start;
  };
  // The rows arrive; two pages cross two channels, and are programmed side by side.
  nvme::PcieLink link(config.link);
  const Bytes rows{2 * 32 * 16 * 2};
  const SimTime arrived = link.reserve_read(rows, link.reserve_read(Bytes{64}, {}).arrival).arrival;
  const SimTime begun =
      arrived + config.flash.command_time + transfer_time(config.geometry.page_size, config.flash.channel_bandwidth);
  const SimTime ended = begun + config.flash.program_latency;
  run(begun - SimTime{1}, 0, 2);
  run(begun, 2, 2);
  run(ended - SimTime{1}, 2, 2);
}

TEST_CASE(
    "the recovery reads what was handed out in both namespaces, planes side by side, then the tails that it keeps") {
  const bool keeps_tail = GENERATE(false, true);
  auto config = small_pages();
  config.kv.tail = keeps_tail ? ftl::TailPolicy::dram : ftl::TailPolicy::token_index;
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 1) == status::success);
  // A group of 32 tokens is in flash, a page of K and one of V; the window of 64 tokens is unfinished.
  REQUIRE(host.append(1, 0, 0, 40, 0, 1) == status::success);
  for (const std::uint64_t lba : {0U, 1U, 2U}) REQUIRE(host.run(host.send_write(lba * 2, 2, std::byte(lba + 1))).ok());
  DriveHost::settle();
  cycle(host);
  const csd_model::PowerLosses& losses = host.drive().power_losses();
  CHECK(losses.scanned_pages == 5);
  CHECK(losses.dumped_pages == 0);
  // Tails, the running mean and the tables; nothing of blocks is in DRAM.
  CHECK(losses.dumped.value > 2 * 8 * 16 * 2 + 16 * 4);
  const nfc::FlashTiming& flash = config.flash;
  const SimTime page = flash.command_time + flash.read_latency + flash.data_out_setup +
                       transfer_time(config.geometry.page_size, flash.channel_bandwidth);
  // Five pages on two planes; then the page of K, if the component-major tail is kept.
  const SimTime expected = page * 3 + flash.ecc_latency + (keeps_tail ? page + flash.ecc_latency : SimTime{});
  CHECK(losses.recovery_time.ps == expected.ps);
  CHECK(host.tokens_of(1) == 40);
  auto attend = host.attend(0, {heads_of(1, 39, 0, 1)});
  CHECK(host.error(attend) < kOutputTolerance);
}

TEST_CASE("capacitors save K and V before blocks; sequences that they do not reach are lost and counted") {
  const std::uint64_t reach = GENERATE(0, 1, 2, 4);
  CAPTURE(reach);
  auto config = small_pages();
  config.power_loss.protection = csd_model::CapacitorProtection{.energy = Energy{1'000'000'000'000'000}};
  config.nvme.controller.block_size = Bytes::kib(1);
  // Each page takes its share of the energy; the rest of what the sequences have in DRAM is less than one.
  config.dump = [&](Bytes size) {
    return csd_model::PowerLossDump{SimTime{}, static_cast<double>(size.value) / (1024.0 * (double(reach) + 0.9))};
  };
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 1, nvme::create_flag::token_major) == status::success);
  const SentPtr append = host.send_append(1, 0, 0, 32, 0, 1), write = host.send_write(0, 2, std::byte{9});
  DriveHost::run_for(SimTime::microseconds(30));
  REQUIRE((append->done && write->done));
  cycle(host);
  const csd_model::PowerLosses& losses = host.drive().power_losses();
  // Two pages of K and V, then two blocks.
  CHECK(losses.dumped_pages == std::min<std::uint64_t>(reach, 2));
  CHECK(losses.lost_sequences == (reach < 2 ? 1 : 0));
  CHECK(losses.dumped_units == (reach < 2 ? 0 : reach - 2));
  CHECK(losses.lost_protected == 2 - losses.dumped_units);
  const nvme::Status next = host.append(1, 0, 32, 1, 0, 1);
  CHECK(next == (reach < 2 ? status::kv_unknown_sequence : status::success));
  CHECK(host.drive().kv_ftl().verify() == 0);
}

TEST_CASE("commands that are issued again do nothing twice, and others are refused as ever") {
  DriveHost host(small_pages());
  const auto again = [](nvme::SubmissionEntry entry) {
    entry.cdw2 |= nvme::kIssuedAgain;
    return entry;
  };
  const auto create = DriveHost::create_entry(1, 1, 2, 16);
  REQUIRE(host.run(again(create)) == status::success);
  CHECK(host.run(create) == status::kv_sequence_exists);
  CHECK(host.run(again(create)) == status::success);

  const nvme::KvAppend append = DriveHost::append_command(1, 0, 0, 3, 0, 2);
  const SentPtr first = host.send_append(1, 0, 0, 3, 0, 2);
  REQUIRE(host.run(first) == status::success);
  CHECK(host.run(nvme::encode(kNamespace, append, 16), first->buffer) == status::kv_bad_token);
  CHECK(host.run(again(nvme::encode(kNamespace, append, 16)), first->buffer) == status::success);
  CHECK(host.tokens_of(1) == 3);
  // Some of its tokens are missing: it has not been done.
  const nvme::KvAppend longer = DriveHost::append_command(1, 0, 0, 4, 0, 2);
  CHECK(host.run(again(nvme::encode(kNamespace, longer, 16)), host.buffer(nvme::append_size(longer, 16))) ==
        status::kv_bad_token);

  const auto fork = nvme::encode(kNamespace, nvme::KvFork{SequenceId{1}, SequenceId{2}});
  REQUIRE(host.run(fork) == status::success);
  CHECK(host.run(fork) == status::kv_sequence_exists);
  CHECK(host.run(again(fork)) == status::success);
  CHECK(host.run(again(nvme::encode(kNamespace, nvme::KvFork{SequenceId{7}, SequenceId{2}}))) ==
        status::kv_unknown_sequence);

  auto attend = host.prepare_attend(0, {heads_of(1, 3, 0, 2, true)});
  host.send_attend(attend);
  REQUIRE(host.run(attend.sent) == status::success);
  const std::vector<Half> out = host.output(attend);
  CHECK(host.run(nvme::encode(kNamespace, attend.command), attend.sent->buffer) == status::kv_bad_token);
  CHECK(host.run(again(nvme::encode(kNamespace, attend.command)), attend.sent->buffer) == status::success);
  CHECK(host.output(attend) == out);
  CHECK(host.tokens_of(1) == 4);

  REQUIRE(host.free(2) == status::success);
  CHECK(host.run(DriveHost::free_entry(2)) == status::kv_unknown_sequence);
  CHECK(host.run(again(DriveHost::free_entry(2))) == status::success);
}

TEST_CASE("a drive with K and V needs capacitors to lose its power") {
  auto config = kv_drive(1);
  config.power_loss.protection = csd_model::NoProtection{};
  CHECK_THROWS_WITH(DriveHost(config), Catch::Contains("power_loss.protection"));
}

}  // namespace test_power_cuts_kv
