// Rings under pressure: phase wrap, full queues, several queues, round robin, firmware time, identifier conflicts.
#include <catch2/catch.hpp>

#include "tests/nvme_if/platform.h"

namespace test_queues {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

TEST_CASE("phase bit over many wraps of a small queue") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  raw.create_queue(1, 3);
  for (std::uint16_t i = 0; i < 50; ++i) {
    const CompletionEntry c = raw.execute(1, flush(i));
    REQUIRE(c.code().ok());
    REQUIRE(c.sqhd == (i + 1) % 3);
  }
}

TEST_CASE("a full completion queue holds completions back until the host makes room") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  // Completion queue of 4, submission queue of 16: eight commands, room for three completions.
  SubmissionEntry e = encode_create_io_cq(QueueId{1}, 4, InterruptVector{1});
  RawHost::Ring& r = raw.rings[1] = {raw.page(), raw.page(), 16};
  e.prp1 = r.cq.value;
  REQUIRE(raw.admin(e).ok());
  e = encode_create_io_sq(QueueId{1}, 16, QueueId{1});
  e.prp1 = r.sq.value;
  REQUIRE(raw.admin(e).ok());
  for (std::uint16_t i = 0; i < 8; ++i) raw.put(1, flush(i));
  raw.ring_sq(1);
  r.depth = 4;  // from here on the ring is used for its completion side
  std::vector<std::uint16_t> order;
  for (const std::size_t expected : {3u, 3u, 2u}) {
    run_a_while();
    const auto done = raw.reap(1);
    REQUIRE(done.size() == expected);
    for (const CompletionEntry& c : done) order.push_back(c.cid);
    raw.ring_cq(1);
  }
  CHECK(order == std::vector<std::uint16_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(p.controller.commands_inside() == 0);
}

TEST_CASE("weighted round robin: urgent queues first, then each class its weight in commands") {
  PlatformParams params;
  params.controller.fetch_burst = 4;
  params.controller.outstanding_fetches = 1;
  params.controller.command_slots = 4;
  params.controller.firmware_time = SimTime::microseconds(5);
  params.controller.controller.io_queues = 5;
  RawPlatform p(params);
  RawHost& raw = p.raw;
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  raw.enable(16, {.en = true, .ams = 1, .iosqes = 6, .iocqes = 4});
  REQUIRE(raw.admin(encode_set_arbitration(3, 2, 1)).ok());
  raw.create_queue(1, 64);
  const QueuePriority classes[]{QueuePriority::low, QueuePriority::medium, QueuePriority::high, QueuePriority::urgent};
  for (std::uint16_t id = 2; id <= 5; ++id) {
    RawHost::Ring& ring = raw.rings[id] = {raw.page(), {}, 32};
    SubmissionEntry e = encode_create_io_sq(QueueId{id}, 32, QueueId{1}, classes[id - 2]);
    e.prp1 = ring.sq.value;
    REQUIRE(raw.admin(e).ok());
  }
  // Four of another queue hold all slots while the others come.
  for (std::uint16_t i = 0; i < 4; ++i) raw.put(1, flush(i));
  raw.ring_sq(1);
  for (std::uint16_t id = 2; id <= 5; ++id) {
    for (std::uint16_t i = 0; i < 6; ++i) raw.put(id, flush(i));
    raw.ring_sq(id);
  }
  run_a_while();
  std::vector<std::uint16_t> order;
  for (const CompletionEntry& e : raw.reap(1)) order.push_back(e.sqid);
  CHECK(order == std::vector<std::uint16_t>{1, 1, 1, 1, 5, 5, 5, 5, 5, 5,        // urgent, without limit
                                            4, 4, 4, 3, 3, 2, 4, 4, 4, 3, 3, 2,  // two rounds
                                            3, 3, 2, 2, 2, 2});                  // those that are left
}

TEST_CASE("several submission queues may share a completion queue; fetching is round robin") {
  PlatformParams params;
  params.controller.fetch_burst = 1;
  params.controller.outstanding_fetches = 1;
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.create_queue(1, 32);
  RawHost::Ring& second = raw.rings[2] = {raw.page(), {}, 32};
  SubmissionEntry e = encode_create_io_sq(QueueId{2}, 32, QueueId{1});
  e.prp1 = second.sq.value;
  REQUIRE(raw.admin(e).ok());
  for (std::uint16_t i = 0; i < 5; ++i) {
    raw.put(1, flush(i));
    raw.put(2, flush(i));
  }
  raw.ring_sq(1);
  raw.ring_sq(2);
  run_a_while();
  const auto done = raw.reap(1);
  REQUIRE(done.size() == 10);
  for (std::size_t i = 0; i < done.size(); ++i) {
    CHECK(done[i].sqid == 1 + i % 2);
    CHECK(done[i].cid == i / 2);
  }
}

TEST_CASE("an identifier that is outstanding is a conflict") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  raw.create_queue(1, 8);
  p.handler.hold = true;
  raw.put(1, flush(5));
  raw.put(1, flush(5));
  raw.ring_sq(1);
  run_a_while();
  auto done = raw.reap(1);
  REQUIRE(done.size() == 1);
  CHECK(done[0].code() == status::command_id_conflict);
  p.handler.release();
  run_a_while();
  done = raw.reap(1);
  REQUIRE(done.size() == 1);
  CHECK(done[0].code().ok());
  raw.ring_cq(1);
  CHECK(raw.execute(1, flush(5)).code().ok());
}

TEST_CASE("firmware works serially, so commands cost it one after the other") {
  PlatformParams params;
  params.controller.firmware_time = SimTime::microseconds(7);
  params.link = {.bandwidth = Bandwidth{64'000'000'000}};  // an entry in 1 ns, a completion in 0.25 ns
  params.driver.queues = 1;
  Platform p(params);
  std::vector<SimTime> done;
  SimTime start;
  p.driver.on_ready([&] {
    start = sim_now();
    for (int i = 0; i < 3; ++i)
      p.driver.submit(QueueId{1}, encode_flush(NamespaceId{1}), {},
                      [&](const CompletionEntry&, SimTime at) { done.push_back(at); });
  });
  p.run();
  REQUIRE(done.size() == 3);
  const SimTime fetch = SimTime::nanoseconds(3);
  for (int i = 0; i < 3; ++i)
    CHECK(done[static_cast<std::size_t>(i)] ==
          start + fetch + SimTime::microseconds(7) * (i + 1) + SimTime::picoseconds(250));
}

TEST_CASE("command slots bound what is inside the controller") {
  PlatformParams params;
  params.controller.command_slots = 4;
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.create_queue(1, 16);
  p.handler.hold = true;
  for (std::uint16_t i = 0; i < 10; ++i) raw.put(1, flush(i));
  raw.ring_sq(1);
  run_a_while();
  CHECK(p.controller.commands_inside() == 4);
  CHECK(p.handler.held.size() == 4);
  p.handler.release();
  run_a_while();
  CHECK(raw.reap(1).size() == 10);
  CHECK(p.controller.commands_inside() == 0);
}

}  // namespace test_queues
