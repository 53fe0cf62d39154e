// Writes that wait for room in the write buffer.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "nvme_if/core/pcie_link.h"
#include "tests/drive/drive_host.h"

namespace test_write_buffer {

using namespace csdsim;
using namespace csdsim::test;

namespace {

csd_model::DriveConfig buffered_drive(Bytes write_buffer) {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(4);
  config.write_buffer = write_buffer;
  return config;
}

/// Pages of 16 KiB with units of 4 KiB; `pages` of each plane make a word line.
csd_model::DriveConfig unit_drive(Bytes write_buffer, std::uint32_t pages = 1, bool superblocks = false) {
  auto config = buffered_drive(write_buffer);
  config.geometry.page_size = Bytes::kib(16);
  config.geometry.blocks_per_plane = 16;
  config.geometry.pages_per_block = 24;
  config.mapping_unit = Bytes::kib(4);
  config.kv_share = 0;
  config.flash.word_line_pages = pages;
  config.superblocks = superblocks;
  if (superblocks) config.flash.plane_mode = nfc::PlaneMode::independent_reads;
  return config;
}

std::size_t completed(const std::vector<SentPtr>& writes) {
  return static_cast<std::size_t>(std::ranges::count_if(writes, [](const SentPtr& write) { return write->done; }));
}

Bytes peak(DriveHost& host) { return host.drive().dram().peak(ftl::DramUse::write_buffer); }

}  // namespace

TEST_CASE("a write completes when a page that was in its place in the buffer is in flash, to the picosecond") {
  // A write of 16 pages, and after 50 us another command.
  const auto second = [](Bytes write_buffer, bool flush) {
    DriveHost host(buffered_drive(write_buffer));
    const SimTime start = nvme::sim_now();
    REQUIRE(host.send_write(0, 16, std::byte{1}) != nullptr);
    DriveHost::run_for(SimTime::microseconds(50));
    const SentPtr sent = flush ? host.send(nvme::encode_flush(kNamespace)) : host.send_write(16, 1, std::byte{2});
    REQUIRE(host.run(sent).ok());
    CHECK(peak(host) <= write_buffer);
    return sent->at - start;
  };
  const csd_model::DriveConfig config = buffered_drive({});
  nvme::PcieLink link(config.link);
  const SimTime fetched = link.reserve_read(Bytes{64}, {}).arrival,
                list = link.reserve_read(Bytes{120}, fetched).arrival;
  const SimTime programmed = link.reserve_read(Bytes::kib(4), list).arrival + config.flash.command_time +
                             transfer_time(Bytes::kib(4), config.flash.channel_bandwidth) +
                             config.flash.program_latency;
  const SimTime first_page = link.reserve(nvme::LinkDirection::to_host, Bytes{16}, programmed).arrival;
  CHECK(second(Bytes::kib(64), false).ps == first_page.ps);
  CHECK(second(Bytes::kib(67), false).ps == first_page.ps);
  CHECK(second(Bytes::kib(68), false) < SimTime::microseconds(60));
  // A flush waits for all of them.
  CHECK(second(Bytes::kib(64), true) > first_page);
}

TEST_CASE("writes enter the buffer in their order, also those that would fit before others") {
  DriveHost host(buffered_drive(Bytes::kib(64)));
  std::vector<SentPtr> writes;
  const auto send = [&](std::uint64_t lba, std::uint32_t blocks) {
    writes.push_back(host.send_write(lba, blocks, std::byte(blocks)));
    DriveHost::run_for(SimTime::microseconds(30));  // a smaller write would arrive before a larger one
  };
  send(0, 15);
  send(16, 2);
  send(32, 1);
  CHECK(completed(writes) == 1);
  REQUIRE(host.run(writes[2]).ok());
  CHECK(writes[1]->at <= writes[2]->at);
  CHECK(host.drive().dram().used() == Bytes{});
  // What the buffer can never hold has its turn as well, and completes in flash.
  const SimTime start = nvme::sim_now();
  writes.clear();
  send(0, 16);
  send(16, 1);
  send(32, 17);
  CHECK(completed(writes) == 1);
  REQUIRE(host.run(writes[2]).ok());
  CHECK(writes[1]->at - start > host.drive().config().flash.program_latency);
  CHECK(writes[2]->at - writes[1]->at > host.drive().config().flash.program_latency);
  CHECK(peak(host) == Bytes::kib(64));
}

TEST_CASE("units of an open word line stay in the buffer while a program makes room, and leave it with theirs") {
  // Six units: a word line on its way to flash, and half of another. The next ones wait for the first program.
  DriveHost host(unit_drive(Bytes::kib(24)), 1, 256);
  const SimTime program = host.drive().config().flash.program_latency;
  const SimTime start = nvme::sim_now();
  std::vector<SentPtr> writes;
  for (std::uint32_t i = 0; i < 12; ++i) writes.push_back(host.send_write(i, 1, std::byte(i)));
  DriveHost::run_for(program - SimTime::microseconds(50));
  CHECK(completed(writes) == 6);
  CHECK(host.drive().dram().used() == Bytes::kib(24));
  DriveHost::run_for(SimTime::microseconds(150));
  // Four units have left: the seventh and eighth fill the second word line, the others begin a third.
  CHECK(completed(writes) == 10);
  CHECK(writes[6]->at - start > program);
  DriveHost::settle();
  CHECK(writes[10]->at - writes[6]->at > program - SimTime::microseconds(50));
  CHECK(completed(writes) == 12);
  CHECK(peak(host) == Bytes::kib(24));
}

TEST_CASE("writes whose parts enter and leave the buffer together complete as where somebody watches them one by one") {
  struct Watcher final : WorkObserver {
    void work(std::uint32_t, std::string_view, SimTime, SimTime, std::uint64_t) override {}
    void level(std::uint32_t, std::uint64_t value, SimTime) override { levels += value != last, last = value; }
    std::uint64_t levels = 0, last = 0;
  };
  const bool superblocks = GENERATE(false, true);
  const std::uint32_t units = GENERATE(24U, 60U, 200U);
  const std::uint64_t seed = GENERATE(1ULL, 2ULL, 3ULL);
  CAPTURE(superblocks, units, seed);
  const auto run = [&](WorkObserver* watcher) {
    auto config = unit_drive(Bytes::kib(4 * units), 3, superblocks);
    config.data = ftl::DataMode::timing;
    config.power_loss.protection = csd_model::CapacitorProtection{};
    DriveHost host(config, 2, 64);
    csd_model::DriveObservers observers;
    observers.write_buffer = watcher;
    host.drive().observe(observers);
    Rng rng(seed);
    std::vector<SentPtr> sent;
    for (int round = 0; round < 12; ++round) {
      for (int i = 0; i < 24; ++i) {
        const auto blocks = static_cast<std::uint32_t>(rng.below(3) == 0 ? 1 + rng.below(9) : 32 + 4 * rng.below(8));
        const auto first = static_cast<std::uint32_t>(4 * rng.below(250));
        sent.push_back(host.send_write(first, blocks, std::byte{1}, static_cast<std::uint16_t>(1 + rng.below(2))));
        if (rng.below(16) == 0) sent.push_back(host.send(nvme::encode_flush(kNamespace)));
      }
      if (round % 2 == 0) DriveHost::run_for(SimTime::microseconds(static_cast<std::int64_t>(rng.below(2000))));
      if (round % 3 == 0) DriveHost::settle();
    }
    DriveHost::settle();
    REQUIRE(completed(sent) == sent.size());
    std::vector<std::int64_t> times;
    for (const SentPtr& one : sent) times.push_back(one->at.ps);
    times.push_back(static_cast<std::int64_t>(peak(host).value));
    return times;
  };
  Watcher watcher;
  const std::vector<std::int64_t> watched = run(&watcher);
  CHECK(watcher.levels > 1000);
  CHECK(run(nullptr) == watched);
}

TEST_CASE("writes of one page complete as where each of them has a plan, because its bytes are carried") {
  const std::uint64_t seed = GENERATE(range(1, 13));
  CAPTURE(seed);
  const auto run = [&](ftl::DataMode data) {
    auto config = buffered_drive(Bytes::kib(seed % 3 == 0 ? 0 : seed % 3 == 1 ? 24 : 400));
    config.geometry.channels = 2;
    config.geometry.dies_per_channel = 1;
    config.geometry.blocks_per_plane = 12;
    config.kv_share = 0;
    config.data = data;
    config.block.allocation = seed % 4 == 0 ? ftl::PageAllocation::fixed : ftl::PageAllocation::dynamic;
    config.block.background_free_blocks = seed % 5 == 0 ? 3 : 0;
    config.block.gc_pace = seed % 6 == 1 ? ftl::GcPace::blocks : ftl::GcPace::steps;
    if (seed % 2 == 0) config.power_loss.protection = csd_model::CapacitorProtection{};
    if (seed % 4 == 3) config.flash.plane_mode = nfc::PlaneMode::independent_reads;
    if (seed == 7) config.lookup_time = SimTime::nanoseconds(300);
    if (seed == 9) config.dram_bandwidth = Bandwidth{400'000'000};
    // What comes between two slices of a simulation is served behind what has been decided ahead (EventLoop), as pages
    // of long reads are without bytes.
    const bool slices = seed % 2 == 0;
    DriveHost host(config, 2, 64);
    Rng rng(seed);
    std::vector<SentPtr> sent;
    const auto blocks = host.driver().name_space().nsze;
    for (int round = 0; round < 60; ++round) {
      for (int i = 0; i < 40; ++i) {
        const auto queue = static_cast<std::uint16_t>(1 + rng.below(2));
        const std::uint64_t what = rng.below(40);
        // Mostly to an eighth of the drive, so that blocks are collected while others are written.
        const std::uint64_t first = rng.below(rng.below(3) == 0 ? blocks - 4 : blocks / 8);
        const auto count = static_cast<std::uint32_t>(rng.below(10) == 0 ? 1 + rng.below(4) : 1);
        if (what < 30)
          sent.push_back(host.send_write(first, count, std::byte{1}, queue));
        else if (what < 39)
          sent.push_back(host.send_read(first, slices ? 1 : count, queue));
        else
          sent.push_back(host.send(nvme::encode_flush(kNamespace)));
      }
      if (slices && round % 2 == 0)
        DriveHost::run_for(SimTime::microseconds(static_cast<std::int64_t>(rng.below(3000))));
      if (!slices || round % 5 == 0) DriveHost::settle();
    }
    DriveHost::settle();
    REQUIRE(completed(sent) == sent.size());
    CHECK(host.drive().block_ftl().stats().gc_erases > 50);
    std::vector<std::int64_t> times;
    for (const SentPtr& one : sent) times.push_back(one->at.ps);
    times.push_back(static_cast<std::int64_t>(peak(host).value));
    return times;
  };
  CHECK(run(ftl::DataMode::timing) == run(ftl::DataMode::carried));
}

TEST_CASE("no buffer is too small: random writes of several queues all complete, within the buffer") {
  struct Shape {
    std::uint32_t pages;
    bool superblocks;
  };
  const auto shape = GENERATE(Shape{1, false}, Shape{3, false}, Shape{3, true});
  const std::uint32_t line = 4 * shape.pages * (shape.superblocks ? 2 : 1);
  const auto policy = GENERATE(csd_model::FlushPolicy::immediate, csd_model::FlushPolicy::threshold);
  for (const std::uint32_t units : {0U, 1U, line - 1, line, 2 * line + 3}) {
    if (units == 0 && (shape.superblocks || policy != csd_model::FlushPolicy::immediate)) continue;
    const std::uint64_t seed = 100 * line + units;
    CAPTURE(seed, line, units, shape.superblocks);
    auto config = unit_drive(Bytes::kib(4 * units), shape.pages, shape.superblocks);
    if (policy == csd_model::FlushPolicy::threshold)
      config.flush = {.policy = policy, .threshold = Bytes::kib(4 * units), .idle_time = {}};
    DriveHost host(config, 4, 64);
    Rng rng(seed);
    std::vector<SentPtr> sent;
    std::map<std::uint32_t, std::byte> content;
    for (std::uint32_t round = 0; round < 30; ++round) {
      // Writes in flight together touch different blocks; they are of one unit, a few, or more than the buffer holds.
      std::uint32_t block = static_cast<std::uint32_t>(rng.below(16));
      for (std::uint32_t i = 0; i < 40 && block < 1100; ++i) {
        const std::uint32_t length = rng.below(3) == 0 ? 1 + static_cast<std::uint32_t>(rng.below(line + 2)) : 1;
        const auto value = std::byte(1 + rng.below(255));
        sent.push_back(host.send_write(block, length, value, static_cast<std::uint16_t>(1 + rng.below(4))));
        for (std::uint32_t b = block; b < block + length; ++b) content[b] = value;
        block += length + static_cast<std::uint32_t>(rng.below(24));
        if (rng.below(16) == 0) sent.push_back(host.send(nvme::encode_flush(kNamespace)));
      }
      if (round % 3 == 0) DriveHost::run_for(SimTime::microseconds(200));
      DriveHost::settle();
      REQUIRE(completed(sent) == sent.size());
    }
    CHECK(std::ranges::all_of(sent, [](const SentPtr& s) { return s->status.ok(); }));
    CHECK(peak(host) <= Bytes::kib(4 * units));
    for (const auto& [block, value] : content) {
      if (block % 7 != 0) continue;
      const SentPtr read = host.send_read(block, 1);
      REQUIRE(host.run(read).ok());
      CHECK(*host.at(read->buffer.address) == value);
    }
    REQUIRE(host.run(nvme::encode_flush(kNamespace)).ok());
    CHECK(host.drive().dram().used() == Bytes{});
    CHECK(host.integrity_errors() == 0);
  }
}

}  // namespace test_write_buffer
