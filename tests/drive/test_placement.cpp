// Flexible Data Placement in the whole drive: where data of different handles go, in reclaim units of several blocks.
#include <catch2/catch.hpp>

#include <map>
#include <set>

#include "nvme_if/spec/fdp.h"
#include "tests/drive/drive_host.h"

namespace test_placement {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

namespace {

constexpr std::uint32_t kUnit = 64;  ///< pages of a reclaim unit: two blocks of each of four planes

/// 16 reclaim units of 256 KiB. Each plane has one block more, which no namespace gets.
csd_model::DriveConfig placed_drive(std::uint32_t handles, std::uint32_t unit_blocks = 8) {
  csd_model::DriveConfig c = tiny_drive();
  c.geometry = {.channels = 2,
                .dies_per_channel = 1,
                .planes_per_die = 2,
                .blocks_per_plane = 33,
                .pages_per_block = 8,
                .page_size = Bytes::kib(4)};
  c.kv_share = 0;
  c.reclaim_unit_blocks = unit_blocks;
  c.block.handles = c.blocks.handles = handles;
  c.block.over_provisioning = 0.4;
  c.block.check = ftl::PageCheck::key_and_crc;
  c.fdp = nvme::FdpConfig{};
  return c;
}

struct PlacedHost : DriveHost {
  using DriveHost::DriveHost;

  SentPtr send_placed(std::uint64_t lba, std::uint32_t blocks, std::byte fill, std::uint16_t identifier) {
    const nvme::Segment b = buffer(driver().block_size() * blocks);
    std::fill_n(at(b.address), b.length.value, fill);
    return send(nvme::with_placement(nvme::encode_block_io(nvme::nvm_opcode::write, kNamespace, nvme::Lba{lba}, blocks),
                                     identifier),
                b);
  }
  void write(std::uint64_t lba, std::uint32_t blocks, std::uint16_t identifier, std::byte fill = std::byte{1}) {
    REQUIRE(run(send_placed(lba, blocks, fill, identifier)).ok());
  }
  std::byte read(std::uint64_t lba) {
    const SentPtr sent = send_read(lba, 1);
    REQUIRE(run(sent).ok());
    return *at(sent->buffer.address);
  }
  std::uint64_t unit_of(std::uint64_t lba, std::uint64_t pages = kUnit) {
    return drive().block_ftl().lookup(ftl::LogicalPage{lba}).value / pages;
  }
  std::vector<nvme::ReclaimUnitHandleStatusDescriptor> units() {
    const nvme::Segment b = buffer(Bytes::kib(4));
    REQUIRE(run(nvme::encode_unit_status(kNamespace, b.length), b).ok());
    const auto count = get<nvme::ReclaimUnitHandleStatus>(b.address, 1)[0].descriptors;
    return get<nvme::ReclaimUnitHandleStatusDescriptor>(b.address + Bytes{16}, count);
  }
  nvme::Status update(const std::vector<std::uint16_t>& identifiers) {
    const nvme::Segment b = buffer(Bytes{identifiers.size() * 2});
    put(b.address, identifiers);
    return run(nvme::encode_unit_update(kNamespace, static_cast<std::uint32_t>(identifiers.size())), b);
  }
  void keep_events(std::uint16_t placement_handle, const std::vector<std::uint8_t>& types) {
    const nvme::Segment b = buffer(Bytes{types.size()});
    put(b.address, types);
    REQUIRE(run({.opcode = nvme::admin_opcode::set_features,
                 .nsid = 1,
                 .cdw10 = nvme::feature::fdp_events,
                 .cdw11 = placement_handle | static_cast<std::uint32_t>(types.size()) << 16,
                 .cdw12 = 1},
                b, 0)
                .ok());
  }
  template <class T>
  T log(std::uint8_t page, std::uint8_t specific, std::uint32_t offset = 0) {
    const nvme::Segment b = buffer(Bytes{sizeof(T)});
    REQUIRE(run({.opcode = nvme::admin_opcode::get_log_page,
                 .nsid = 0xFFFF'FFFF,
                 .cdw10 = page | std::uint32_t{specific} << 8 | static_cast<std::uint32_t>(sizeof(T) / 4 - 1) << 16,
                 .cdw11 = 1u << 16,
                 .cdw12 = offset},
                b, 0)
                .ok());
    return get<T>(b.address, 1)[0];
  }
  std::vector<nvme::FdpEvent> events(bool of_host) {
    const std::uint8_t specific = of_host ? 1 : 0;
    std::vector<nvme::FdpEvent> all(log<nvme::FdpEvents>(nvme::log_page::fdp_events, specific).events);
    for (std::uint32_t i = 0; i < all.size(); ++i)
      all[i] = log<nvme::FdpEvent>(nvme::log_page::fdp_events, specific, 64 * (i + 1));
    return all;
  }
};

/// Overwrites two regions of the drive in random order, each with its own identifier, until much was collected.
std::map<std::uint64_t, std::byte> wear(PlacedHost& host, std::uint64_t seed, std::uint32_t writes) {
  Rng rng(seed, "placement");
  std::map<std::uint64_t, std::byte> content;
  const std::uint64_t half = host.driver().name_space().nsze / 2;
  for (std::uint32_t i = 0; i < writes; ++i) {
    const auto identifier = static_cast<std::uint16_t>(rng.below(2));
    const std::uint64_t lba = identifier * half + rng.below(half);
    content[lba] = std::byte(1 + rng.below(255));
    host.write(lba, 1, identifier, content[lba]);
  }
  return content;
}

std::set<std::uint64_t> units_of(PlacedHost& host, const std::map<std::uint64_t, std::byte>& content, bool upper) {
  std::set<std::uint64_t> units;
  const std::uint64_t half = host.driver().name_space().nsze / 2;
  for (const auto& [lba, byte] : content)
    if ((lba >= half) == upper) units.insert(host.unit_of(lba));
  return units;
}

std::size_t shared(const std::set<std::uint64_t>& a, const std::set<std::uint64_t>& b) {
  std::vector<std::uint64_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return both.size();
}

}  // namespace

TEST_CASE("data of different handles share no reclaim unit; what was moved stays apart where isolation is persistent") {
  const bool persistently = GENERATE(false, true), placed = GENERATE(true, false);
  const Bytes write_buffer = GENERATE(Bytes{}, Bytes::kib(256));
  const std::uint64_t seed = 7;
  CAPTURE(persistently, placed, write_buffer.value, seed);
  csd_model::DriveConfig config = placed_drive(2);
  config.write_buffer = write_buffer;
  if (persistently) config.block.isolation = ftl::Isolation::persistently;
  if (!placed) config.fdp->placement_handles = {1};  // identifier 1 is invalid: all data go by placement handle 0
  PlacedHost host(config);
  const auto content = wear(host, seed, 3000);
  CHECK(host.drive().block_ftl().stats().gc_erases > 10);
  const std::size_t mixed = shared(units_of(host, content, false), units_of(host, content, true));
  if (placed && persistently)
    CHECK(mixed == 0);
  else
    CHECK(mixed > 0);
  for (const auto& [lba, byte] : content) REQUIRE(host.read(lba) == byte);
  CHECK(host.integrity_errors() == 0);
}

TEST_CASE(
    "the lines of a reclaim unit go over all planes, so that one handle writes as fast as a drive without units") {
  const auto duration = [](std::uint32_t unit_blocks) {
    csd_model::DriveConfig config = placed_drive(1, unit_blocks);
    config.fdp.reset();
    PlacedHost host(config);
    const SimTime start = nvme::sim_now();
    const SentPtr write = host.send_write(0, 64, std::byte{1});
    REQUIRE(host.run(write).ok());
    return write->at - start;
  };
  CHECK(duration(8) == duration(1));
  CHECK(duration(4) == duration(1));
  CHECK(static_cast<double>(duration(2).ps) == Approx(static_cast<double>(duration(1).ps)).epsilon(0.1));
}

TEST_CASE("status of handles: what their reclaim units can still take; an update ends them") {
  PlacedHost host(placed_drive(3));
  host.keep_events(1, {0x00});
  const auto left = [&] {
    std::vector<std::uint64_t> blocks;
    for (const auto& unit : host.units()) blocks.push_back(unit.blocks_left);
    return blocks;
  };
  CHECK(left() == std::vector<std::uint64_t>{64, 64, 64});
  CHECK(host.units()[2].identifier == 2);
  CHECK(host.units()[2].handle == 2);
  host.write(0, 5, 1);
  host.write(5, 1, 2);
  CHECK(left() == std::vector<std::uint64_t>{64, 59, 63});
  const std::uint64_t before = host.unit_of(0);
  CHECK(host.update({1, 3}) == status::invalid_field);
  CHECK(left() == std::vector<std::uint64_t>{64, 59, 63});
  CHECK(host.events(true).empty());

  REQUIRE(host.update({1, 0}).ok());
  CHECK(left() == std::vector<std::uint64_t>{64, 64, 63});
  const auto events = host.events(true);
  REQUIRE(events.size() == 1);
  CHECK(events[0].type == nvme::FdpEventType::unit_not_full);
  CHECK(events[0].identifier == 1);
  CHECK(events[0].handle == 1);
  host.write(10, 1, 1);
  CHECK(host.unit_of(10) != before);
  for (std::uint64_t lba = 0; lba < 5; ++lba) CHECK(host.unit_of(lba) == before);
  CHECK(host.read(4) == std::byte{1});
  // A unit that is full is no event.
  host.write(11, 63, 1);
  REQUIRE(host.update({1}).ok());
  CHECK(host.events(true).size() == 1);
}

TEST_CASE("an update programs what is left of a word line, and nothing of it is lost") {
  csd_model::DriveConfig config = placed_drive(2);
  config.geometry.page_size = Bytes::kib(16);
  config.mapping_unit = Bytes::kib(4);
  config.write_buffer = Bytes::kib(256);
  PlacedHost host(config);
  host.write(0, 3, 1, std::byte{9});
  REQUIRE(host.update({1}).ok());
  host.write(3, 1, 1, std::byte{8});
  CHECK(host.drive().block_ftl().stats().padded_pages == 1);
  CHECK(host.unit_of(0, 4 * kUnit) != host.unit_of(3, 4 * kUnit));
  for (std::uint64_t lba = 0; lba < 4; ++lba) CHECK(host.read(lba) == std::byte(lba < 3 ? 9 : 8));
}

TEST_CASE("a reclaim group is a plane where units are blocks: identifiers choose it") {
  csd_model::DriveConfig config = placed_drive(2, 1);
  config.block.over_provisioning = 0.3;
  PlacedHost host(config);
  REQUIRE(host.units().size() == 8);
  CHECK(host.units()[7].identifier == (3u << 14 | 1));
  for (std::uint32_t i = 0; i < 20; ++i) host.write(i, 1, static_cast<std::uint16_t>((i % 4) << 14 | 1));
  for (std::uint32_t i = 0; i < 20; ++i) CHECK(host.unit_of(i, 33 * 8) == i % 4);
  // Where the group is full, data go elsewhere rather than nowhere.
  const std::uint64_t blocks = host.driver().name_space().nsze;
  for (std::uint64_t lba = 0; lba < blocks; ++lba) host.write(lba, 1, 2u << 14);
  std::set<std::uint64_t> planes;
  for (std::uint64_t lba = 0; lba < blocks; ++lba) planes.insert(host.unit_of(lba, 33 * 8));
  CHECK(planes.size() > 1);
}

TEST_CASE("a write goes to the reclaim group that it names, not to a word line that others have begun") {
  csd_model::DriveConfig config = placed_drive(2, 1);
  config.geometry.page_size = Bytes::kib(16);
  config.mapping_unit = Bytes::kib(4);
  config.write_buffer = Bytes::kib(256);
  config.data = ftl::DataMode::timing;
  config.power_loss.protection = csd_model::CapacitorProtection{};
  PlacedHost host(config);
  for (std::uint32_t i = 0; i < 40; ++i) host.write(i, 1, static_cast<std::uint16_t>((i % 4) << 14 | 1));
  for (std::uint32_t i = 0; i < 40; ++i) CHECK(host.unit_of(i, 33 * 8 * 4) == i % 4);
}

TEST_CASE("with one handle, everything is as without Flexible Data Placement") {
  const std::uint32_t unit_blocks = GENERATE(1U, 8U);
  const std::uint64_t seed = GENERATE(1, 2, 3);
  CAPTURE(unit_blocks, seed);
  const auto outcome = [&](bool fdp) {
    csd_model::DriveConfig config = placed_drive(1, unit_blocks);
    config.write_buffer = Bytes::kib(64);
    if (!fdp) config.fdp.reset();
    PlacedHost host(config);
    const bool placed = fdp && unit_blocks == 8;  // otherwise identifiers name one of several groups
    Rng rng(seed, "one handle");
    std::vector<std::uint64_t> figures;
    std::vector<SentPtr> sent;
    const std::uint64_t blocks = host.driver().name_space().nsze;
    for (int i = 0; i < 1500; ++i) {
      const auto length = static_cast<std::uint32_t>(1 + rng.below(4));
      const std::uint64_t lba = rng.below(blocks - length);
      sent.push_back(rng.below(4) == 0      ? host.send_read(lba, length)
                     : placed && i % 2 == 0 ? host.send_placed(lba, length, std::byte{1}, 0)
                                            : host.send_write(lba, length, std::byte{1}));
      if (i % 8 == 0) DriveHost::settle();
    }
    DriveHost::settle();
    for (const SentPtr& command : sent) figures.push_back(static_cast<std::uint64_t>(command->at.ps));
    const ftl::BlockFtlStats& s = host.drive().block_ftl().stats();
    for (const std::uint64_t figure : {s.host_pages_written, s.gc_pages_moved, s.gc_erases, s.padded_pages})
      figures.push_back(figure);
    return figures;
  };
  const auto with = outcome(true);
  CHECK(with == outcome(false));
  CHECK(with[with.size() - 2] > 0);
}

TEST_CASE("what the drive moves, and handles whose unit it closes, are events; statistics count in bytes") {
  PlacedHost host(placed_drive(3));
  for (std::uint16_t handle = 0; handle < 3; ++handle) host.keep_events(handle, {0x80, 0x81});
  // A handle that is written once keeps a unit open until room is short.
  host.write(host.driver().name_space().nsze - 1, 1, 2);
  wear(host, 3, 3000);
  const auto events = host.events(false);
  std::uint64_t moved = 0;
  for (const nvme::FdpEvent& event : events) {
    if (event.type != nvme::FdpEventType::media_reallocated) continue;
    CHECK(event.handle < 2);
    CHECK(event.reallocated_flags == 1);
    CHECK(std::uint64_t{event.lba} < host.driver().name_space().nsze);  // a copy: the field is not aligned
    moved += event.reallocated_blocks;
  }
  CHECK(moved > 0);
  CHECK(host.events(true).empty());
  const ftl::BlockFtlStats& s = host.drive().block_ftl().stats();
  const auto statistics = host.log<nvme::FdpStatistics>(nvme::log_page::fdp_statistics, 0);
  CHECK(statistics.host_written.value == 3001 * 4096);
  CHECK(statistics.media_written.value == (s.host_pages_written + s.gc_pages_moved) * 4096);
  CHECK(statistics.media_erased.value == s.gc_erases * kUnit * 4096);
  CHECK(s.gc_erases > 10);
}

TEST_CASE("the unit of a handle that collection closes is an event of this handle") {
  csd_model::DriveConfig config = placed_drive(6);
  config.block.over_provisioning = 0.3;
  PlacedHost host(config);
  for (std::uint16_t handle = 0; handle < 6; ++handle) host.keep_events(handle, {0x81});
  // Each handle opens a unit, whose data are overwritten by others.
  const std::uint64_t blocks = host.driver().name_space().nsze;
  for (int round = 0; round < 6; ++round)
    for (std::uint64_t lba = 0; lba < blocks; ++lba)
      host.write(lba, 1, static_cast<std::uint16_t>(lba < 12 ? (lba + static_cast<std::uint64_t>(round)) % 6 : 0));
  const auto events = host.events(false);
  CHECK(host.drive().block_ftl().stats().closed_blocks == events.size());
  REQUIRE(!events.empty());
  for (const nvme::FdpEvent& event : events) CHECK(event.type == nvme::FdpEventType::handle_changed);
}

TEST_CASE("a namespace that was deleted and created again has no data of the old one") {
  PlacedHost host(placed_drive(2));
  host.write(0, 8, 1, std::byte{7});
  const std::uint64_t blocks = host.driver().name_space().nsze;
  REQUIRE(host.run({.opcode = nvme::admin_opcode::namespace_management, .nsid = 1, .cdw10 = 1}, {}, 0).ok());
  CHECK(host.run(host.send_read(0, 1)) == status::invalid_field);
  nvme::NamespaceToCreate wanted;
  wanted.nsze = wanted.ncap = blocks;
  wanted.placement_handles = 1;
  wanted.handles[0] = 1;
  const nvme::Segment b = host.buffer(Bytes::kib(4));
  host.put(b.address, std::vector{wanted});
  REQUIRE(host.run({.opcode = nvme::admin_opcode::namespace_management}, b, 0).ok());
  host.put(b.address, std::vector<std::uint16_t>{1, 0});
  REQUIRE(host.run({.opcode = nvme::admin_opcode::namespace_attachment, .nsid = 1}, b, 0).ok());
  CHECK(host.read(0) == std::byte{0});
  CHECK(host.units().size() == 1);
  CHECK(host.units()[0].handle == 1);
}

TEST_CASE("reclaim units that a drive cannot have") {
  const auto refused = [](auto change, const char* why) {
    csd_model::DriveConfig config = placed_drive(2);
    change(config);
    CHECK_THROWS_WITH(PlacedHost(config), Catch::Contains(why));
  };
  refused([](auto& c) { c.reclaim_unit_blocks = 3; }, "do not divide");
  refused([](auto& c) { c.reclaim_unit_blocks = 12; }, "do not divide");
  refused([](auto& c) { c.kv_share = 0.5; }, "without KV cache");
  refused([](auto& c) { c.blocks.spare_blocks = 1; }, "spare blocks");
}

}  // namespace test_placement
