// A host that knows the NVMe specification and two sockets, and nothing of ours.
#include <catch2/catch.hpp>

#include "nvme_if/spec/identify.h"
#include "tests/nvme_if/platform.h"

namespace test_raw_host {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

TEST_CASE("raw BAR0: identify, create queues, write and read a block") {
  RawPlatform p;
  RawHost& raw = p.raw;
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  CHECK(Cap::decode(raw.read32(reg::cap)).mqes == 1023);
  raw.enable();
  CHECK(Csts::decode(raw.read32(reg::csts)).rdy);

  SubmissionEntry e = encode_identify(cns::identify_controller);
  e.cid = 42;
  e.prp1 = kHostBase.value + 0x800;  // crosses into PRP2
  e.prp2 = kHostBase.value + 0x4000;
  CHECK(raw.admin(e).ok());
  IdentifyController id;
  std::memcpy(reinterpret_cast<std::byte*>(&id), p.host_at(kHostBase + Bytes{0x800}), 0x800);
  std::memcpy(reinterpret_cast<std::byte*>(&id) + 0x800, p.host_at(kHostBase + Bytes{0x4000}), 0x800);
  CHECK(id.nn == 1);
  CHECK(id.kv_magic == kKvMagic);
  CHECK(p.interrupts.raised[0] == 1);

  raw.create_queue(1, 8);
  std::byte* out = p.host_at(kHostBase + Bytes{0x10000});
  for (int i = 0; i < 4096; ++i) out[i] = static_cast<std::byte>(i * 13);
  e = encode_block_io(nvm_opcode::write, NamespaceId{1}, Lba{5}, 1);
  e.prp1 = kHostBase.value + 0x10000;
  CHECK(raw.execute(1, e).code().ok());
  e = encode_block_io(nvm_opcode::read, NamespaceId{1}, Lba{5}, 1);
  e.prp1 = kHostBase.value + 0x20000;
  const CompletionEntry c = raw.execute(1, e);
  CHECK(c.code().ok());
  CHECK(c.sqhd == 2);
  CHECK(c.sqid == 1);
  CHECK(std::memcmp(out, p.host_at(kHostBase + Bytes{0x20000}), 4096) == 0);
  CHECK(p.interrupts.raised[1] == 2);
}

TEST_CASE("interrupts are coalesced by number and by time, those of the admin queue never") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  raw.create_queue(1, 16);
  raw.create_queue(2, 16);
  REQUIRE(raw.admin(encode_set_interrupt_coalescing(4, 1)).ok());
  const int admin = p.interrupts.raised[0];
  const auto flush = [&](std::uint16_t queue, int commands) {
    for (int i = 0; i < commands; ++i) raw.put(queue, encode_flush(NamespaceId{1}), static_cast<std::uint16_t>(i));
    raw.ring_sq(queue);
    sc_core::sc_start(sc_core::sc_time(50, sc_core::SC_US));
    CHECK(raw.reap(queue).size() == static_cast<std::size_t>(commands));
    raw.ring_cq(queue);
  };
  flush(1, 8);
  CHECK(p.interrupts.raised[1] == 2);
  // Three wait for a fourth, each queue by itself.
  flush(1, 3);
  CHECK(p.interrupts.raised[1] == 2);
  flush(2, 1);
  CHECK(p.interrupts.raised[2] == 0);
  // They wait for 100 us and what the command itself took. So much has passed for queue 1, half of it for queue 2.
  CHECK(p.interrupts.raised[1] == 2);
  sc_core::sc_start(sc_core::sc_time(2, sc_core::SC_US));
  CHECK(p.interrupts.raised[1] == 3);
  sc_core::sc_start(sc_core::sc_time(47, sc_core::SC_US));
  CHECK(p.interrupts.raised[2] == 0);
  sc_core::sc_start(sc_core::sc_time(2, sc_core::SC_US));
  CHECK(p.interrupts.raised[2] == 1);
  sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_MS));
  CHECK(p.interrupts.raised[1] == 3);
  CHECK(raw.admin(encode_get_features(feature::interrupt_coalescing)).ok());
  CHECK(p.interrupts.raised[0] == admin + 1);
  // Off again.
  REQUIRE(raw.admin(encode_set_interrupt_coalescing(1, 0)).ok());
  flush(1, 3);
  CHECK(p.interrupts.raised[1] == 6);
}

TEST_CASE("registers refuse widths and addresses, debug access only looks") {
  RawPlatform p;
  RawHost& raw = p.raw;
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  std::uint64_t v = 0;
  CHECK(raw.access(false, reg::cap, &v, 8) == tlm::TLM_OK_RESPONSE);
  CHECK(raw.access(false, reg::cap, &v, 2) == tlm::TLM_BURST_ERROR_RESPONSE);
  CHECK(raw.access(false, reg::cap + 1, &v, 4) == tlm::TLM_BURST_ERROR_RESPONSE);
  CHECK(raw.access(true, reg::cc, &v, 8) == tlm::TLM_BURST_ERROR_RESPONSE);
  CHECK(raw.access(true, 1 << 30, &v, 4) == tlm::TLM_ADDRESS_ERROR_RESPONSE);
  tlm::tlm_generic_payload t;
  std::uint32_t cc = 1;
  t.set_command(tlm::TLM_WRITE_COMMAND);
  t.set_address(reg::cc);
  t.set_data_ptr(reinterpret_cast<unsigned char*>(&cc));
  t.set_data_length(4);
  t.set_streaming_width(4);
  CHECK(raw.bar->transport_dbg(t) == 0);
  t.set_command(tlm::TLM_READ_COMMAND);
  t.set_address(reg::vs);
  CHECK(raw.bar->transport_dbg(t) == 4);
  CHECK(cc == kVersion_1_4);
}

TEST_CASE("doorbell stride") {
  PlatformParams params;
  params.controller.controller.dstrd = 3;
  RawPlatform p(params);
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  p.raw.dstrd = 3;
  p.raw.enable();
  CHECK(p.raw.admin(encode_get_features(feature::arbitration)).ok());
  // The unscaled doorbell of queue 1 lies inside the stride of queue 0: not a doorbell.
  p.raw.write32(0x1008, 1);
  CHECK(p.controller.core().stats().invalid_doorbell_register == 1);
}

TEST_CASE("larger memory pages") {
  PlatformParams params;
  params.controller.controller.mdts = Bytes::kib(64);
  RawPlatform p(params);
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  p.raw.next_page = PhysicalAddress{kQueueBase.value};
  Cc cc{.en = true, .mps = 2, .iosqes = 6, .iocqes = 4};  // 16 KiB
  RawHost::Ring& r = p.raw.rings[0] = {kQueueBase, kQueueBase + Bytes::kib(16), 16};
  p.raw.write32(reg::aqa, encode_aqa(15, 15));
  p.raw.write64(reg::asq, r.sq.value);
  p.raw.write64(reg::acq, r.cq.value);
  p.raw.write32(reg::cc, cc.encode());
  REQUIRE(Csts::decode(p.raw.read32(reg::csts)).rdy);
  p.raw.next_page = kQueueBase + Bytes::kib(64);
  RawHost::Ring& io = p.raw.rings[1] = {kQueueBase + Bytes::kib(64), kQueueBase + Bytes::kib(80), 4};
  SubmissionEntry e = encode_create_io_cq(QueueId{1}, 4, InterruptVector{1});
  e.prp1 = kQueueBase.value + 4096;  // aligned to 4 KiB only
  CHECK(p.raw.admin(e) == status::prp_offset_invalid);
  e.prp1 = io.cq.value;
  CHECK(p.raw.admin(e).ok());
  e = encode_create_io_sq(QueueId{1}, 4, QueueId{1});
  e.prp1 = io.sq.value;
  CHECK(p.raw.admin(e).ok());
  // 8 blocks of 4 KiB are two pages of 16 KiB: PRP2 is a page, not a list.
  std::byte* data = p.host_at(kHostBase);
  for (int i = 0; i < 32768; ++i) data[i] = static_cast<std::byte>(i % 251);
  e = encode_block_io(nvm_opcode::write, NamespaceId{1}, Lba{0}, 8);
  e.prp1 = kHostBase.value;
  e.prp2 = kHostBase.value + Bytes::kib(16).value;
  CHECK(p.raw.execute(1, e).code().ok());
  CHECK(std::memcmp(p.handler.medium.data(), data, 32768) == 0);
}

TEST_CASE("reset in the middle of work, then a fresh start") {
  PlatformParams params;
  params.link = {.bandwidth = Bandwidth{100'000'000}};  // slow, so that DMA is under way
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.create_queue(1, 16);
  p.handler.hold = true;
  for (std::uint16_t i = 0; i < 6; ++i) {
    SubmissionEntry e = encode_block_io(nvm_opcode::read, NamespaceId{1}, Lba{i}, 1);
    e.cid = i;
    e.prp1 = kHostBase.value + i * 4096u;
    raw.put(1, e);
  }
  raw.ring_sq(1);
  run_a_while();
  REQUIRE(p.handler.held.size() == 6);
  CHECK(p.controller.commands_inside() == 6);
  // Three start their data transfer, three stay with the firmware.
  std::vector<CommandPtr> held = std::exchange(p.handler.held, {});
  p.handler.hold = false;
  for (int i = 0; i < 3; ++i) p.handler.run(held[static_cast<std::size_t>(i)]);
  sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_US));
  raw.write32(reg::cc, 0);
  CHECK(Csts::decode(raw.read32(reg::csts)).rdy);  // DMA is still under way
  run_a_while();
  CHECK_FALSE(Csts::decode(raw.read32(reg::csts)).rdy);
  CHECK(raw.reap(1).size() == 3);  // they followed the data on the link
  CHECK(p.controller.commands_inside() == 0);

  raw.next_page = kQueueBase;
  std::memset(p.host_at(kQueueBase), 0, 65536);
  raw.enable();
  raw.create_queue(1, 16);
  // The old commands come back late: their data goes nowhere, their completion is dropped.
  const std::byte before = *p.host_at(kHostBase + Bytes{3 * 4096});
  for (int i = 3; i < 6; ++i) p.handler.run(held[static_cast<std::size_t>(i)]);
  p.handler.at(3 * 4096, 4096)[0] = static_cast<std::byte>(0xEE);
  run_a_while();
  CHECK(*p.host_at(kHostBase + Bytes{3 * 4096}) == before);
  CHECK(raw.reap(1).empty());
  SubmissionEntry e = encode_block_io(nvm_opcode::read, NamespaceId{1}, Lba{3}, 1);
  e.cid = 3;
  e.prp1 = kHostBase.value + 3 * 4096;
  CHECK(raw.execute(1, e).code().ok());
  CHECK(*p.host_at(kHostBase + Bytes{3 * 4096}) == static_cast<std::byte>(0xEE));
}

TEST_CASE("enabling again while a reset is under way takes effect after it") {
  PlatformParams params;
  params.link = {.bandwidth = Bandwidth{100'000'000}};
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.put(0, encode_get_features(feature::arbitration));
  raw.ring_sq(0);
  raw.write32(reg::cc, 0);
  raw.write32(reg::cc, Cc{.en = true, .iosqes = 6, .iocqes = 4}.encode());
  CHECK(Csts::decode(raw.read32(reg::csts)).rdy);
  run_a_while();
  CHECK(raw.reap(0).empty());
  raw.rings[0].tail = 0;
  CHECK(raw.admin(encode_get_features(feature::arbitration)).ok());
}

TEST_CASE("shutdown completes when the last command is done") {
  EnabledPlatform p;
  RawHost& raw = p.raw;
  raw.create_queue(1, 8);
  p.handler.hold = true;
  SubmissionEntry e = encode_flush(NamespaceId{1});
  raw.put(1, e);
  raw.ring_sq(1);
  run_a_while();
  raw.write32(reg::cc, Cc{.en = true, .shn = 1, .iosqes = 6, .iocqes = 4}.encode());
  run_a_while();
  CHECK(Csts::decode(raw.read32(reg::csts)).shst == ShutdownStatus::processing);
  p.handler.release();
  run_a_while();
  CHECK(Csts::decode(raw.read32(reg::csts)).shst == ShutdownStatus::complete);
  CHECK(raw.reap(1).size() == 1);
  // Nothing is fetched any more.
  e.cid = 1;
  raw.put(1, e);
  raw.ring_sq(1);
  run_a_while();
  CHECK(raw.reap(1).empty());
}

TEST_CASE("queues in memory that does not exist set CFS") {
  RawPlatform p;
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  p.raw.write32(reg::aqa, encode_aqa(15, 15));
  p.raw.write64(reg::asq, 0x7000'0000'0000);
  p.raw.write64(reg::acq, 0x7000'0001'0000);
  p.raw.write32(reg::cc, Cc{.en = true, .iosqes = 6, .iocqes = 4}.encode());
  p.raw.write32(sq_tail_doorbell(QueueId{0}, 0), 1);
  run_a_while();
  CHECK(Csts::decode(p.raw.read32(reg::csts)).cfs);
  // A reset with a good queue recovers.
  p.raw.write32(reg::cc, 0);
  CHECK_FALSE(Csts::decode(p.raw.read32(reg::csts)).cfs);
  p.raw.enable();
  CHECK(p.raw.admin(encode_get_features(feature::arbitration)).ok());
}

}  // namespace test_raw_host
