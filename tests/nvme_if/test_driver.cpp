// The driver end to end, on a drive whose medium is RAM.
#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "tests/nvme_if/platform.h"

namespace test_driver {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

namespace {
constexpr QueueId kQueue{1};
constexpr std::uint8_t kRead = nvm_opcode::read;
constexpr std::uint8_t kWrite = nvm_opcode::write;

/// Passes accesses on, but grants no direct memory interface.
class NoDmi : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<NoDmi> target;
  tlm_utils::simple_initiator_socket<NoDmi> initiator;
  explicit NoDmi(const sc_core::sc_module_name& name) : sc_module(name), target("target"), initiator("initiator") {
    target.register_b_transport(this, &NoDmi::b_transport);
    target.register_transport_dbg(this, &NoDmi::transport_dbg);
  }

 private:
  void b_transport(tlm::tlm_generic_payload& p, sc_core::sc_time& delay) { initiator->b_transport(p, delay); }
  unsigned transport_dbg(tlm::tlm_generic_payload& p) { return initiator->transport_dbg(p); }
};
}  // namespace

TEST_CASE("bring-up identifies the drive and creates the granted queues") {
  PlatformParams params;
  params.driver.queues = 9;
  params.controller.controller.io_queues = 3;
  Platform p(params);
  bool ready = false;
  p.driver.on_ready([&] { ready = true; });
  p.run();
  CHECK(ready);
  CHECK(p.driver.queues() == 3);
  CHECK(p.driver.block_size() == Bytes::kib(4));
  CHECK(p.driver.mdts() == Bytes::mib(2));
  CHECK(p.driver.name_space().nsze == 8192);
  CHECK(p.driver.issued() == p.driver.completed());
  bool again = false;
  p.driver.on_ready([&] { again = true; });
  CHECK(again);
}

TEST_CASE("bring-up that cannot work says why") {
  PlatformParams params;
  SECTION("no room for the queues") { params.driver.queue_memory.length = Bytes{8192}; }
  SECTION("queue memory outside of physical memory") {
    params.driver.queue_memory.address = PhysicalAddress{0x7000'0000'0000};
  }
  SECTION("room for the admin queue, but not for the others") { params.driver.queue_memory.length = Bytes{4096 * 3}; }
  Platform p(params);
  CHECK_THROWS_WITH(p.run(), Catch::Contains("NVMe driver"));
  CHECK_FALSE(p.driver.ready());
}

TEST_CASE("random writes and reads of every size, alignment and region return what was written") {
  const auto seed = Catch::rngSeed() + 4;
  INFO("seed " << seed);
  std::mt19937_64 rng(seed);
  PlatformParams params;
  params.controller.controller.mdts = Bytes::kib(64);
  params.link = {.generation = 3, .lanes = 4, .latency = SimTime::nanoseconds(150)};
  Platform p(params);
  std::vector<std::byte> image(8192 * 4096);
  int remaining = 300;
  std::vector<std::byte> expected;
  Segment buffer;
  const auto data = [&]() -> std::byte* {
    return buffer.address >= kGpuBase ? p.gpu_at(buffer.address) : p.host_at(buffer.address);
  };
  std::function<void()> step = [&] {
    if (remaining-- == 0) return;
    const std::uint64_t blocks = 1 + rng() % (rng() % 4 == 0 ? 60 : 4);  // up to 240 KiB: split at 64 KiB
    const Lba lba{rng() % (8192 - blocks)};
    const PhysicalAddress base = rng() % 2 == 0 ? kHostBase : kGpuBase;
    buffer = {base + Bytes{rng() % 4096 / 4 * 4 + rng() % 100 * 4096}, Bytes{blocks * 4096}};
    const QueueId queue{static_cast<std::uint16_t>(1 + rng() % p.driver.queues())};
    if (rng() % 2 == 0) {
      for (std::uint64_t i = 0; i < buffer.length.value; ++i) data()[i] = static_cast<std::byte>(rng());
      std::memcpy(&image[lba.value * 4096], data(), buffer.length.value);
      p.driver.submit_block(queue, kWrite, lba, blocks, {&buffer, 1}, [&](const CompletionEntry& e, SimTime) {
        REQUIRE(e.code().ok());
        step();
      });
    } else {
      std::memset(data(), 0xAA, buffer.length.value);
      p.driver.submit_block(queue, kRead, lba, blocks, {&buffer, 1}, [&, lba](const CompletionEntry& e, SimTime) {
        REQUIRE(e.code().ok());
        REQUIRE(std::memcmp(data(), &image[lba.value * 4096], buffer.length.value) == 0);
        step();
      });
    }
  };
  p.driver.on_ready(step);
  p.run();
  CHECK(remaining == -1);
  CHECK(p.driver.issued() == p.driver.completed());
  CHECK(p.controller.commands_inside() == 0);
  CHECK(p.map.traffic(RegionKind::gpu_memory).bytes_to_region > 0);
}

TEST_CASE("scattered buffers through PRP lists, chained where mdts is large") {
  const bool reverse = GENERATE(false, true);
  Platform p;
  // 512 blocks = 2 MiB over pages in an order without contiguous neighbours, after an offset first page: 513 pages.
  std::vector<Segment> scattered{{kHostBase + Bytes{0x100}, Bytes{4096 - 0x100}}};
  for (std::uint64_t i = 0; i < 511; ++i) {
    const std::uint64_t slot = reverse ? 512 - i : 2 + (i * 37) % 511;
    scattered.push_back({kHostBase + Bytes{slot * 8192}, Bytes{4096}});
  }
  scattered.push_back({kHostBase + Bytes{600 * 8192}, Bytes{0x100}});
  std::vector<std::byte> reference;
  std::mt19937_64 rng(7);
  for (const Segment& s : scattered)
    for (std::uint64_t i = 0; i < s.length.value; ++i) {
      reference.push_back(static_cast<std::byte>(rng()));
      *p.host_at(s.address + Bytes{i}) = reference.back();
    }
  bool done = false;
  p.driver.on_ready([&] {
    p.driver.submit_block(kQueue, kWrite, Lba{0}, 512, scattered, [&](const CompletionEntry& e, SimTime) {
      CHECK(e.code().ok());
      done = true;
    });
  });
  p.run();
  CHECK(done);
  CHECK(std::equal(reference.begin(), reference.end(), p.handler.medium.begin()));
}

TEST_CASE("commands submitted at the same time share a doorbell") {
  Platform p;
  std::uint64_t before = 0;
  int done = 0;
  p.driver.on_ready([&] {
    before = p.driver.doorbells();
    for (int i = 0; i < 100; ++i)
      p.driver.submit(kQueue, encode_flush(NamespaceId{1}), {}, [&](const CompletionEntry&, SimTime) { ++done; });
  });
  p.run();
  CHECK(done == 100);
  CHECK(p.driver.doorbells() == before + 1);
}

TEST_CASE("more commands than a queue holds wait in the driver") {
  PlatformParams params;
  params.driver.queue_depth = 4;
  Platform p(params);
  std::vector<int> order;
  p.driver.on_ready([&] {
    for (int i = 0; i < 50; ++i)
      p.driver.submit(kQueue, encode_flush(NamespaceId{1}), {},
                      [&, i](const CompletionEntry&, SimTime) { order.push_back(i); });
  });
  p.run();
  REQUIRE(order.size() == 50);
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(p.driver.issued() == p.driver.completed());
}

TEST_CASE("host overhead is paid serially by each queue's core") {
  const auto time_of = [](int queues_used) {
    PlatformParams params;
    params.driver.io_overhead = SimTime::microseconds(5);
    params.link = {.bandwidth = Bandwidth{64'000'000'000}};
    Platform p(params);
    SimTime start;
    SimTime last;
    p.driver.on_ready([&, queues_used] {
      start = sim_now();
      for (int i = 0; i < 4; ++i)
        p.driver.submit(QueueId{static_cast<std::uint16_t>(1 + i % queues_used)}, encode_flush(NamespaceId{1}), {},
                        [&](const CompletionEntry&, SimTime at) { last = at; });
    });
    p.run();
    return last - start;
  };
  // Fetch of 64 bytes 1 ns, completion of 16 bytes 0.25 ns; the last entries of two queues travel behind each other.
  CHECK(time_of(1) == SimTime::microseconds(20) + SimTime::picoseconds(1250));
  CHECK(time_of(2) == SimTime::microseconds(10) + SimTime::picoseconds(2250));
}

TEST_CASE("a batch that goes together reaches the drive when the host has done its part of all its commands") {
  // 6 commands, dealt out to the queues; each queue has a core of its own.
  struct Seen {
    SimTime submitted, first, last;
    std::uint64_t doorbells = 0;
  };
  const auto play = [](int queues, bool together, std::uint32_t depth, SimTime overhead) {
    PlatformParams params;
    params.driver.queues = 2;
    params.driver.queue_depth = depth;
    params.driver.io_overhead = overhead;
    params.link = {.bandwidth = Bandwidth{64'000'000'000}};
    Platform p(params);
    SimTime start;
    Seen seen{{}, SimTime::max(), {}, 0};
    std::vector<int> order;
    p.driver.on_ready([&, queues, together] {
      start = sim_now();
      seen.doorbells = p.driver.doorbells();
      p.driver.begin_batch(together);
      for (int i = 0; i < 6; ++i)
        p.driver.submit(QueueId{static_cast<std::uint16_t>(1 + i % queues)}, encode_flush(NamespaceId{1}), {},
                        [&, i](const CompletionEntry&, SimTime at) {
                          order.push_back(i);
                          seen.first = std::min(seen.first, at);
                          seen.last = std::max(seen.last, at);
                        });
      seen.submitted = p.driver.end_batch() - start;
    });
    p.run();
    CHECK(order.size() == 6);
    seen.first = seen.first - start;
    seen.last = seen.last - start;
    seen.doorbells = p.driver.doorbells() - seen.doorbells;
    return seen;
  };
  const SimTime overhead = SimTime::microseconds(5);
  for (const int queues : {1, 2}) {
    INFO("queues " << queues);
    const SimTime host = overhead * (6 / queues);
    const Seen alone = play(queues, false, 64, overhead), together = play(queues, true, 64, overhead);
    CHECK(alone.submitted == host);
    CHECK(together.submitted == host);
    CHECK(alone.first < overhead + SimTime::nanoseconds(10));
    CHECK(together.first > host);
    CHECK(together.last < host + SimTime::nanoseconds(20));
    CHECK(together.last >= alone.last);
    CHECK(alone.doorbells == 6);
    CHECK(together.doorbells == static_cast<std::uint64_t>(queues));
    // A queue of 4 entries takes 3 commands: the others follow as these complete.
    const Seen shallow = play(queues, true, 4, overhead);
    CHECK(shallow.first > host);
    if (queues == 1) CHECK(shallow.doorbells > 1);
    CHECK(shallow.last < host + SimTime::nanoseconds(100));
  }
  // Work that takes no time holds nothing back.
  const Seen free = play(2, true, 64, {}), as_always = play(2, false, 64, {});
  CHECK(free.submitted == SimTime{});
  CHECK(free.last == as_always.last);
  CHECK(free.doorbells == as_always.doorbells);
}

TEST_CASE("commands after a batch follow it in their queue") {
  PlatformParams params;
  params.driver.io_overhead = SimTime::microseconds(5);
  Platform p(params);
  std::vector<int> order;
  SimTime start, of_the_last;
  p.driver.on_ready([&] {
    start = sim_now();
    const auto submit = [&](int i, QueueId queue) {
      p.driver.submit(queue, encode_flush(NamespaceId{1}), {}, [&, i](const CompletionEntry&, SimTime at) {
        order.push_back(i);
        of_the_last = at;
      });
    };
    p.driver.begin_batch(true);
    submit(0, QueueId{1});
    for (int i = 1; i < 4; ++i) submit(i, QueueId{2});
    p.driver.end_batch();
    submit(4, QueueId{1});  // its core is through after 10 us, but command 0 waits until 15 us
  });
  p.run();
  REQUIRE(order.size() == 5);
  CHECK(std::ranges::find(order, 4) > std::ranges::find(order, 0));
  CHECK(of_the_last - start > SimTime::microseconds(15));
}

TEST_CASE("the time of a 4 KiB read has a closed form") {
  PlatformParams params;
  params.link = {.generation = 3, .lanes = 4, .latency = SimTime::nanoseconds(100)};
  params.controller.firmware_time = SimTime::microseconds(1);
  Platform p(params);
  const Segment buffer{kHostBase, Bytes{4096}};
  SimTime start;
  SimTime end;
  p.driver.on_ready([&] {
    start = sim_now();
    p.driver.submit_block(kQueue, kRead, Lba{0}, 1, {&buffer, 1},
                          [&](const CompletionEntry&, SimTime at) { end = at; });
  });
  p.run();
  PcieLink link(params.link);
  const SimTime fetched = link.reserve_read(Bytes{64}, SimTime{0}).arrival;
  // The completion follows the data on the link.
  const SimTime read = fetched + SimTime::microseconds(1);
  link.reserve(LinkDirection::to_host, Bytes{4096}, read);
  const SimTime completion = link.reserve(LinkDirection::to_host, Bytes{16}, read).arrival;
  CHECK(end - start == completion);
}

TEST_CASE("errors reach the caller, also from one part of a split transfer") {
  PlatformParams params;
  params.controller.controller.mdts = Bytes::kib(16);
  Platform p(params);
  const Segment buffer{kHostBase, Bytes::kib(64)};
  Status whole;
  Status beyond;
  Status past_memory;
  p.driver.on_ready([&] {
    p.driver.submit_block(kQueue, kRead, Lba{0}, 16, {&buffer, 1},
                          [&](const CompletionEntry& e, SimTime) { whole = e.code(); });
    p.driver.submit_block(kQueue, kRead, Lba{8192 - 8}, 16, {&buffer, 1},
                          [&](const CompletionEntry& e, SimTime) { beyond = e.code(); });
    const Segment nowhere{PhysicalAddress{0x7000'0000'0000}, Bytes::kib(64)};
    p.driver.submit_block(kQueue, kWrite, Lba{0}, 16, {&nowhere, 1},
                          [&](const CompletionEntry& e, SimTime) { past_memory = e.code(); });
    CHECK_THROWS_AS(p.driver.submit_block(kQueue, kRead, Lba{0}, 3, {&buffer, 1}, {}), UserError);
    CHECK_THROWS_AS(p.driver.submit_block(QueueId{50}, kRead, Lba{0}, 16, {&buffer, 1}, {}), UserError);
  });
  p.run();
  CHECK(whole.ok());
  CHECK(beyond == status::lba_out_of_range);
  CHECK(past_memory == status::data_transfer_error);
}

TEST_CASE("peer to peer: data goes to GPU memory and not through host DRAM") {
  Platform p;
  const Segment gpu{kGpuBase + Bytes{0x3000}, Bytes::kib(64)};
  for (std::uint64_t i = 0; i < 65536; ++i) p.handler.at(0, 65536)[i] = static_cast<std::byte>(i * 11);
  std::uint64_t host_before = 0;
  p.driver.on_ready([&] {
    host_before = p.map.traffic(RegionKind::host_dram).bytes_to_region;
    p.driver.submit_block(kQueue, kRead, Lba{0}, 16, {&gpu, 1}, [](const CompletionEntry&, SimTime) {});
  });
  p.run();
  CHECK(std::memcmp(p.gpu_at(gpu.address), p.handler.medium.data(), 65536) == 0);
  CHECK(p.map.traffic(RegionKind::gpu_memory).bytes_to_region == 65536);
  CHECK(p.map.traffic(RegionKind::host_dram).bytes_to_region == host_before + sizeof(CompletionEntry));
}

TEST_CASE("the driver works on memory without direct access") {
  Drive drive;
  NvmeDriver driver("driver", PlatformParams::small_driver());
  NoDmi plain("plain");
  driver.bar.bind(drive.controller.bar);
  driver.memory.bind(plain.target);
  plain.initiator.bind(drive.fabric.target);
  drive.controller.interrupt.bind(driver);
  const Segment buffer{kHostBase + Bytes{8}, Bytes::kib(64)};
  std::memset(drive.host_at(buffer.address), 0x5A, 65536);
  Status written = status::internal_error;
  driver.on_ready([&] {
    driver.submit_block(kQueue, kWrite, Lba{1}, 16, {&buffer, 1},
                        [&](const CompletionEntry& e, SimTime) { written = e.code(); });
  });
  sc_core::sc_start();
  CHECK(driver.failure().empty());
  CHECK(written.ok());
  CHECK(std::memcmp(drive.host_at(buffer.address), drive.handler.at(4096, 65536).data(), 65536) == 0);
}

TEST_CASE("the same run gives the same times") {
  const auto run = [] {
    PlatformParams params;
    params.link = {.latency = SimTime::nanoseconds(50)};
    params.driver.io_overhead = SimTime::nanoseconds(700);
    Platform p(params);
    std::vector<std::int64_t> times;
    std::mt19937_64 rng(11);
    const Segment buffer{kHostBase, Bytes::kib(16)};
    p.driver.on_ready([&] {
      for (int i = 0; i < 200; ++i)
        p.driver.submit_block(QueueId{static_cast<std::uint16_t>(1 + rng() % 4)}, kRead, Lba{rng() % 8000}, 4,
                              {&buffer, 1}, [&](const CompletionEntry&, SimTime at) { times.push_back(at.ps); });
    });
    p.run();
    return times;
  };
  const auto first = run();
  CHECK(first.size() == 200);
  CHECK(first == run());
}

}  // namespace test_driver
