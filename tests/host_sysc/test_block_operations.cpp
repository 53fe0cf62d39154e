// Extents through a drive's block namespace, and weights that arrive on the GPU by way of the host.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/host_sysc/drive_rig.h"
#include "tests/support/resolver.h"

namespace test_block_operations {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using host::OpKind;

namespace {

Step blocks(OpKind kind, std::vector<host::Extent> extents, host::Place memory = host::Place::host()) {
  return {kind, kBlocks, host::BlockWork{.extents = std::move(extents), .memory = memory}};
}

std::vector<std::byte> pattern(std::uint64_t block, Bytes size) {
  std::vector<std::byte> bytes(size.value);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(counter_random(block, i) & 0xFF);
  return bytes;
}

std::vector<std::byte> extent(const host::Extent& e, Bytes block) {
  std::vector<std::byte> bytes;
  for (std::uint64_t b = e.first; b < e.first + e.blocks; ++b) {
    const auto one = pattern(b, block);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

}  // namespace

TEST_CASE("extents that were written come back, in any cut, with their bytes on the link") {
  DriveRig rig;
  const Bytes block = rig.platform.driver(0).block_size();
  const std::vector<host::Extent> written = {{0, 3}, {40, 17}, {9, 1}};
  for (const host::Extent& e : written) rig.data.blocks.push_back(extent(e, block));
  const nvme::RegionTraffic before = rig.gpu_traffic();
  rig.run({blocks(OpKind::write_blocks, written, host::Place::gpu())});
  CHECK(rig.gpu_traffic().bytes_from_region - before.bytes_from_region == 21 * block.value);

  const std::vector<host::Extent> read = {{41, 15}, {9, 1}, {1, 2}};
  rig.data.blocks.clear();
  const host::ExecutionReport r = rig.run({blocks(OpKind::read_blocks, read, host::Place::gpu())});
  CHECK(rig.gpu_traffic().bytes_to_region - before.bytes_to_region == 18 * block.value);
  REQUIRE(rig.data.blocks.size() == read.size());
  for (std::size_t i = 0; i < read.size(); ++i) CHECK(rig.data.blocks[i] == extent(read[i], block));
  // Reading cannot be faster than the link.
  CHECK(r.steps[0].path.total() == r.end - r.start);
  CHECK(r.steps[0].path.layered[static_cast<std::size_t>(host::PathPart::other_link)] > SimTime{});
  CHECK(r.steps[0].path.layered[static_cast<std::size_t>(host::PathPart::kv_link)] == SimTime{});
}

TEST_CASE("which records are read is settled when the read starts, and their bytes go on over the GPU's link") {
  for (const bool carried : {true, false}) {
    DriveRig rig(carried);
    const Bytes block = rig.platform.driver(0).block_size();
    rig.data.blocks = {extent({0, 32}, block)};
    rig.run({blocks(OpKind::write_blocks, {{0, 32}})});
    const Bytes loaded = block * 5;
    const host::RunFeatures features =
        csdsim::host::resolving([&](const host::Operation& op) -> std::optional<host::Work> {
          if (op.kind != OpKind::read_blocks) return std::nullopt;
          return host::BlockWork{.extents = {{4, 2}, {20, 3}}};
        });
    rig.router.set_features(features);
    const host::TensorName records = host::TensorName::kept(host::TensorClass::records, LayerId{0});
    rig.router.tensors().place({records, host::Place::drive_blocks(host::DriveIndex{0}), block * 32});
    Step read = blocks(OpKind::read_blocks, {});
    read.tensors = {.reads = {records}, .writes = {{records, loaded}}};
    const Step up{OpKind::transfer,
                  {host::ResourceKind::host_to_gpu, 0},
                  host::LinkWork{loaded, host::LinkPayload::weights},
                  {.reads = {records}, .writes = {{records, loaded}}, .drops = {{records, host::Place::host()}}}};
    const Step ffn{OpKind::feed_forward, host::Resource::gpu(), host::ComputeWork{.flops = 1000}, {.reads = {records}}};
    const host::ExecutionReport r = rig.run({read, up, ffn});
    CHECK(r.kind_time[static_cast<std::size_t>(OpKind::transfer)] == transfer_time(loaded, {1'000'000'000}));
    CHECK(rig.link.bytes(host::ResourceKind::host_to_gpu) == loaded);
    CHECK(rig.router.tensors().footprint(host::Place::host()).now == Bytes{});
    CHECK(rig.router.tensors().footprint(host::Place::gpu()).now == loaded);
    if (carried) CHECK(rig.data.blocks[1] == extent({20, 3}, block));
    // Without the transfer the GPU does not find them.
    rig.router.tensors().place({records, host::Place::drive_blocks(host::DriveIndex{0}), block * 32});
    Step forgets = ffn;
    forgets.tensors.reads = {host::TensorName::kept(host::TensorClass::records, LayerId{7})};
    CHECK_THROWS_WITH(rig.run({forgets}), Contains("records, layer 7") && Contains("nowhere"));
  }
}

TEST_CASE("extents beyond the namespace and empty ones are refused") {
  DriveRig rig;
  const std::uint64_t end = rig.platform.driver(0).name_space().nsze;
  rig.data.blocks = {std::vector<std::byte>(rig.platform.driver(0).block_size().value)};
  rig.run({blocks(OpKind::write_blocks, {{end - 1, 1}})});
  CHECK_THROWS_AS(rig.run({blocks(OpKind::read_blocks, {{end - 1, 2}})}), InternalError);
}
TEST_CASE("an extent without blocks is refused") {
  DriveRig rig;
  CHECK_THROWS_AS(rig.run({blocks(OpKind::read_blocks, {{0, 0}})}), InternalError);
}

TEST_CASE("long extents are cut at multiples of the chunk, and only so many requests are in flight") {
  const auto run = [](std::uint32_t outstanding, std::uint64_t blocks_of_chunk, std::uint64_t* commands = nullptr) {
    DriveRig rig;
    const Bytes block = rig.platform.driver(0).block_size();
    rig.data.blocks = {extent({0, 40}, block)};
    rig.run({blocks(OpKind::write_blocks, {{0, 40}})});
    rig.data.blocks.clear();
    const std::vector<host::Extent> read = {{3, 16}, {31, 2}, {20, 8}};
    const std::uint64_t before = rig.platform.driver(0).issued();
    const host::ExecutionReport r = rig.run({{OpKind::read_blocks, kBlocks,
                                              host::BlockWork{.extents = read,
                                                              .memory = host::Place::gpu(),
                                                              .outstanding = outstanding,
                                                              .chunk = block * blocks_of_chunk,
                                                              .block_size = block}}});
    if (commands != nullptr) *commands = rig.platform.driver(0).issued() - before;
    REQUIRE(rig.data.blocks.size() == read.size());
    for (std::size_t i = 0; i < read.size(); ++i) CHECK(rig.data.blocks[i] == extent(read[i], block));
    return r.end - r.start;
  };
  std::uint64_t whole = 0, cut = 0;
  run(0, 0, &whole);
  CHECK(whole == 3);
  const SimTime all = run(0, 4, &cut);
  CHECK(cut == 5 + 1 + 2);  // 1 + 4 + 4 + 4 + 3 blocks; 2, not longer than a chunk; 4 + 4
  // Each request waits for the one before it: 8 times as long as the time of one, about; more threads wait less.
  const SimTime one = run(1, 4), two = run(2, 4), eight = run(8, 4), nine = run(9, 4);
  CHECK(one > two);
  CHECK(two > eight);
  CHECK(eight == all);
  CHECK(nine == all);
}

TEST_CASE("an operation on no blocks ends at once; chunks are whole blocks") {
  DriveRig rig;
  const host::ExecutionReport r = rig.run({blocks(OpKind::read_blocks, {})});
  CHECK(r.kind_time[static_cast<std::size_t>(OpKind::read_blocks)] == SimTime{});
  Step odd = blocks(OpKind::read_blocks, {{0, 1}});
  std::get<host::BlockWork>(odd.work).chunk = Bytes{1000};
  CHECK_THROWS_AS(rig.run({odd}), InternalError);
}

}  // namespace test_block_operations
