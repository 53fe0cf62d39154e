// Block commands through the drive against a map, and the latency of one read in parts.
#include <catch2/catch.hpp>

#include <iostream>
#include <map>
#include <set>

#include "tests/drive/drive_host.h"

namespace test_block {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

namespace {

csd_model::DriveConfig block_drive(Bytes page_size, Bytes write_buffer) {
  auto c = tiny_drive();
  c.geometry = {.channels = 2,
                .dies_per_channel = 1,
                .planes_per_die = 2,
                .blocks_per_plane = 16,
                .pages_per_block = 8,
                .page_size = page_size};
  c.kv_share = 0.25;
  c.write_buffer = write_buffer;
  c.block.check = ftl::PageCheck::key_and_crc;
  return c;
}

/// A closed loop of random commands on several queues. Commands that are outstanding together touch different blocks:
/// NVMe orders nothing else.
class RandomBlocks {
 public:
  RandomBlocks(DriveHost& host, std::uint64_t seed)
      : host_(host), rng_(seed), blocks_(host.driver().name_space().nsze) {}

  void run(std::uint32_t commands, std::uint32_t depth) {
    left_ = commands;
    for (std::uint32_t i = 0; i < depth; ++i) next();
    DriveHost::settle();
    REQUIRE(left_ == 0);
    REQUIRE(busy_.empty());
    // Everything once more, in large reads.
    for (std::uint64_t lba = 0; lba < blocks_; lba += 16) {
      const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(16, blocks_ - lba));
      const SentPtr read = host_.send_read(lba, count);
      REQUIRE(host_.run(read) == status::success);
      compare(read->buffer, lba, count);
    }
    CHECK(wrong_ == 0);
    CHECK(failed_ == 0);
  }

 private:
  std::vector<std::byte> fill(std::uint64_t version) const {
    std::vector<std::byte> block(4096);
    for (std::size_t i = 0; i < block.size(); ++i)
      block[i] = static_cast<std::byte>(splitmix64(version * 64 + i / 512) >> (i % 8 * 8));
    return block;
  }

  void compare(nvme::Segment buffer, std::uint64_t lba, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto entry = oracle_.find(lba + i);
      const auto expected = entry == oracle_.end() ? std::vector(4096, std::byte{0}) : fill(entry->second);
      if (host_.get<std::byte>(buffer.address + Bytes{i * 4096u}, 4096) != expected) ++wrong_;
    }
  }

  void next() {
    if (left_ == 0) return;
    --left_;
    const auto queue = static_cast<std::uint16_t>(1 + rng_.below(host_.driver().queues()));
    const std::uint64_t dice = rng_.below(100);
    if (dice < 3) return submit(nvme::encode_flush(kNamespace), {}, queue, {}, [](nvme::Segment) {});

    std::uint64_t lba = 0;
    std::uint32_t count = 0;
    do {
      count = static_cast<std::uint32_t>(1 + rng_.below(9));
      lba = rng_.below(blocks_ - count + 1);
    } while (overlaps(lba, count));
    std::vector<std::uint64_t> range;
    for (std::uint32_t i = 0; i < count; ++i) range.push_back(lba + i);
    const nvme::Segment b = host_.buffer(Bytes::kib(4) * count);
    if (dice < 50) {
      std::vector<std::uint64_t> versions;
      for (std::uint32_t i = 0; i < count; ++i) {
        versions.push_back(++version_);
        host_.put(b.address + Bytes{i * 4096u}, fill(version_));
      }
      submit(nvme::encode_block_io(nvme::nvm_opcode::write, kNamespace, nvme::Lba{lba}, count), b, queue, range,
             [this, range, versions](nvme::Segment) {
               for (std::size_t i = 0; i < range.size(); ++i) oracle_[range[i]] = versions[i];
             });
    } else if (dice < 60) {
      // Two ranges, the second one empty.
      host_.put(b.address, std::vector<nvme::DsmRange>{{0, count, lba}, {0, 0, lba}});
      submit(nvme::encode_deallocate(kNamespace, 2), {b.address, Bytes{32}}, queue, range,
             [this, range](nvme::Segment) {
               for (const std::uint64_t block : range)
                 if (page_within(block, range)) oracle_.erase(block);
             });
    } else {
      submit(nvme::encode_block_io(nvme::nvm_opcode::read, kNamespace, nvme::Lba{lba}, count), b, queue, range,
             [this, lba, count](nvme::Segment buffer) { compare(buffer, lba, count); });
    }
  }

  /// Whether all blocks of a block's page or unit are in the range: deallocated blocks of others keep their bytes.
  bool page_within(std::uint64_t block, const std::vector<std::uint64_t>& range) const {
    const csd_model::DriveConfig& drive = host_.platform.config().drive;
    const Bytes mapped = drive.mapping_unit.value > 0 ? drive.mapping_unit : drive.geometry.page_size;
    const std::uint64_t blocks = std::max<std::uint64_t>(1, mapped.value / 4096);
    const std::uint64_t first = block / blocks * blocks;
    return range.front() <= first && first + blocks - 1 <= range.back();
  }

  bool overlaps(std::uint64_t lba, std::uint32_t count) const {
    const auto it = busy_.lower_bound(lba);
    return it != busy_.end() && *it < lba + count;
  }

  void submit(const nvme::SubmissionEntry& entry, nvme::Segment b, std::uint16_t queue,
              const std::vector<std::uint64_t>& range, const std::function<void(nvme::Segment)>& done) {
    busy_.insert(range.begin(), range.end());
    const std::span<const nvme::Segment> segments(&b, b.length.value == 0 ? 0 : 1);
    host_.driver().submit(nvme::QueueId{queue}, entry, segments,
                          [this, b, range, done](const nvme::CompletionEntry& cqe, SimTime) {
                            for (const std::uint64_t block : range) busy_.erase(block);
                            if (!cqe.code().ok()) ++failed_;
                            done(b);
                            next();
                          });
  }

  DriveHost& host_;
  Rng rng_;
  std::uint64_t blocks_;
  std::uint64_t version_ = 0;
  std::uint32_t left_ = 0;
  std::uint64_t wrong_ = 0;
  std::uint64_t failed_ = 0;
  std::map<std::uint64_t, std::uint64_t> oracle_;  ///< block to version of its content
  std::set<std::uint64_t> busy_;
};

}  // namespace

TEST_CASE("random block commands on four queues equal a map") {
  const auto page = GENERATE(Bytes::kib(1), Bytes::kib(4), Bytes::kib(16));
  const auto write_buffer = GENERATE(Bytes{}, Bytes::kib(64));
  const auto policy =
      GENERATE(csd_model::FlushPolicy::immediate, csd_model::FlushPolicy::threshold, csd_model::FlushPolicy::idle);
  if (write_buffer.value == 0 && policy != csd_model::FlushPolicy::immediate) return;
  const std::uint64_t seed = page.value + write_buffer.value + 3;
  INFO("seed " << seed);
  auto config = block_drive(page, write_buffer);
  config.flush = {.policy = policy, .threshold = Bytes::kib(48), .idle_time = SimTime::microseconds(20)};
  config.lookup_time = SimTime::nanoseconds(write_buffer.value == 0 ? 0 : 200);
  DriveHost host(config, 4, 16);
  RandomBlocks work(host, seed);
  const std::uint64_t before = host.driver().issued();
  work.run(1500, 24);
  CHECK(host.driver().issued() == host.driver().completed());
  CHECK(host.driver().issued() > before + 1500);
  CHECK(host.integrity_errors() == 0);
  CHECK(host.drive().block_ftl().stats().gc_erases > 0);
  if (policy == csd_model::FlushPolicy::threshold) host.run(nvme::encode_flush(kNamespace));
  CHECK(host.drive().dram().used() == Bytes{});
  CHECK(host.drive().controller().commands_inside() == 0);
}

TEST_CASE("random block commands equal a map where several mapping units share a page") {
  const auto unit = GENERATE(Bytes::kib(4), Bytes::kib(8));
  const auto policy =
      GENERATE(csd_model::FlushPolicy::immediate, csd_model::FlushPolicy::threshold, csd_model::FlushPolicy::idle);
  const std::uint64_t seed = unit.value + 5;
  INFO("seed " << seed);
  auto config = block_drive(Bytes::kib(16), Bytes::kib(256));
  config.kv_share = 0;
  config.mapping_unit = unit;
  if (unit == Bytes::kib(4)) config.block.codeword = Bytes::kib(2);
  config.flush = {.policy = policy, .threshold = Bytes::kib(48), .idle_time = SimTime::microseconds(20)};
  DriveHost host(config, 4, 16);
  RandomBlocks work(host, seed);
  work.run(1500, 24);
  CHECK(host.driver().issued() == host.driver().completed());
  CHECK(host.integrity_errors() == 0);
  const ftl::BlockFtlStats& s = host.drive().block_ftl().stats();
  CHECK(s.gc_erases > 0);
  // A flush fills the open pages of the host; those of collection stay open.
  host.run(nvme::encode_flush(kNamespace));
  CHECK(host.drive().dram().used() == Bytes{});
  std::uint64_t programs = 0;
  for (const auto& of_class : host.drive().flash_statistics().ops)
    programs += of_class[static_cast<std::size_t>(PageOpKind::program)];
  // Those that a flush saves trims with.
  programs -= host.drive().flash_statistics().ops[static_cast<std::size_t>(OpClass::map)][1];
  const std::uint64_t units = Bytes::kib(16).value / unit.value,
                      written = s.host_pages_written + s.gc_pages_moved + s.padded_pages;
  CHECK(s.padded_pages > 0);
  CHECK(programs <= written / units);
  CHECK(programs + 2 * config.geometry.planes() >= written / units);
}

/// Random commands until blocks are collected; afterwards all data are in flash.
void run_random_blocks(DriveHost& host, std::uint64_t seed) {
  RandomBlocks work(host, seed);
  work.run(1000, 24);
  CHECK(host.driver().issued() == host.driver().completed());
  CHECK(host.integrity_errors() == 0);
  CHECK(host.drive().block_ftl().stats().gc_erases > 0);
  host.run(nvme::encode_flush(kNamespace));
  CHECK(host.drive().dram().used() == Bytes{});
}

TEST_CASE("random block commands equal a map where word lines of several pages are programmed together, or padded") {
  const auto write_buffer = GENERATE(Bytes{}, Bytes::kib(256));
  const auto unit = GENERATE(Bytes{}, Bytes::kib(4));
  const auto pages = GENERATE(1u, 2u);
  if (unit.value == 0 && pages == 1) return;
  const std::uint64_t seed = unit.value + write_buffer.value + pages;
  INFO("seed " << seed);
  auto config = block_drive(Bytes::kib(16), write_buffer);
  config.kv_share = 0;
  config.mapping_unit = unit;
  config.flash.word_line_pages = pages;
  DriveHost host(config, 4, 16);
  run_random_blocks(host, seed);
}

TEST_CASE(
    "random block commands equal a map where blocks span the planes of a die, which programs and erases them "
    "together") {
  const auto unit = GENERATE(Bytes{}, Bytes::kib(4));
  const auto pages = GENERATE(1u, 2u);
  const auto mode = GENERATE(nfc::PlaneMode::independent, nfc::PlaneMode::independent_reads);
  const auto fidelity = GENERATE(csd_model::Fidelity::fast, csd_model::Fidelity::at);
  const std::uint64_t seed = unit.value + pages;
  INFO("seed " << seed);
  auto config = block_drive(Bytes::kib(16), Bytes::kib(256));
  config.kv_share = 0;
  config.mapping_unit = unit;
  config.superblocks = true;
  config.flash.word_line_pages = pages;
  config.flash.plane_mode = mode;
  config.flash.plane_order = nfc::PlaneOrder::reads_first;
  config.flash.suspend = nfc::SuspendConfig{.latency = {}};
  config.fidelity = fidelity;
  DriveHost host(config, 4, 16);
  run_random_blocks(host, seed);
  const nfc::FlashStatistics& s = host.drive().flash_statistics();
  std::uint64_t writes = 0;
  for (const auto& of_class : s.ops) writes += of_class[1] + of_class[2];
  CHECK(writes > 100);
  // One of the two operations of the planes of a die always joins the other.
  CHECK(s.joined_ops == (mode == nfc::PlaneMode::independent ? 0 : writes / 2));
}

TEST_CASE("a buffered write completes before it is in flash, flush after") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(4);
  const auto run = [&](Bytes write_buffer) {
    config.write_buffer = write_buffer;
    DriveHost host(config);
    const SimTime start = nvme::sim_now();
    const SentPtr write = host.send_write(0, 1, std::byte{1});
    DriveHost::run_for(SimTime::microseconds(10));
    const SentPtr flush = host.send(nvme::encode_flush(kNamespace));
    host.run(write);
    return std::pair{write->at - start, flush->at - start};
  };
  const auto [buffered, buffered_flush] = run(Bytes::kib(64));
  CHECK(buffered < SimTime::microseconds(10));
  CHECK(buffered_flush > config.flash.program_latency);
  const auto [through, through_flush] = run({});
  CHECK(through > config.flash.program_latency);
  CHECK(through_flush < through);  // flush waits for completed writes only
}

TEST_CASE("buffered writes go to flash by the flush policy") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(4);
  config.write_buffer = Bytes::kib(64);
  const auto programs = [](DriveHost& host) {
    std::uint64_t sum = 0;
    for (const auto& of_class : host.drive().flash_statistics().ops)
      sum += of_class[static_cast<std::size_t>(PageOpKind::program)];
    return sum;
  };
  const auto write = [](DriveHost& host, std::uint32_t from, std::uint32_t count) {
    for (std::uint32_t i = from; i < from + count; ++i) REQUIRE(host.run(host.send_write(i, 1, std::byte(i))).ok());
  };
  {
    config.flush = {.policy = csd_model::FlushPolicy::threshold, .threshold = Bytes::kib(32), .idle_time = {}};
    DriveHost host(config);
    write(host, 0, 7);
    CHECK(programs(host) == 0);
    // What has not been programmed is read from DRAM.
    const SimTime start = nvme::sim_now();
    const SentPtr read = host.send_read(3, 1);
    REQUIRE(host.run(read).ok());
    CHECK(read->at - start < config.flash.read_latency);
    CHECK(*host.at(read->buffer.address) == std::byte{3});
    // A write to a page that is held changes it there.
    REQUIRE(host.run(host.send_write(3, 1, std::byte{33})).ok());
    const SentPtr again = host.send_read(3, 1);
    REQUIRE(host.run(again).ok());
    CHECK(*host.at(again->buffer.address) == std::byte{33});
    CHECK(host.drive().block_ftl().stats().coalesced_pages == 1);
    CHECK(host.drive().dram().used() == Bytes::kib(28));
    write(host, 7, 1);
    CHECK(programs(host) == 8);
    CHECK(host.drive().dram().used() == Bytes{});
    // Flush does not wait for the threshold.
    write(host, 8, 2);
    CHECK(programs(host) == 8);
    REQUIRE(host.run(nvme::encode_flush(kNamespace)).ok());
    CHECK(programs(host) == 10);
    // A write that finds no room has those that are held programmed first.
    write(host, 20, 7);
    REQUIRE(host.run(host.send_write(32, 16, std::byte{1})).ok());
    CHECK(programs(host) == 10 + 7 + 16);
  }
  config.flush = {.policy = csd_model::FlushPolicy::idle, .threshold = {}, .idle_time = SimTime::microseconds(100)};
  DriveHost host(config);
  for (std::uint32_t i = 0; i < 5; ++i) {
    host.send_write(i, 1, std::byte(i));
    DriveHost::run_for(SimTime::microseconds(90));
    CHECK(programs(host) == 0);
  }
  DriveHost::run_for(SimTime::microseconds(20));
  CHECK(programs(host) == 5);
}

TEST_CASE("flush waits for the writes that were complete before it, not for later ones") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(4);
  config.write_buffer = Bytes::kib(64);
  DriveHost host(config);
  // A new write every 100 us keeps the buffer in use all the time: a program takes 600 us.
  std::vector<SentPtr> writes{host.send_write(0, 1, std::byte{1})};
  DriveHost::run_for(SimTime::microseconds(50));
  REQUIRE(writes[0]->done);
  const SentPtr flush = host.send(nvme::encode_flush(kNamespace));
  for (std::uint32_t i = 1; i < 30; ++i) {
    DriveHost::run_for(SimTime::microseconds(100));
    writes.push_back(host.send_write(i, 1, std::byte{1}));
  }
  CHECK(flush->done);
  CHECK(host.run(flush) == status::success);
  CHECK(flush->at < SimTime::milliseconds(1));
}

TEST_CASE("an unloaded 4 KiB read takes the sum of its parts, to the picosecond") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(4);
  config.link.latency = GENERATE(SimTime{}, SimTime::nanoseconds(250));
  config.nvme.firmware_time = SimTime::nanoseconds(1200);
  config.lookup_time = SimTime::nanoseconds(170);
  config.pipeline_time = SimTime::nanoseconds(3300);
  config.flash.ecc_latency = SimTime::nanoseconds(900);
  DriveHost host(config);
  REQUIRE(host.run(host.send_write(3, 1, std::byte{7})) == status::success);
  const SimTime start = nvme::sim_now();
  const SentPtr read = host.send_read(3, 1);
  REQUIRE(host.run(read) == status::success);

  // Generation 3, 4 lanes: 8 GT/s, 128b/130b. A packet costs 28 bytes beside its payload of up to 256.
  const auto wire = [](std::uint64_t bytes) {
    const unsigned __int128 bits = static_cast<unsigned __int128>(bytes) * 8 * 130 * 1'000'000'000'000ULL;
    const unsigned __int128 rate = static_cast<unsigned __int128>(8'000'000'000ULL) * 128 * 4;
    return SimTime{static_cast<std::int64_t>((bits + rate - 1) / rate)};
  };
  const SimTime one_way = config.link.latency;
  const SimTime fetch = wire(28) + one_way + wire(64 + 28) + one_way;  // read request, submission entry
  const SimTime firmware = config.nvme.firmware_time + config.pipeline_time + config.lookup_time;
  const SimTime flash = config.flash.command_time + config.flash.read_latency + config.flash.data_out_setup +
                        transfer_time(Bytes::kib(4), config.flash.channel_bandwidth) + config.flash.ecc_latency;
  // The completion follows the data on the link.
  const SimTime data_and_completion = wire(4096 + 16 * 28) + wire(16 + 28) + one_way;
  CHECK((read->at - start).ps == (fetch + firmware + flash + data_and_completion).ps);
}

}  // namespace test_block
