// Data that survive a loss of power: Flush, Force Unit Access, the volatile write cache and shutdown, by their times.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "nvme_if/core/pcie_link.h"
#include "nvme_if/spec/identify.h"
#include "tests/drive/drive_host.h"

namespace test_durability {

using namespace csdsim;
using namespace csdsim::test;
using nvme::LinkDirection;
namespace status = nvme::status;

namespace {

constexpr Bytes kUnit = Bytes::kib(4);

/// A word line of a plane: `units` mapping units in each of its `pages` pages.
struct Line {
  std::uint32_t units, pages;
  std::uint32_t size() const { return units * pages; }
};

csd_model::DriveConfig drive_with(Line line, Bytes write_buffer, bool capacitors = false) {
  auto config = tiny_drive();
  config.geometry.page_size = kUnit * line.units;
  config.geometry.blocks_per_plane = 16;
  config.geometry.pages_per_block = 24;
  config.kv_share = 0;
  config.write_buffer = write_buffer;
  if (line.size() > 1) config.mapping_unit = kUnit;
  config.flash.word_line_pages = line.pages;
  config.link.latency = SimTime::nanoseconds(150);
  if (capacitors) config.power_loss.protection = csd_model::CapacitorProtection{};
  return config;
}

nvme::SubmissionEntry with_fua(nvme::SubmissionEntry entry) {
  entry.cdw12 |= nvme::kForceUnitAccess;
  return entry;
}

SentPtr send_fua_write(DriveHost& host, std::uint64_t lba, std::uint32_t blocks, std::byte fill) {
  const nvme::Segment buffer = host.buffer(host.driver().block_size() * blocks);
  std::fill_n(host.at(buffer.address), buffer.length.value, fill);
  return host.send(with_fua(nvme::encode_block_io(nvme::nvm_opcode::write, kNamespace, nvme::Lba{lba}, blocks)),
                   buffer);
}

SentPtr send_flush(DriveHost& host) { return host.send(nvme::encode_flush(kNamespace)); }

/// From the moment at which data is in the drive: the word line crosses the channel and is programmed as a whole,
/// whatever part of it holds data.
SimTime program_time(const csd_model::DriveConfig& config) {
  return config.flash.command_time +
         transfer_time(config.geometry.page_size * config.flash.word_line_pages, config.flash.channel_bandwidth) +
         config.flash.program_latency;
}

/// The command completes at `at` exactly: a picosecond earlier it has not.
void check_completes_at(const SentPtr& sent, SimTime at) {
  // sc_start() runs what comes before its end.
  DriveHost::run_for(at - nvme::sim_now());
  CHECK_FALSE(sent->done);
  DriveHost::run_for(SimTime{1});
  CHECK(sent->done);
  DriveHost::settle();
  CHECK(sent->status == status::success);
  CHECK(sent->at.ps == at.ps);
}

std::uint64_t programs(DriveHost& host) {
  std::uint64_t all = 0;
  for (const auto& of_class : host.drive().flash_statistics().ops)
    all += of_class[static_cast<std::size_t>(PageOpKind::program)];
  return all;
}

const auto kLines = {Line{1, 1}, Line{3, 1}, Line{4, 3}};

}  // namespace

TEST_CASE("a write with FUA is complete when its word line is programmed, with what is left of it empty") {
  for (const Line line : kLines) {
    CAPTURE(line.units, line.pages);
    const auto config = drive_with(line, Bytes::kib(256));
    DriveHost host(config);
    const SimTime start = nvme::sim_now();
    const SentPtr write = send_fua_write(host, 0, 1, std::byte{5});
    nvme::PcieLink link(config.link);
    const SimTime fetched = link.reserve_read(Bytes{64}, {}).arrival;
    const SimTime programmed = link.reserve_read(kUnit, fetched).arrival + program_time(config);
    check_completes_at(write, start + link.reserve(LinkDirection::to_host, Bytes{16}, programmed).arrival);
    CHECK(host.drive().block_ftl().stats().padded_pages == line.size() - 1);
    CHECK(host.drive().dram().used() == Bytes{});
    // The bytes are those that were written, and the next write begins another word line.
    const SentPtr read = host.send_read(0, 1);
    REQUIRE(host.run(read) == status::success);
    CHECK(*host.at(read->buffer.address) == std::byte{5});
    REQUIRE(host.run(host.send_write(1, 1, std::byte{6})) == status::success);
    CHECK(host.drive().block_ftl().lookup(ftl::LogicalPage{1}).value % line.size() == 0);
  }
}

TEST_CASE("capacitors make a write with FUA as fast as any, and a flush has nothing to do") {
  for (const Line line : kLines) {
    CAPTURE(line.units, line.pages);
    const auto time = [&](bool capacitors, bool fua) {
      DriveHost host(drive_with(line, Bytes::kib(256), capacitors));
      const SimTime start = nvme::sim_now();
      const SentPtr write = fua ? send_fua_write(host, 0, 1, std::byte{5}) : host.send_write(0, 1, std::byte{5});
      REQUIRE(host.run(write) == status::success);
      CHECK(host.drive().block_ftl().stats().padded_pages == (fua && !capacitors ? line.size() - 1 : 0));
      return write->at - start;
    };
    CHECK(time(true, true).ps == time(true, false).ps);
    CHECK(time(true, true).ps == time(false, false).ps);
    CHECK(time(false, true) > program_time(drive_with(line, Bytes::kib(256))));
  }
}

TEST_CASE("a flush fills the word lines that are not full and ends with their programs") {
  for (const Line line : kLines) {
    CAPTURE(line.units, line.pages);
    const auto config = drive_with(line, Bytes::kib(256));
    DriveHost host(config);
    // One unit. With one unit a word line its program is under way already.
    const SentPtr write = host.send_write(0, 1, std::byte{5});
    DriveHost::run_for(SimTime::microseconds(50));
    REQUIRE(write->done);
    nvme::PcieLink link(config.link);
    const SimTime start = line.size() == 1 ? write->at : nvme::sim_now();
    const SentPtr flush = send_flush(host);
    SimTime programmed;
    if (line.size() == 1) {
      // The write's data was in the drive when its completion went over the link.
      nvme::PcieLink before(config.link);
      const SimTime data = before.reserve_read(kUnit, before.reserve_read(Bytes{64}, {}).arrival).arrival;
      const SimTime completion = before.reserve(LinkDirection::to_host, Bytes{16}, data).arrival;
      programmed = program_time(config) - (completion - data);
    } else {
      programmed = link.reserve_read(Bytes{64}, {}).arrival + program_time(config);
    }
    check_completes_at(flush, start + link.reserve(LinkDirection::to_host, Bytes{16}, programmed).arrival);
    CHECK(host.drive().block_ftl().stats().padded_pages == line.size() - 1);
    CHECK(programs(host) == 1);
    // A second one finds nothing to write.
    const SimTime again = nvme::sim_now();
    const SentPtr second = send_flush(host);
    REQUIRE(host.run(second) == status::success);
    CHECK(second->at - again < SimTime::microseconds(5));
    CHECK(programs(host) == 1);
  }
}

TEST_CASE("with capacitors a flush ends at once, and leaves word lines open") {
  DriveHost host(drive_with({4, 3}, Bytes::kib(256), true));
  REQUIRE(host.run(host.send_write(0, 1, std::byte{5})) == status::success);
  const SimTime start = nvme::sim_now();
  const SentPtr flush = send_flush(host);
  REQUIRE(host.run(flush) == status::success);
  CHECK(flush->at - start < SimTime::microseconds(5));
  CHECK(programs(host) == 0);
}

TEST_CASE("a flush waits for a word line that the buffer has let go, and for plans that are held back") {
  SECTION("let go") {
    // The buffer holds one unit. The first one leaves it for the second one, with its word line open. Both lines are on
    // planes of one channel, which that of the second one crosses before that of the first one.
    auto config = drive_with({4, 1}, kUnit);
    config.block.allocation = ftl::PageAllocation::fixed;
    DriveHost host(config);
    for (const std::uint64_t lba : {16, 0}) REQUIRE(host.run(host.send_write(lba, 1, std::byte{5})).ok());
    const FlashGeometry& geometry = config.geometry;
    const PhysicalPageAddress first = host.drive().block_ftl().lookup(ftl::LogicalPage{16}),
                              second = host.drive().block_ftl().lookup(ftl::LogicalPage{0});
    REQUIRE(second < first);
    const auto channel = [&](PhysicalPageAddress unit) {
      return geometry.channel_of(geometry.plane_of(PhysicalPageAddress{unit.value / 4}));
    };
    REQUIRE(channel(first) == channel(second));
    REQUIRE(programs(host) == 0);
    const SimTime start = nvme::sim_now();
    const SentPtr flush = send_flush(host);
    REQUIRE(host.run(flush) == status::success);
    CHECK(flush->at - start > program_time(config) + transfer_time(geometry.page_size, config.flash.channel_bandwidth));
    CHECK(programs(host) == 2);
  }
  SECTION("held back") {
    auto config = drive_with({1, 1}, Bytes::kib(256));
    config.flush = {.policy = csd_model::FlushPolicy::idle, .threshold = {}, .idle_time = SimTime::milliseconds(500)};
    DriveHost host(config);
    const SentPtr write = host.send_write(0, 1, std::byte{5});
    DriveHost::run_for(SimTime::milliseconds(5));
    REQUIRE(write->done);
    REQUIRE(programs(host) == 0);
    const SimTime start = nvme::sim_now();
    const bool flushes = GENERATE(true, false);
    // A write with FUA to the same page, which is in the buffer, is no new page there.
    const SentPtr sent = flushes ? send_flush(host) : send_fua_write(host, 0, 1, std::byte{6});
    DriveHost::run_for(SimTime::milliseconds(5));
    CHECK(sent->done);
    CHECK(sent->at - start > program_time(config));
    CHECK(programs(host) == 1);
  }
}

TEST_CASE("a read with FUA has its pages programmed first") {
  for (const Line line : kLines) {
    const auto config = drive_with(line, Bytes::kib(256));
    DriveHost host(config);
    REQUIRE(host.send_write(0, 1, std::byte{5}) != nullptr);
    DriveHost::run_for(SimTime::microseconds(50));
    const SimTime start = nvme::sim_now();
    const SentPtr read = host.send(with_fua(nvme::encode_block_io(nvme::nvm_opcode::read, kNamespace, nvme::Lba{0}, 1)),
                                   host.buffer(kUnit));
    REQUIRE(host.run(read) == status::success);
    CHECK(*host.at(read->buffer.address) == std::byte{5});
    CHECK(read->at - start > config.flash.program_latency - SimTime::microseconds(60) + config.flash.read_latency);
    CHECK(programs(host) == 1);
  }
}

TEST_CASE("writes with FUA that are larger than the buffer, on several planes, all complete in flash") {
  const auto data = GENERATE(ftl::DataMode::carried, ftl::DataMode::timing);
  for (const Line line : kLines) {
    auto config = drive_with(line, kUnit * 4);
    config.data = data;
    DriveHost host(config);
    const std::uint32_t blocks = 40;
    const SentPtr write = send_fua_write(host, 0, blocks, std::byte{7});
    REQUIRE(host.run(write) == status::success);
    CHECK(host.drive().dram().used() == Bytes{});
    const std::uint64_t done = programs(host);
    const SentPtr flush = send_flush(host);
    REQUIRE(host.run(flush) == status::success);
    CHECK(programs(host) == done);  // nothing was left
    if (data != ftl::DataMode::carried) continue;
    const SentPtr read = host.send_read(0, blocks);
    REQUIRE(host.run(read) == status::success);
    for (std::uint32_t block = 0; block < blocks; ++block)
      CHECK(*host.at(read->buffer.address + kUnit * block) == std::byte{7});
  }
}

namespace {

nvme::IdentifyController identify(DriveHost& host) {
  const nvme::Segment page = host.buffer(Bytes::kib(4));
  REQUIRE(host.run(nvme::encode_identify(nvme::cns::identify_controller), page, 0) == status::success);
  return host.get<nvme::IdentifyController>(page.address, 1)[0];
}

}  // namespace

TEST_CASE("Set Features switches the volatile cache off: what it holds is programmed, and writes reach flash first") {
  const auto config = drive_with({4, 1}, Bytes::kib(256));
  DriveHost host(config);
  CHECK((identify(host).vwc & 1) == 1);
  const SentPtr get = host.send(nvme::encode_get_features(nvme::feature::volatile_write_cache), {}, 0);
  REQUIRE(host.run(get) == status::success);
  CHECK(get->dw0 == nvme::kWriteCacheEnabled);
  REQUIRE(host.run(host.send_write(0, 1, std::byte{5})) == status::success);
  REQUIRE(programs(host) == 0);

  SimTime start = nvme::sim_now();
  const SentPtr off = host.send(nvme::encode_set_features(nvme::feature::volatile_write_cache, 0), {}, 0);
  REQUIRE(host.run(off) == status::success);
  CHECK(off->at - start > program_time(config));
  CHECK(programs(host) == 1);

  start = nvme::sim_now();
  const SentPtr through = host.send_write(1, 1, std::byte{6});
  REQUIRE(host.run(through) == status::success);
  CHECK(through->at - start > program_time(config));
  CHECK(programs(host) == 2);

  REQUIRE(host.run(nvme::encode_set_features(nvme::feature::volatile_write_cache, 1), {}, 0) == status::success);
  start = nvme::sim_now();
  const SentPtr buffered = host.send_write(2, 1, std::byte{7});
  REQUIRE(host.run(buffered) == status::success);
  CHECK(buffered->at - start < config.flash.program_latency);
}

TEST_CASE("a drive without a volatile cache says so, and has no feature to switch it off") {
  const bool capacitors = GENERATE(true, false);
  DriveHost host(drive_with({1, 1}, capacitors ? Bytes::kib(256) : Bytes{}, capacitors));
  const nvme::IdentifyController id = identify(host);
  CHECK((id.vwc & 1) == 0);
  CHECK((id.vwc & nvme::kFlushesAllNamespaces) == nvme::kFlushesAllNamespaces);
  CHECK(id.awun == 0);
  CHECK(id.awupf == 0);
  CHECK(id.cntrltype == 1);
  const std::string name(id.subnqn.data());
  CHECK(name.starts_with("nqn.2014-08.org.nvmexpress:uuid:"));
  CHECK(name.size() == 32 + 36);
  CHECK(host.run(nvme::encode_set_features(nvme::feature::volatile_write_cache, 0), {}, 0) == status::invalid_field);
  // Whatever nsid a Flush may have, it succeeds.
  CHECK(host.run(nvme::encode_flush(kNamespace)) == status::success);
  CHECK(host.run(nvme::encode_flush(nvme::NamespaceId{0xFFFF'FFFF})) == status::success);
}

namespace {

/// Writes CC and returns when CSTS says that the shutdown is complete, at most after 100 ms.
SimTime shutdown_time(DriveHost& host, std::uint8_t kind) {
  const SimTime start = nvme::sim_now();
  nvme::Cc cc = nvme::Cc::decode(host.read_register(nvme::reg::cc));
  cc.shn = kind;
  host.write_register(nvme::reg::cc, cc.encode());
  for (int step = 0; step < 100'000; ++step) {
    if (nvme::Csts::decode(host.read_register(nvme::reg::csts)).shst == nvme::ShutdownStatus::complete)
      return nvme::sim_now() - start;
    DriveHost::run_for(SimTime::microseconds(1));
  }
  FAIL("the shutdown does not end");
  return {};
}

}  // namespace

TEST_CASE("a normal shutdown is complete when all that was written is in flash, an abrupt one at once") {
  for (const bool capacitors : {false, true}) {
    const auto config = drive_with({4, 1}, Bytes::kib(256), capacitors);
    CAPTURE(capacitors);
    {
      DriveHost host(config);
      REQUIRE(host.run(host.send_write(0, 2, std::byte{5})) == status::success);
      REQUIRE(programs(host) == 0);
      const SimTime time = shutdown_time(host, nvme::kNormalShutdown);
      CHECK(time >= program_time(config));
      CHECK(time <= program_time(config) + SimTime::microseconds(1));
      CHECK(programs(host) == 1);
    }
    DriveHost host(config);
    REQUIRE(host.run(host.send_write(0, 2, std::byte{5})) == status::success);
    CHECK(shutdown_time(host, nvme::kAbruptShutdown) == SimTime{});
    CHECK(programs(host) == 0);
  }
}

TEST_CASE("a normal shutdown waits for keys and values that are on their way to flash") {
  auto config = tiny_drive();
  config.write_buffer = Bytes::mib(1);
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 1) == status::success);
  const SentPtr append = host.send_append(1, 0, 0, 32, 0, 1);
  DriveHost::run_for(SimTime::microseconds(100));
  REQUIRE(append->done);
  CHECK(shutdown_time(host, nvme::kNormalShutdown) > SimTime::microseconds(100));
  CHECK(programs(host) >= 2);
}

TEST_CASE("256 ranges of a whole namespace cost what one of them does") {
  auto config = drive_with({1, 1}, {});
  config.data = ftl::DataMode::timing;
  config.geometry.blocks_per_plane = 4096;
  config.geometry.pages_per_block = 1024;  // 256 GiB
  DriveHost host(config);
  host.drive().block_ftl().precondition(Bytes::mib(64), std::nullopt);
  const std::uint64_t blocks = host.drive().block_ftl().capacity().value / kUnit.value;
  const std::vector<nvme::DsmRange> ranges(256, {.length = static_cast<std::uint32_t>(blocks), .slba = 0});
  const nvme::Segment data = host.buffer(Bytes{ranges.size() * sizeof(nvme::DsmRange)});
  host.put(data.address, ranges);
  REQUIRE(host.run(nvme::encode_deallocate(kNamespace, 256), data) == status::success);
  CHECK(host.drive().block_ftl().stats().trimmed_pages == Bytes::mib(64).value / kUnit.value);
  CHECK_FALSE(host.drive().block_ftl().lookup(ftl::LogicalPage{0}).valid());
}

}  // namespace test_durability
