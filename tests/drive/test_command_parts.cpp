// Pages of a command go over the link as they come from flash, and are programmed as they come from the host.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "nvme_if/core/pcie_link.h"
#include "tests/drive/drive_host.h"

namespace test_command_parts {

using namespace csdsim;
using namespace csdsim::test;
using nvme::LinkDirection;
namespace status = nvme::status;

namespace {

constexpr std::uint32_t kPages = 16;
constexpr Bytes kPage = Bytes::kib(4);

csd_model::DriveConfig drive_of_16_planes(ftl::DataMode data = ftl::DataMode::carried) {
  auto config = tiny_drive();
  config.geometry.page_size = kPage;
  config.kv_share = 0;
  config.link.latency = SimTime::nanoseconds(150);
  config.data = data;
  return config;
}

/// The channel of each of the first 16 pages, which are on planes of their own.
std::vector<std::uint32_t> channels_of(DriveHost& host) {
  const FlashGeometry& geometry = host.platform.config().drive.geometry;
  std::vector<std::uint32_t> channels, planes;
  for (std::uint32_t p = 0; p < kPages; ++p) {
    const PlaneId plane = geometry.plane_of(host.drive().block_ftl().lookup(ftl::LogicalPage{p}));
    planes.push_back(plane.value);
    channels.push_back(geometry.channel_of(plane).value);
  }
  std::ranges::sort(planes);
  REQUIRE(std::ranges::adjacent_find(planes) == planes.end());
  return channels;
}

/// The link after the fetch of a command for 16 pages at time 0 and of its PRP list; when each was there.
struct Fetched {
  nvme::PcieLink link;
  SimTime command, list;
  explicit Fetched(const nvme::LinkConfig& config) : link(config) {
    command = link.reserve_read(Bytes{64}, {}).arrival;
    list = link.reserve_read(Bytes{8 * (kPages - 1)}, command).arrival;
  }
};

}  // namespace

TEST_CASE("pages of a read go over the link as they come from flash, to the picosecond") {
  const auto data = GENERATE(ftl::DataMode::carried, ftl::DataMode::timing);
  auto config = drive_of_16_planes(data);
  const bool slow_link = GENERATE(false, true);
  config.link.generation = slow_link ? 1 : 4;
  config.link.lanes = slow_link ? 1 : 4;
  DriveHost host(config);
  REQUIRE(host.run(host.send_write(0, kPages, std::byte{5})) == status::success);
  const std::vector<std::uint32_t> channels = channels_of(host);
  const SimTime start = nvme::sim_now();
  const SentPtr read = host.send_read(0, kPages);
  REQUIRE(host.run(read) == status::success);
  if (data == ftl::DataMode::carried)
    CHECK(std::ranges::all_of(host.get<std::byte>(read->buffer.address, kPage.value * kPages),
                              [](std::byte b) { return b == std::byte{5}; }));

  Fetched fetched(config.link);
  std::map<std::uint32_t, SimTime> commands, bus;
  std::vector<SimTime> arrivals;
  for (const std::uint32_t channel : channels) {
    SimTime& issued = commands.try_emplace(channel, fetched.command).first->second;
    issued += config.flash.command_time;
    const SimTime sensed = issued + config.flash.read_latency;
    SimTime& free = bus[channel];
    free = std::max(free, sensed) + config.flash.data_out_setup + transfer_time(kPage, config.flash.channel_bandwidth);
    arrivals.push_back(free + config.flash.ecc_latency);
  }
  std::ranges::sort(arrivals);
  for (const SimTime arrival : arrivals) fetched.link.reserve(LinkDirection::to_host, kPage, arrival);
  const SimTime completed = fetched.link.reserve(LinkDirection::to_host, Bytes{16}, arrivals.back()).arrival;
  CHECK((read->at - start).ps == completed.ps);
  // If all pages were in the drive before the first one goes, it would take longer.
  CHECK(completed < arrivals.back() + fetched.link.transfer_duration(kPage * kPages));
}

TEST_CASE("pages of a write are programmed as they come over the link, to the picosecond") {
  auto config = drive_of_16_planes();
  config.link.generation = 1;
  config.link.lanes = 1;
  DriveHost host(config);
  const SimTime start = nvme::sim_now();
  const SentPtr write = host.send_write(0, kPages, std::byte{5});
  REQUIRE(host.run(write) == status::success);
  const std::vector<std::uint32_t> channels = channels_of(host);

  Fetched fetched(config.link);
  std::map<std::uint32_t, SimTime> bus;
  SimTime programmed;
  for (const std::uint32_t channel : channels) {
    const SimTime arrival = fetched.link.reserve_read(kPage, fetched.list).arrival;
    SimTime& free = bus[channel];
    free = std::max(free, arrival) + config.flash.command_time + transfer_time(kPage, config.flash.channel_bandwidth);
    programmed = std::max(programmed, free + config.flash.program_latency);
  }
  CHECK((write->at - start).ps == fetched.link.reserve(LinkDirection::to_host, Bytes{16}, programmed).arrival.ps);
}

TEST_CASE("the parts of a write enter a buffer that is smaller than the command") {
  auto config = drive_of_16_planes();
  config.write_buffer = kPage * 4;
  DriveHost host(config);
  const SimTime start = nvme::sim_now();
  const SentPtr write = host.send_write(0, kPages, std::byte{5});
  REQUIRE(host.run(write) == status::success);
  // The last four pages are in the buffer: three programs, one after the other, have made room.
  CHECK(write->at - start > 3 * config.flash.program_latency);
  CHECK(write->at - start < 4 * config.flash.program_latency);
  const SentPtr read = host.send_read(0, kPages);
  REQUIRE(host.run(read) == status::success);
  CHECK(*host.at(read->buffer.address + kPage * (kPages - 1)) == std::byte{5});
}

namespace {

/// One page cannot be corrected.
struct OneBadPage final : ftl::MediaFaults {
  PhysicalPageAddress bad;
  ReadOutcome read(PhysicalPageAddress ppa, std::uint32_t, std::uint32_t) override {
    return {.uncorrectable = ppa == bad};
  }
  bool program_fails(PhysicalPageAddress, std::uint32_t) override { return false; }
  bool erase_fails(BlockId, std::uint32_t) override { return false; }
};

}  // namespace

TEST_CASE("a page that cannot be corrected fails its command, of which nothing is sent") {
  OneBadPage media;
  auto config = drive_of_16_planes(GENERATE(ftl::DataMode::carried, ftl::DataMode::timing));
  config.faults = &media;
  DriveHost host(config);
  REQUIRE(host.run(host.send_write(0, kPages, std::byte{5})) == status::success);
  const std::uint32_t bad = GENERATE(0u, 7u, kPages - 1);
  media.bad = host.drive().block_ftl().lookup(ftl::LogicalPage{bad});
  const std::uint64_t sent = host.drive().link().stats(LinkDirection::to_host).payload_bytes;
  CHECK(host.run(host.send_read(0, kPages)) == status::unrecovered_read_error);
  CHECK(host.drive().link().stats(LinkDirection::to_host).payload_bytes - sent == 16);  // the completion entry
  for (std::uint32_t p = 0; p < kPages; ++p)
    CHECK(host.run(host.send_read(p, 1)) == (p == bad ? status::unrecovered_read_error : status::success));
  CHECK(host.drive().controller().commands_inside() == 0);
}

TEST_CASE("a part of the host's buffer that is not there fails the command, whichever part it is") {
  auto config = drive_of_16_planes(GENERATE(ftl::DataMode::carried, ftl::DataMode::timing));
  config.lookup_time = GENERATE(SimTime{}, SimTime::microseconds(80));
  DriveHost host(config);
  REQUIRE(host.run(host.send_write(0, kPages, std::byte{5})) == status::success);
  for (const std::uint32_t missing : {0u, 5u, kPages - 1}) {
    const nvme::Segment whole = host.buffer(kPage * kPages);
    std::vector<nvme::Segment> segments;
    for (std::uint32_t p = 0; p < kPages; ++p) segments.push_back({whole.address + kPage * p, kPage});
    segments[missing].address = nvme::PhysicalAddress{0x7000'0000'0000};
    for (const std::uint8_t opcode : {nvme::nvm_opcode::read, nvme::nvm_opcode::write}) {
      nvme::Status ended;
      host.driver().submit(nvme::QueueId{1}, nvme::encode_block_io(opcode, kNamespace, nvme::Lba{0}, kPages), segments,
                           [&](const nvme::CompletionEntry& e, SimTime) { ended = e.code(); });
      DriveHost::settle();
      CAPTURE(missing, opcode);
      CHECK(ended == status::data_transfer_error);
    }
  }
  // The drive goes on.
  CHECK(host.run(host.send_write(0, kPages, std::byte{6})) == status::success);
  CHECK(host.run(host.send_read(0, kPages)) == status::success);
  CHECK(host.drive().controller().commands_inside() == 0);
  CHECK(host.drive().dram().used() == Bytes{});
}

TEST_CASE("a read of pages that are not mapped yet in controller DRAM first reads their entries, once") {
  auto config = drive_of_16_planes();
  config.map_cache = Bytes::kib(1);
  DriveHost host(config);
  REQUIRE(host.run(host.send_write(0, kPages, std::byte{5})) == status::success);
  // Other entries take the place of those.
  for (std::uint32_t p = 0; p < 400; p += kPages) REQUIRE(host.run(host.send_write(32 + p, kPages, std::byte{1})).ok());
  const SimTime start = nvme::sim_now();
  const SentPtr cold = host.send_read(0, kPages);
  REQUIRE(host.run(cold) == status::success);
  const SimTime cold_time = cold->at - start, again = nvme::sim_now();
  const SentPtr warm = host.send_read(0, kPages);
  REQUIRE(host.run(warm) == status::success);
  CHECK(cold_time >= (warm->at - again) + config.flash.read_latency);
  CHECK(*host.at(cold->buffer.address + kPage * (kPages - 1)) == std::byte{5});
}

}  // namespace test_command_parts
