// Doorbells out of range, and commands for which the drive has no room.
#include <catch2/catch.hpp>

#include "tests/drive/victim.h"

namespace test_exhaustion {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
namespace status = nvme::status;

TEST_CASE("bad doorbells are counted and change nothing") {
  Victim v;
  const auto& stats = v.host.drive().controller().core().stats();
  REQUIRE(stats.invalid_doorbell_value == 0);
  REQUIRE(stats.invalid_doorbell_register == 0);
  const nvme::QueueId id = v.raw.id();
  // A tail at and beyond the size of the queue, and a head that no completion has reached.
  v.raw.ring(nvme::sq_tail_doorbell(id, 0), RawQueue::kDepth);
  v.raw.ring(nvme::sq_tail_doorbell(id, 0), 0xFFFF'FFFF);
  v.raw.ring(nvme::cq_head_doorbell(id, 0), v.raw.tail() + 1);
  DriveHost::settle();
  CHECK(stats.invalid_doorbell_value == 3);
  v.require_alive();

  // Queue 4 is deleted: its doorbells are those of a queue that does not exist, and so are those behind the last.
  REQUIRE(v.host.run(nvme::encode_delete_io_sq(id), {}, 0) == status::success);
  v.raw.ring(nvme::sq_tail_doorbell(id, 0), 1);
  v.raw.ring(nvme::sq_tail_doorbell(nvme::QueueId{200}, 0), 1);
  v.raw.ring(nvme::cq_head_doorbell(nvme::QueueId{5}, 0), 1);
  v.raw.ring(nvme::sq_tail_doorbell(nvme::QueueId{1}, 0) + 2, 1);
  CHECK(v.raw.ring(v.host.drive().controller().core().bar_size().value, 1) != tlm::TLM_OK_RESPONSE);
  DriveHost::settle();
  CHECK(stats.invalid_doorbell_register == 3);
  v.require_alive();
}

TEST_CASE("out of controller DRAM: nothing changes, and what was there still answers the same") {
  auto config = tiny_drive();
  config.kv.tail = ftl::TailPolicy::dram;
  config.dram = Bytes::kib(48);
  Victim v(config);
  REQUIRE(v.run(DriveHost::create_entry(2, 1, 400, 16)) == status::success);
  v.require_alive();
  // 400 heads hold K twice and V once, and the mean: 160 bytes a head and token.
  CHECK(v.run(v.append_entry(2, 0, 0, 1, 0, 400)) == status::kv_out_of_dram);
  v.require_alive();
  CHECK(v.host.tokens_of(2) == 0);
  CHECK(v.run(v.attend_entry({heads_of(2, 0, 0, 400, true)}, AttendMethod::dense, 16, 0)) == status::kv_out_of_dram);
  v.require_alive();
  CHECK(v.host.tokens_of(2) == 0);
  // What fits still goes in.
  CHECK(v.run(v.append_entry(2, 0, 0, 1, 0, 10)) == status::success);
  CHECK(v.run(DriveHost::free_entry(2)) == status::success);
  v.require_alive();
}

TEST_CASE("out of flash: nothing changes, and free makes room") {
  auto config = tiny_drive();
  config.geometry.blocks_per_plane = 7;
  config.kv_share = 0;  // one block a plane: 256 pages for the cache
  Victim v(config);
  REQUIRE(v.run(DriveHost::create_entry(2, 1, 8, 16)) == status::success);
  // 8 heads of 640 tokens are 8 * (2 * 20 + 2 * 10) = 480 pages.
  CHECK(v.run(v.append_entry(2, 0, 0, 640, 0, 8)) == status::kv_out_of_flash);
  v.require_alive();
  CHECK(v.host.tokens_of(2) == 0);
  std::uint32_t fitted = 0;
  while (v.run(v.append_entry(2, 0, 32 * fitted, 32, 0, 8)) == status::success) ++fitted;
  CHECK(fitted == 9);  // 16 pages a group, 16 more every second time, beside the 32 of sequence 1
  CHECK(v.host.output(v.host.attend(1, {heads_of(1, kTokens - 1, 0, 4)})) == v.good_output);
  // A block is erased when it is full and none of its pages is wanted: with sequence 1 gone they all are.
  CHECK(v.run(DriveHost::free_entry(2)) == status::success);
  CHECK(v.run(DriveHost::free_entry(1)) == status::success);
  CHECK(v.host.drive().dram().used() == Bytes{});
}

TEST_CASE("an engine's buffer in controller DRAM takes its place there: appends run out that much earlier") {
  auto config = tiny_drive();
  config.kv.tail = ftl::TailPolicy::dram;
  config.dram = Bytes::kib(256);
  config.engine.buffer = Bytes::kib(192);
  const auto heads_that_fit = [](const csd_model::DriveConfig& drive) {
    Victim v(drive);
    REQUIRE(v.run(DriveHost::create_entry(2, 1, 4000, 16)) == status::success);
    std::uint32_t heads = 0;
    while (v.run(v.append_entry(2, 0, 0, 1, heads, 10)) == status::success) heads += 10;
    CHECK(v.host.drive().dram().used(ftl::DramUse::engine_buffer) ==
          (drive.engine_buffer_in_dram() ? drive.engine.buffer : Bytes{}));
    REQUIRE(v.run(DriveHost::free_entry(2)) == status::success);
    v.require_alive();
    return heads;
  };
  const std::uint32_t of_its_own = heads_that_fit(config);
  config.engine.buffer_memory = engine::EngineMemory::dram;
  const std::uint32_t in_dram = heads_that_fit(config);
  CHECK(in_dram > 0);
  // 160 bytes a head and token, and the buffer.
  CHECK(static_cast<double>(of_its_own - in_dram) == Approx(192.0 * 1024 / 160).margin(10));
  config.engine.buffer = Bytes::kib(257);
  CHECK_THROWS_WITH(Victim(config), Catch::Contains("the engine's buffer does not fit"));
}

}  // namespace test_exhaustion
