// File operations: their data, and their times compared with closed forms.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/host_sysc/file_rig.h"

namespace test_file_operations {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using host::OpKind;

TEST_CASE("data written to a file is read back, in arbitrary byte ranges, with direct and with copied I/O") {
  const std::uint64_t seed = Catch::rngSeed() + GENERATE(range(0, 6));
  INFO("seed " << seed);
  Rng rng(seed);
  host::FileIoParams config;
  config.io_size = Bytes::kib(4) * (1 + rng.below(12));
  config.threads = static_cast<std::uint32_t>(1 + rng.below(5));
  if (rng.below(2) == 1) {
    config.access = host::FileAccess::bounce;
    config.copy_bandwidth = {1'000'000'000};
  }
  FileRig rig(config);
  const std::vector<std::byte> content = rig.fill(seed);
  const host::FileTotals written = rig.files.totals();
  CHECK(written.wanted.value == content.size());
  CHECK(written.transferred == written.wanted);

  std::vector<host::FileRange> ranges;
  std::uint64_t wanted = 0;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t offset = rng.below(content.size());
    ranges.push_back({Bytes{offset}, Bytes{1 + rng.below(content.size() - offset)}});
    wanted += ranges.back().size.value;
  }
  const nvme::RegionTraffic before = rig.rig.host_traffic();
  rig.rig.run({rig.operation(OpKind::read_file, ranges)});
  REQUIRE(rig.data.ranges.size() == ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i)
    CHECK(std::ranges::equal(rig.data.ranges[i],
                             std::span(content).subspan(ranges[i].offset.value, ranges[i].size.value)));
  CHECK(rig.files.totals().wanted.value - written.wanted.value == wanted);
  const Bytes moved = rig.files.totals().transferred - written.transferred;
  CHECK(moved.value >= wanted);
  CHECK(moved.value < wanted + ranges.size() * 2 * rig.block().value);
  // Completions of 16 B go to host memory as well.
  const std::uint64_t arrived = rig.rig.host_traffic().bytes_to_region - before.bytes_to_region;
  CHECK(arrived >= moved.value);
  CHECK(arrived < moved.value + moved.value / 100);
  CHECK(rig.files.totals().copied.value == (config.copy_bandwidth.bytes_per_second > 0 ? content.size() + wanted : 0));
}

TEST_CASE("one thread takes n x (overhead + time of the drive + copy)") {
  const bool bounce = GENERATE(false, true);
  const auto kind = GENERATE(OpKind::read_file, OpKind::write_file);
  host::FileIoParams config{.access = bounce ? host::FileAccess::bounce : host::FileAccess::direct,
                            .io_size = Bytes::kib(64),
                            .io_overhead = SimTime::microseconds(11),
                            .threads = 1,
                            .copy_bandwidth = {bounce ? 2'000'000'000u : 0u}};
  FileRig rig(config);
  rig.fill(1);
  const std::uint64_t per_io = config.io_size.value / rig.block().value;
  SimTime expected;
  const OpKind block_kind = kind == OpKind::read_file ? OpKind::read_blocks : OpKind::write_blocks;
  for (std::uint64_t b = 0; b < kBlocks64; b += per_io) {
    expected += config.io_overhead + rig.drive_time({kFirstBlock + b, per_io}, block_kind);
    if (bounce) expected += transfer_time(config.io_size, config.copy_bandwidth);
  }
  const host::FileTotals before = rig.files.totals();
  rig.data.ranges = {std::vector<std::byte>((rig.block() * kBlocks64).value)};
  const host::ExecutionReport r = rig.rig.run({rig.operation(kind, {{Bytes{}, rig.block() * kBlocks64}})});
  const SimTime took = FileRig::time(r, kind);
  CAPTURE(took.ps, expected.ps);
  CHECK(took == expected);
  CHECK(rig.files.totals().ios - before.ios == kBlocks64 / per_io);
  const std::uint64_t ios = kBlocks64 / per_io;
  const SimTime copy = bounce ? transfer_time(config.io_size, config.copy_bandwidth) : SimTime{};
  CHECK(rig.files.totals().thread_time - before.thread_time == (config.io_overhead + copy) * ios);
}

TEST_CASE("more threads overlap their overheads and copies; the drive serves their I/Os concurrently") {
  SimTime before = SimTime::max();
  for (const std::uint32_t threads : {1u, 2u, 4u, 8u, 16u}) {
    FileRig rig({.access = host::FileAccess::bounce,
                 .io_size = Bytes::kib(16),
                 .io_overhead = SimTime::milliseconds(1),
                 .threads = threads,
                 .copy_bandwidth = {16'000'000}});
    rig.fill(1);
    SimTime in_drive;  // time of the 16 I/Os, one after another
    for (std::uint64_t b = 0; b < kBlocks64; b += 4) in_drive += rig.drive_time({kFirstBlock + b, 4});
    const SimTime took = FileRig::time(
        rig.rig.run({rig.operation(OpKind::read_file, {{Bytes{}, rig.block() * kBlocks64}})}), OpKind::read_file);
    const SimTime by_threads = SimTime::microseconds(2024) * (16 / threads);  // 1 ms and 1.024 ms per I/O
    CAPTURE(threads, took.ps, by_threads.ps, in_drive.ps);
    CHECK(took > by_threads);
    CHECK(took <= by_threads + in_drive);
    CHECK(took < before);
    before = took;
  }
}

TEST_CASE("time of file I/O counts as data movement of its payload; timing runs take the same time as carried runs") {
  std::vector<SimTime> times;
  for (const bool carried : {true, false}) {
    FileRig rig({.access = host::FileAccess::bounce, .copy_bandwidth = {4'000'000'000}}, carried);
    rig.fill(3);
    const auto part = [&](host::LinkPayload payload, host::PathPart counted) {
      const auto r =
          rig.rig.run({rig.operation(OpKind::read_file, {{Bytes{100}, Bytes{100'000}}}, host::Place::host(), payload)});
      times.push_back(FileRig::time(r, OpKind::read_file));
      CHECK(times.back() > SimTime{});
      CHECK(r.steps[0].path.layered[static_cast<std::size_t>(counted)] == times.back());
    };
    part(host::LinkPayload::kv, host::PathPart::kv_link);
    part(host::LinkPayload::weights, host::PathPart::other_link);
  }
  CHECK(times[0] == times[2]);
  CHECK(times[1] == times[3]);
}

TEST_CASE("direct I/O transfers to the memory that the operation names") {
  FileRig rig;
  rig.fill(4);
  const nvme::RegionTraffic before = rig.rig.gpu_traffic();
  rig.rig.run({rig.operation(OpKind::read_file, {{Bytes{}, rig.block() * 3}}, host::Place::gpu())});
  CHECK(rig.rig.gpu_traffic().bytes_to_region - before.bytes_to_region == 3 * rig.block().value);
}
TEST_CASE("copies by threads to GPU memory are refused") {
  FileRig rig({.access = host::FileAccess::bounce, .copy_bandwidth = {1'000'000'000}});
  CHECK_THROWS_WITH(rig.rig.run({rig.operation(OpKind::read_file, {{Bytes{}, Bytes{1}}}, host::Place::gpu())}),
                    Contains("files of drive 0") && Contains("host memory"));
}
TEST_CASE("a range beyond a file is refused") {
  FileRig rig;
  CHECK_THROWS_WITH(rig.rig.run({rig.operation(OpKind::read_file, {{Bytes{}, Bytes::gib(1)}})}),
                    Contains("beyond the file"));
}
TEST_CASE("an unknown file is refused") {
  FileRig rig;
  Step step = rig.operation(OpKind::read_file, {{Bytes{}, Bytes{1}}});
  std::get<host::FileWork>(step.work).file = "wieghts.bin";
  CHECK_THROWS_WITH(rig.rig.run({step}), Contains("wieghts.bin") && Contains("there is weights.bin"));
}

}  // namespace test_file_operations
