// Admin commands through the whole controller: what the core cannot show, because it needs commands in flight.
#include <catch2/catch.hpp>

#include "tests/nvme_if/platform.h"

namespace test_admin_commands {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

TEST_CASE("Abort takes back what the firmware has not started") {
  PlatformParams params;
  params.controller.firmware_time = SimTime::milliseconds(10);
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.rings[1] = {raw.page(), raw.page(), 8};
  SubmissionEntry e = encode_create_io_cq(QueueId{1}, 8, InterruptVector{1});
  e.prp1 = raw.rings[1].cq.value;
  raw.put(0, e);
  e = encode_create_io_sq(QueueId{1}, 8, QueueId{1});
  e.prp1 = raw.rings[1].sq.value;
  raw.put(0, e, 1);
  raw.ring_sq(0);
  sc_core::sc_start(sc_core::sc_time(30, sc_core::SC_MS));
  REQUIRE(raw.reap(0).size() == 2);
  raw.ring_cq(0);

  // The abort is fetched first, and executes while the flushes wait behind it.
  raw.put(0, encode_abort(QueueId{1}, CommandId{7}));
  raw.put(0, encode_abort(QueueId{1}, CommandId{99}), 1);
  raw.ring_sq(0);
  raw.put(1, flush(6));
  raw.put(1, flush(7));
  raw.ring_sq(1);
  sc_core::sc_start(sc_core::sc_time(100, sc_core::SC_MS));
  const auto aborts = raw.reap(0);
  REQUIRE(aborts.size() == 2);
  CHECK(aborts[0].dw0 == 0);  // aborted
  CHECK(aborts[1].dw0 == 1);  // no such command
  const auto done = raw.reap(1);
  REQUIRE(done.size() == 2);
  CHECK(done[0].cid == 7);
  CHECK(done[0].code() == status::abort_requested);
  CHECK(done[1].cid == 6);
  CHECK(done[1].code().ok());
  CHECK(p.handler.executed == 1);
}

TEST_CASE("Abort of a command that executes does not abort it") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  raw.create_queue(1, 8);
  p.handler.hold = true;
  raw.put(1, flush(3));
  raw.ring_sq(1);
  run_a_while();
  CHECK(raw.execute(0, encode_abort(QueueId{1}, CommandId{3})).dw0 == 1);
  CHECK(raw.execute(0, encode_abort(QueueId{77}, CommandId{3})).dw0 == 1);
  p.handler.release();
  run_a_while();
  REQUIRE(raw.reap(1).size() == 1);
}

TEST_CASE("deleting a submission queue waits for its commands and aborts the queued ones") {
  PlatformParams params;
  params.controller.firmware_time = SimTime::microseconds(10);
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.create_queue(1, 8);
  p.handler.hold = true;
  raw.put(0, encode_delete_io_sq(QueueId{1}));
  for (std::uint16_t cid = 0; cid < 3; ++cid) raw.put(1, flush(cid));
  // Firmware order: flush 0, deletion, so 1 and 2 are still queued or not even fetched.
  raw.ring_sq(1);
  sc_core::sc_start(sc_core::sc_time(9, sc_core::SC_US));
  raw.ring_sq(0);
  run_a_while();
  CHECK(raw.reap(0).empty());  // the handler still holds commands
  p.handler.release();
  run_a_while();
  const auto deletion = raw.reap(0);
  REQUIRE(deletion.size() == 1);
  CHECK(deletion[0].code().ok());
  raw.ring_cq(0);
  CHECK(raw.reap(1).size() == 3);
  CHECK(p.controller.core().stats().invalid_doorbell_register == 0);
  raw.rings[1].tail = 0;
  raw.write32(sq_tail_doorbell(QueueId{1}, 0), 1);
  CHECK(p.controller.core().stats().invalid_doorbell_register == 1);
  CHECK(raw.admin(encode_delete_io_cq(QueueId{1})).ok());
}

TEST_CASE("queued commands of a deleted queue end as aborted by the deletion") {
  PlatformParams params;
  params.controller.firmware_time = SimTime::microseconds(10);
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.create_queue(1, 8);
  // The admin queue rings first, so the deletion stands before the flushes in the firmware's queue.
  raw.put(0, encode_get_features(feature::arbitration));
  raw.put(0, encode_delete_io_sq(QueueId{1}), 1);
  raw.ring_sq(0);
  for (std::uint16_t cid = 0; cid < 3; ++cid) raw.put(1, flush(cid));
  raw.ring_sq(1);
  run_a_while();
  CHECK(raw.reap(0).size() == 2);
  const auto done = raw.reap(1);
  REQUIRE(done.size() == 3);
  for (const CompletionEntry& e : done) CHECK(e.code() == status::abort_sq_deletion);
  CHECK(p.handler.executed == 0);
}

TEST_CASE("Identify to bad buffers") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  const auto identify = [&](std::uint64_t prp1, std::uint64_t prp2) {
    SubmissionEntry e = encode_identify(cns::identify_controller);
    e.prp1 = prp1;
    e.prp2 = prp2;
    return raw.admin(e);
  };
  CHECK(identify(0, 0) == status::invalid_field);
  CHECK(identify(kHostBase.value + 2, 0) == status::prp_offset_invalid);
  CHECK(identify(kHostBase.value + 16, 0) == status::invalid_field);
  CHECK(identify(kHostBase.value + 16, kHostBase.value + 8) == status::prp_offset_invalid);
  CHECK(identify(0x7000'0000'0000, 0) == status::data_transfer_error);
  CHECK(identify(kHostBase.value, 0).ok());
}

}  // namespace test_admin_commands
