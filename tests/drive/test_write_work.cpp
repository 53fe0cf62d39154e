// The FTLs count as many programs, part by part, as the planes have done.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "base/rng.h"
#include "csd_model/mapping_units.h"
#include "tests/drive/drive_host.h"
#include "tests/ftl/faulty_media.h"

namespace test_write_work {

using namespace csdsim;
using namespace csdsim::test;
using ftl::WriteWork;

namespace {

struct Case {
  std::string name;
  csd_model::DriveConfig config;
  std::vector<std::uint64_t WriteWork::*> block_parts, kv_parts;  ///< those that occur
};

csd_model::DriveConfig small_drive(Bytes page, Bytes write_buffer, double kv_share) {
  csd_model::DriveConfig config = tiny_drive();
  config.geometry = {.channels = 2,
                     .dies_per_channel = 1,
                     .planes_per_die = 2,
                     .blocks_per_plane = 24,
                     .pages_per_block = 8,
                     .page_size = page};
  config.kv_share = kv_share;
  config.write_buffer = write_buffer;
  return config;
}

/// Units of word lines that are begun and wait in controller DRAM for those that fill them.
std::uint64_t units_in_open_lines(DriveHost& host, std::uint32_t line) {
  const ftl::BlockManager& blocks = host.drive().block_manager();
  std::uint64_t units = 0;
  for (std::uint32_t plane = 0; plane < blocks.geometry().planes(); ++plane)
    for (const ftl::Stream stream : {ftl::Stream::host, ftl::Stream::gc, ftl::Stream::cold, ftl::Stream::map})
      units += (line - blocks.open_pages(PlaneId{plane}, stream) % line) % line;
  return units;
}

void check_conservation(DriveHost& host) {
  const csd_model::DriveConfig& config = host.platform.config().drive;
  std::uint64_t programs = 0;
  for (const auto& of_class : host.drive().flash_statistics().ops)
    programs += of_class[static_cast<std::size_t>(PageOpKind::program)];
  const WriteWork block = host.drive().block_ftl().stats().work(), kv = host.drive().kv_ftl().stats().work();
  const std::uint64_t unit = host.drive().block_ftl().page_size().value, page = config.geometry.page_size.value;
  const std::uint64_t in_dram = units_in_open_lines(host, csd_model::packing(config).line());
  CAPTURE(block.programmed(), kv.programmed(), in_dram, programs);
  CHECK((block.programmed() - in_dram) * unit + kv.programmed() * page ==
        programs * config.flash.word_line_pages * page);
}

/// Random writes, many at a time; some of them fail in drives with faults.
void write_blocks(DriveHost& host, Rng& rng, std::uint32_t rounds) {
  const std::uint64_t blocks = host.driver().name_space().nsze;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < 12; ++i) {
      const auto count = static_cast<std::uint32_t>(1 + rng.below(6));
      host.send_write(rng.below(blocks - count + 1), count, std::byte(i));
    }
    DriveHost::settle();
  }
}

/// Two sequences at a time take turns, so that their pages share blocks; then one of them goes. The first one stays.
void churn_sequences(DriveHost& host, std::uint32_t sequences) {
  constexpr std::uint32_t kHeads = 2;
  const auto tokens = static_cast<std::uint32_t>(host.platform.config().drive.geometry.page_size.value / 32);
  for (std::uint32_t id = 1; id <= sequences; ++id) {
    if (!host.create(id, 1, kHeads).ok()) return;
    for (std::uint32_t group = 0; group < 4; ++group) {
      host.append(id, 0, group * tokens, tokens, 0, kHeads);
      if (id > 1) host.append(id - 1, 0, host.tokens_of(id - 1), tokens, 0, kHeads);
      DriveHost::run_for(SimTime::milliseconds(1));
    }
    if (id > 3) host.free(id - 2);
    DriveHost::settle();
  }
}

}  // namespace

TEST_CASE("the parts of what both namespaces program add up to what the planes have programmed") {
  ftl::test::FaultyMedia faults(7);
  faults.program = 0.002;
  faults.uncorrectable = 0.002;
  std::vector<Case> cases;
  {
    csd_model::DriveConfig c = small_drive(Bytes::kib(16), Bytes{}, 0.4);
    c.block.wear_spread = c.kv.wear_spread = 4;
    c.block.refresh_age = c.kv.refresh_age = SimTime::milliseconds(150);
    c.kv.read_reclaim = 200;
    cases.push_back({"both namespaces",
                     c,
                     {&WriteWork::host, &WriteWork::collection, &WriteWork::wear_levelling, &WriteWork::refresh},
                     {&WriteWork::host, &WriteWork::refresh}});
    c.blocks.spare_blocks = 6;
    c.faults = &faults;
    c.kv.tail = ftl::TailPolicy::partial_program;
    cases.push_back({"flash that fails",
                     c,
                     {&WriteWork::collection, &WriteWork::retired_blocks},
                     {&WriteWork::retired_blocks, &WriteWork::padding}});
  }
  {
    csd_model::DriveConfig c = small_drive(Bytes::kib(16), Bytes::kib(256), 0.3);
    c.map_cache = Bytes{8 * 16};
    cases.push_back({"maps", c, {&WriteWork::host, &WriteWork::collection, &WriteWork::maps}, {&WriteWork::host}});
  }
  for (const Bytes buffer : {Bytes{}, Bytes::kib(256)}) {
    csd_model::DriveConfig c = small_drive(Bytes::kib(16), buffer, 0);
    c.mapping_unit = Bytes::kib(4);
    c.flash.word_line_pages = 2;
    std::vector<std::uint64_t WriteWork::*> parts{&WriteWork::host, &WriteWork::collection};
    if (buffer.value == 0) parts.push_back(&WriteWork::padding);
    cases.push_back({"word lines", c, parts, {}});
  }
  {
    csd_model::DriveConfig c = small_drive(Bytes::kib(16), Bytes::kib(256), 0);
    c.superblocks = true;
    c.mapping_unit = Bytes::kib(4);
    c.flush = {.policy = csd_model::FlushPolicy::threshold, .threshold = Bytes::kib(128), .idle_time = {}};
    cases.push_back({"superblocks", c, {&WriteWork::host, &WriteWork::collection}, {}});
  }
  for (const Case& one : cases) {
    CAPTURE(one.name);
    DriveHost host(one.config);
    Rng rng(11);
    write_blocks(host, rng, 60);
    if (one.config.kv_share > 0) churn_sequences(host, 40);
    write_blocks(host, rng, 60);
    host.run(nvme::encode_flush(kNamespace));
    const WriteWork block = host.drive().block_ftl().stats().work(), kv = host.drive().kv_ftl().stats().work();
    for (const auto part : one.block_parts) CHECK(block.*part > 0);
    for (const auto part : one.kv_parts) CHECK(kv.*part > 0);
    if (one.config.flush.policy == csd_model::FlushPolicy::threshold) CHECK(block.written > block.host);
    check_conservation(host);
  }
}

}  // namespace test_write_work
