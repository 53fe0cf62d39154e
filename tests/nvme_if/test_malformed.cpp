// Commands and doorbells that are wrong: each gets its status, none stops the drive.
#include <catch2/catch.hpp>
#include <random>

#include "tests/nvme_if/platform.h"

namespace test_malformed {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

namespace {

SubmissionEntry read_one(std::uint64_t prp1, std::uint64_t prp2 = 0, std::uint32_t blocks = 1) {
  SubmissionEntry e = encode_block_io(nvm_opcode::read, NamespaceId{1}, Lba{0}, blocks);
  e.prp1 = prp1;
  e.prp2 = prp2;
  return e;
}

template <class Change>
SubmissionEntry changed(SubmissionEntry e, Change change) {
  change(e);
  return e;
}

}  // namespace

TEST_CASE("bad commands get their status, and the next good one works") {
  PlatformParams params;
  params.controller.controller.mdts = Bytes::kib(64);
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.create_queue(1, 16);
  const std::uint64_t host = kHostBase.value;
  const std::uint64_t list = host + 0x100000;
  auto* entries = reinterpret_cast<std::uint64_t*>(p.host_at(PhysicalAddress{list}));
  entries[0] = host + 0x2000;
  entries[1] = host + 0x3004;       // misaligned
  entries[511] = 0x7000'0000'0000;  // chain to nowhere
  entries[510] = host + 0x4000;
  const NamespaceId ns{1};
  const SubmissionEntry attend = encode(ns, KvAttend{LayerId{0}, 1, AttendMethod::dense, 1, 64, 4});
  const SubmissionEntry append = encode(ns, KvAppend{SequenceId{1}, LayerId{0}, TokenIndex{0}, 1, KvHead{0}, 2}, 64);

  struct Case {
    const char* what;
    SubmissionEntry command;
    Status expected;
  };
  const std::vector<Case> cases{
      {"unknown opcode", {.opcode = 0x55, .nsid = 1}, status::invalid_opcode},
      {"unknown vendor opcode", {.opcode = 0xFF, .nsid = 1}, status::invalid_opcode},
      {"namespace 0", changed(read_one(host), [](auto& e) { e.nsid = 0; }), status::invalid_namespace},
      {"namespace 2", changed(read_one(host), [](auto& e) { e.nsid = 2; }), status::invalid_namespace},
      {"fused", changed(read_one(host), [](auto& e) { e.flags = 1; }), status::invalid_field},
      {"SGL with metadata", changed(read_one(host), [](auto& e) { e.flags = 0x80; }), status::invalid_field},
      {"LBA out of range", changed(read_one(host), [](auto& e) { e.cdw10 = 8192; }), status::lba_out_of_range},
      {"LBA wraps", changed(read_one(host), [](auto& e) { e.cdw10 = e.cdw11 = ~0u; }), status::lba_out_of_range},
      {"larger than mdts", read_one(host, list, 17), status::invalid_field},
      {"PRP1 zero", read_one(0), status::invalid_field},
      {"PRP1 not on a dword", read_one(host + 1), status::prp_offset_invalid},
      {"PRP1 nowhere", read_one(0x7000'0000'0000), status::data_transfer_error},
      {"PRP1 at the end of the address space", read_one(~std::uint64_t{0} & ~3ull, host), status::data_transfer_error},
      {"PRP2 zero", read_one(host, 0, 2), status::invalid_field},
      {"PRP2 with offset", read_one(host, host + 0x1010, 2), status::prp_offset_invalid},
      {"list not on a qword", read_one(host, list + 4, 3), status::prp_offset_invalid},
      {"list nowhere", read_one(host, 0x7000'0000'0000, 3), status::data_transfer_error},
      {"list entry misaligned", read_one(host, list, 3), status::prp_offset_invalid},
      {"list entry zero", read_one(host, list + 16, 3), status::invalid_field},
      {"chain to nowhere", read_one(host, list + 510 * 8, 4), status::data_transfer_error},
      {"NDT larger than mdts", changed(attend, [](auto& e) { e.cdw10 = ~0u; }), status::invalid_field},
      {"NDM not zero", changed(attend, [](auto& e) { e.cdw11 = 1; }), status::invalid_field},
      {"NDT does not fit the shape", changed(attend, [](auto& e) { ++e.cdw10; }), status::kv_shape_mismatch},
      {"unknown method", changed(attend, [](auto& e) { e.cdw13 |= 7; }), status::kv_bad_parameters},
      {"no heads", changed(append, [](auto& e) { e.cdw15 = 0; }), status::kv_bad_head},
      {"no tokens", changed(append, [](auto& e) { e.cdw13 = 0; }), status::kv_bad_token},
      {"kv_create with data",
       {.opcode = 0x80, .nsid = 1, .cdw10 = 4, .cdw13 = 0x10001, .cdw14 = 64},
       status::kv_shape_mismatch},
  };
  const std::uint64_t errors_before = p.controller.core().stats().error_completions;
  for (const Case& c : cases) {
    INFO(c.what);
    const CompletionEntry result = raw.execute(1, c.command);
    CHECK(status_name(result.code()) == status_name(c.expected));
    CHECK(p.controller.commands_inside() == 0);
  }
  CHECK(p.controller.core().stats().error_completions == errors_before + cases.size());
  CHECK(raw.execute(1, read_one(host)).code().ok());
}

TEST_CASE("bad doorbells are counted and change nothing") {
  RawPlatform p;
  RawHost& raw = p.raw;
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  raw.write32(sq_tail_doorbell(QueueId{0}, 0), 1);  // before the controller is enabled
  raw.enable();
  raw.create_queue(1, 8);
  const auto& stats = p.controller.core().stats();
  CHECK(stats.invalid_doorbell_register == 1);
  raw.write32(sq_tail_doorbell(QueueId{3}, 0), 1);  // no such queue
  raw.write32(cq_head_doorbell(QueueId{3}, 0), 1);
  CHECK(stats.invalid_doorbell_register == 3);
  raw.write32(sq_tail_doorbell(QueueId{1}, 0), 8);  // outside
  raw.write32(sq_tail_doorbell(QueueId{1}, 0), 0);  // unchanged
  raw.write32(cq_head_doorbell(QueueId{1}, 0), 3);  // past the tail
  raw.write32(cq_head_doorbell(QueueId{1}, 0), 0xFFFF'FFFF);
  CHECK(stats.invalid_doorbell_value == 4);
  std::uint64_t wide = 1;
  CHECK(raw.access(true, sq_tail_doorbell(QueueId{0}, 0), &wide, 8) == tlm::TLM_BURST_ERROR_RESPONSE);
  CHECK(raw.access(true, sq_tail_doorbell(QueueId{1}, 0) + 2, &wide, 4) == tlm::TLM_BURST_ERROR_RESPONSE);
  CHECK(raw.execute(1, read_one(kHostBase.value)).code().ok());
}

TEST_CASE("100,000 random submission entries: every one completes, none stops the drive") {
  const auto seed = Catch::rngSeed() + 5;
  INFO("seed " << seed);
  std::mt19937_64 rng(seed);
  PlatformParams params;
  params.controller.controller.mdts = Bytes::kib(64);
  EnabledPlatform p(params);
  RawHost& raw = p.raw;
  raw.create_queue(1, 128);
  constexpr std::uint8_t kOpcodes[] = {0x00, 0x01, 0x02, 0x09, 0x80, 0x81, 0x83, 0x84, 0x85, 0x87, 0x8B};
  std::uint64_t completed = 0;
  std::uint64_t ok = 0;
  std::uint16_t cid = 0;
  for (int batch = 0; batch < 1000; ++batch) {
    // The lower half of host DRAM is random PRP list content at first touch; queues stand in the upper half.
    for (int i = 0; i < 100; ++i) {
      std::uint64_t words[8];
      for (auto& w : words) w = rng();
      SubmissionEntry e;
      std::memcpy(&e, words, sizeof e);
      e.cid = ++cid;
      const auto buffer = [&] {
        return kHostBase.value + rng() % (kHostSize.value / 4) / 4096 * 4096 + (rng() % 4 == 0 ? rng() % 4096 : 0);
      };
      if (i % 4 != 0) {
        e.opcode = kOpcodes[rng() % std::size(kOpcodes)];
        e.flags = 0;
        e.nsid = 1;
        e.prp1 = buffer();
        e.prp2 = buffer();
        e.cdw11 = 0;
        for (std::uint32_t* d : {&e.cdw10, &e.cdw12, &e.cdw13, &e.cdw14, &e.cdw15})
          if (rng() % 4 != 0) *d &= 0x000F'000Fu;
        if (rng() % 16 == 0) *reinterpret_cast<std::uint64_t*>(p.host_at(PhysicalAddress{e.prp2 & ~7ull})) = buffer();
      }
      raw.put(1, e);
    }
    raw.ring_sq(1);
    sc_core::sc_start(sc_core::sc_time(100, sc_core::SC_MS));
    const auto done = raw.reap(1);
    REQUIRE(done.size() == 100);
    completed += done.size();
    for (const CompletionEntry& e : done) ok += e.code().ok() ? 1 : 0;
    raw.ring_cq(1);
  }
  CHECK(completed == 100'000);
  CHECK(ok > 1'000);
  CHECK(p.controller.commands_inside() == 0);
  CHECK_FALSE(Csts::decode(raw.read32(reg::csts)).cfs);
}

TEST_CASE("random admin commands and register writes never stop the simulation") {
  const auto seed = Catch::rngSeed() + 6;
  INFO("seed " << seed);
  std::mt19937_64 rng(seed);
  RawPlatform p;
  RawHost& raw = p.raw;
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  constexpr std::uint8_t kOpcodes[] = {0x00, 0x01, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0A};
  for (int round = 0; round < 300; ++round) {
    raw.next_page = kQueueBase;
    raw.write32(reg::cc, 0);
    run_a_while();
    REQUIRE_FALSE(Csts::decode(raw.read32(reg::csts)).rdy);
    raw.enable(64);
    for (int i = 0; i < 40; ++i) {
      std::uint64_t words[8];
      for (auto& w : words) w = rng();
      SubmissionEntry e;
      std::memcpy(&e, words, sizeof e);
      if (i % 8 != 0) {
        e.opcode = kOpcodes[rng() % std::size(kOpcodes)];
        e.flags = 0;
        e.nsid &= 1;
        e.prp1 = kHostBase.value + rng() % 64 * 4096;
        e.cdw10 = static_cast<std::uint32_t>(rng() % 6 | (rng() % 20) << 16);
        e.cdw11 = static_cast<std::uint32_t>(rng() % 4 | (rng() % 6) << 16);
      }
      raw.put(0, e);
    }
    raw.ring_sq(0);
    for (int i = 0; i < 20; ++i) raw.write32(0x1000 + rng() % 16 * 4, static_cast<std::uint32_t>(rng() % 20));
    run_a_while();
    for (int i = 0; i < 20; ++i) raw.write32(0x1000 + rng() % 16 * 4, static_cast<std::uint32_t>(rng() % 20));
    if (round % 3 == 0) raw.write32(rng() % 16 * 4, static_cast<std::uint32_t>(rng()));
    run_a_while();
  }
  raw.next_page = kQueueBase;
  raw.write32(reg::cc, 0);
  run_a_while();
  raw.enable();
  CHECK(raw.admin(encode_get_features(feature::arbitration)).ok());
}

}  // namespace test_malformed
