// Commands whose data pointer is an SGL: what the controller answers, and the
// same data as with PRPs.
#include <bit>
#include <catch2/catch.hpp>
#include <random>

#include "nvme_if/spec/sgl.h"
#include "tests/nvme_if/platform.h"

namespace test_sgl_commands {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

namespace {

SubmissionEntry read_blocks(const SglDescriptor& first, std::uint32_t blocks) {
  SubmissionEntry e = encode_block_io(nvm_opcode::read, NamespaceId{1}, Lba{0}, blocks);
  e.flags = kPsdtSgl;
  const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(first);
  e.prp1 = words[0];
  e.prp2 = words[1];
  return e;
}

}  // namespace

TEST_CASE(
    "the controller answers malformed SGLs with their status, and takes "
    "good ones") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  raw.create_queue(1, 16);
  const std::uint64_t host = kHostBase.value, list = host + 0x100000;
  auto* const at = reinterpret_cast<SglDescriptor*>(p.host_at(PhysicalAddress{list}));
  const auto data = [&](std::uint64_t offset, std::uint32_t length) {
    return SglDescriptor::of(SglType::data_block, host + offset, length);
  };
  at[0] = data(0x4000, 4000);
  at[1] = data(0x8000, 96);
  at[2] = data(0xC000, 100);
  at[3] = SglDescriptor::of(SglType::last_segment, list, 32);
  at[4] = SglDescriptor::of(SglType::bit_bucket, 0, 4096);
  const auto last = [&](std::uint32_t first, std::uint32_t count) {
    return SglDescriptor::of(SglType::last_segment, list + 16 * first, 16 * count);
  };
  for (std::size_t i = 0; i < 4096; ++i) p.handler.medium[i] = static_cast<std::byte>(i * 7 + 1);

  struct Case {
    const char* what;
    SglDescriptor first;
    Status expected;
  };
  for (const Case& c : std::vector<Case>{
           {"one block", data(0, 4096), status::success},
           {"two pieces", last(0, 2), status::success},
           {"too short", data(0, 4092), status::sgl_length_invalid},
           {"too long", last(0, 3), status::sgl_length_invalid},
           {"a last segment that leads on", last(2, 2), status::sgl_segment_invalid},
           {"a bit bucket", last(4, 1), status::sgl_type_invalid},
           {"an empty segment", last(0, 0), status::sgl_segment_invalid},
           {"a byte address", data(1, 4096), status::sgl_granularity_invalid},
           {"data nowhere", SglDescriptor::of(SglType::data_block, 0x7000'0000'0000, 4096),
            status::data_transfer_error},
           {"a segment nowhere", SglDescriptor::of(SglType::last_segment, 0x7000'0000'0000, 32),
            status::data_transfer_error},
           {"two pieces again", last(0, 2), status::success},
       }) {
    INFO(c.what);
    std::memset(p.host_at(PhysicalAddress{host}), 0, 0x10000);
    const CompletionEntry result = raw.execute(1, read_blocks(c.first, 1));
    CHECK(status_name(result.code()) == status_name(c.expected));
    CHECK(p.controller.commands_inside() == 0);
    if (!c.expected.ok()) continue;
    const bool whole = c.first.is(SglType::data_block);
    const std::byte* const first = p.host_at(PhysicalAddress{host + (whole ? 0 : 0x4000)});
    const std::byte* const rest = whole ? first + 4000 : p.host_at(PhysicalAddress{host + 0x8000});
    CHECK(std::equal(first, first + 4000, p.handler.medium.begin()));
    CHECK(std::equal(rest, rest + 96, p.handler.medium.begin() + 4000));
  }
  // A PRP command in the slot of an SGL command, an SGL with metadata, and an
  // SGL of an admin command.
  SubmissionEntry prp = encode_block_io(nvm_opcode::read, NamespaceId{1}, Lba{0}, 1);
  prp.prp1 = host;
  CHECK(raw.execute(1, prp).code().ok());
  SubmissionEntry metadata = read_blocks(data(0, 4096), 1);
  metadata.flags = 0x80;
  CHECK(raw.execute(1, metadata).code() == status::invalid_field);
  SubmissionEntry identify{.opcode = 0x06, .flags = kPsdtSgl, .prp1 = host, .cdw10 = cns::identify_controller};
  CHECK(raw.admin(identify) == status::invalid_field);
}

TEST_CASE(
    "block commands move the same data with PRPs and with SGLs; an SGL "
    "of one piece takes no list") {
  const auto seed = Catch::rngSeed() + 6;
  INFO("seed " << seed);
  std::map<DataPointer, std::vector<std::byte>> media, read_back;
  std::map<DataPointer, std::uint64_t> fetched;
  for (const DataPointer pointer : {DataPointer::prp, DataPointer::sgl}) {
    PlatformParams params;
    params.driver.data_pointer = pointer;
    Platform p(params);
    CHECK(p.driver.failure().empty());
    std::mt19937_64 rng(seed);
    // Edge lengths in blocks of 4 KiB, and buffers of pages in any order after
    // a first that may begin within one.
    std::uint64_t lba = 0;
    struct Piece {
      std::uint64_t lba, blocks;
      std::vector<Segment> buffer;
    };
    std::vector<Piece> pieces;
    std::uint64_t slot = 0;
    for (const std::uint64_t blocks : {1, 2, 3, 16, 254, 255, 256, 257, 512}) {
      const std::uint64_t offset = rng() % 2 * 0x200;
      std::vector<Segment> buffer;
      const auto page = [&](std::uint64_t length, std::uint64_t from) {
        buffer.push_back({kHostBase + Bytes{slot * 8192 + from}, Bytes{length}});
        ++slot;
      };
      page(4096 - offset, offset);
      for (std::uint64_t i = 1; i < blocks; ++i) page(4096, 0);
      if (offset > 0) page(offset, 0);
      std::shuffle(buffer.begin() + 1, buffer.end() - (offset > 0 ? 1 : 0), rng);
      for (const Segment& s : buffer)
        for (std::uint64_t i = 0; i < s.length.value; ++i)
          *p.host_at(s.address + Bytes{i}) = static_cast<std::byte>(rng());
      pieces.push_back({lba, blocks, buffer});
      lba += blocks;
    }
    int done = 0;
    const auto send = [&](std::uint8_t opcode, const Piece& piece) {
      p.driver.submit_block(QueueId{1}, opcode, Lba{piece.lba}, piece.blocks, piece.buffer,
                            [&](const CompletionEntry& e, SimTime) {
                              CHECK(e.code().ok());
                              ++done;
                            });
    };
    p.driver.on_ready([&] {
      for (const Piece& piece : pieces) send(nvm_opcode::write, piece);
    });
    p.run();
    REQUIRE(done == static_cast<int>(pieces.size()));
    CHECK((p.driver.controller().sgls & 3) == 2);
    media[pointer].assign(p.handler.medium.begin(), p.handler.medium.begin() + static_cast<std::ptrdiff_t>(lba * 4096));
    for (const Piece& piece : pieces) {
      for (const Segment& s : piece.buffer) std::memset(p.host_at(s.address), 0, s.length.value);
      send(nvm_opcode::read, piece);
    }
    p.run();
    for (const Piece& piece : pieces)
      for (const Segment& s : piece.buffer)
        read_back[pointer].insert(read_back[pointer].end(), p.host_at(s.address), p.host_at(s.address + s.length));
    // One contiguous buffer of the largest size.
    const std::uint64_t before = p.map.traffic(RegionKind::host_dram).bytes_from_region;
    p.driver.submit_block(QueueId{1}, nvm_opcode::write, Lba{0}, 512, std::vector{Segment{kHostBase, Bytes::mib(2)}},
                          [&](const CompletionEntry& e, SimTime) { CHECK(e.code().ok()); });
    p.run();
    fetched[pointer] = p.map.traffic(RegionKind::host_dram).bytes_from_region - before - Bytes::mib(2).value;
  }
  CHECK(media[DataPointer::prp] == media[DataPointer::sgl]);
  CHECK(read_back[DataPointer::prp] == media[DataPointer::prp]);
  CHECK(read_back[DataPointer::sgl] == media[DataPointer::sgl]);
  CHECK(fetched[DataPointer::sgl] == 64);            // the command
  CHECK(fetched[DataPointer::prp] == 64 + 511 * 8);  // and the addresses of all pages but the first
}

}  // namespace test_sgl_commands
