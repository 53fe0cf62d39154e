// Log pages and asynchronous events, through the whole controller and a host of the user's own.
#include <catch2/catch.hpp>
#include <cstring>

#include "nvme_if/spec/log_page.h"
#include "tests/nvme_if/platform.h"

namespace test_log_pages {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

namespace {

/// A drive whose health the test sets.
struct Logged : EnabledPlatform {
  Logged() { raw.create_queue(1, 8); }
  SubmissionEntry log_command(std::uint8_t id, std::uint32_t bytes, bool retain = false) {
    const std::uint32_t dwords = bytes / 4 - 1;
    return {.opcode = admin_opcode::get_log_page,
            .nsid = 0xFFFF'FFFF,
            .prp1 = buffer.value,
            .cdw10 = id | (retain ? kRetainAsyncEvent : 0) | dwords << 16,
            .cdw11 = dwords >> 16};
  }
  template <class T>
  T log(std::uint8_t id, bool retain = false, std::uint32_t index = 0) {
    std::memset(host_at(buffer), 0xEE, 4096);
    REQUIRE(raw.admin(log_command(id, (index + 1) * sizeof(T), retain)).ok());
    T page;
    std::memcpy(&page, host_at(buffer + Bytes{index * sizeof(T)}), sizeof page);
    CHECK(*reinterpret_cast<unsigned char*>(host_at(buffer + Bytes{(index + 1) * sizeof(T)})) == 0xEE);
    return page;
  }
  /// Sends requests for events; returns what has ended at once.
  std::vector<CompletionEntry> ask(std::uint16_t first_cid, int requests = 1) {
    for (int i = 0; i < requests; ++i)
      raw.put(0, {.opcode = admin_opcode::async_event_request}, static_cast<std::uint16_t>(first_cid + i));
    raw.ring_sq(0);
    return settle();
  }
  std::vector<CompletionEntry> settle() {
    run_a_while();
    const auto done = raw.reap(0);
    if (!done.empty()) raw.ring_cq(0);
    return done;
  }
  CompletionEntry block(std::uint8_t opcode, std::uint64_t lba, std::uint16_t blocks) {
    return raw.execute(1, {.opcode = opcode,
                           .cid = 77,
                           .nsid = 1,
                           .prp1 = kHostBase.value,
                           .prp2 = kHostBase.value + 4096,
                           .cdw10 = static_cast<std::uint32_t>(lba),
                           .cdw11 = static_cast<std::uint32_t>(lba >> 32),
                           .cdw12 = blocks - 1u});
  }
  void bad_doorbell() { raw.write32(sq_tail_doorbell(QueueId{3}, 0), 1); }
  void bad_value() { raw.write32(sq_tail_doorbell(QueueId{1}, 0), 100); }

  PhysicalAddress buffer = raw.page();
};

}  // namespace

TEST_CASE("requests for events wait, and end one by one with what happened") {
  Logged p;
  CHECK(p.ask(10, 2).empty());
  p.bad_doorbell();
  auto done = p.settle();
  REQUIRE(done.size() == 1);
  CHECK(done[0].cid == 10);
  CHECK(done[0].code().ok());
  CHECK(done[0].dw0 == (0u | 0u << 8 | 1u << 16));
  // Another event of the type waits until the host has read the page, unless it retains the event.
  p.bad_value();
  CHECK(p.settle().empty());
  p.log<ErrorLogEntry>(log_page::error_information, true);
  CHECK(p.settle().empty());
  p.raw.put(0, p.log_command(log_page::error_information, 64), 20);
  p.raw.ring_sq(0);
  done = p.settle();
  REQUIRE(done.size() == 2);
  CHECK(done[0].cid + done[1].cid == 31);
  const CompletionEntry& event = done[0].cid == 11 ? done[0] : done[1];
  CHECK(event.dw0 == (0u | 1u << 8 | 1u << 16));
  // An event that comes before the request is told when it is asked for.
  p.log<ErrorLogEntry>(log_page::error_information);
  p.bad_doorbell();
  done = p.ask(12);
  REQUIRE(done.size() == 1);
  CHECK(done[0].dw0 == (0u | 0u << 8 | 1u << 16));
}

TEST_CASE("at most four requests wait; they can be aborted, and neither reset nor shutdown waits for them") {
  Logged p;
  CHECK(p.ask(30, 4).empty());
  auto done = p.ask(40);
  REQUIRE(done.size() == 1);
  CHECK(done[0].code() == status::async_event_limit);
  p.raw.put(0, encode_abort(QueueId{0}, CommandId{32}), 50);
  p.raw.ring_sq(0);
  done = p.settle();
  REQUIRE(done.size() == 2);
  CHECK(done[0].cid == 32);
  CHECK(done[0].code() == status::abort_requested);
  CHECK(done[1].dw0 == 0);
  CHECK(p.controller.commands_inside() == 0);
  Cc cc{.en = true, .iosqes = 6, .iocqes = 4};
  cc.shn = 1;  // normal
  p.raw.write32(reg::cc, cc.encode());
  CHECK((p.raw.read32(reg::csts) >> 2 & 3) == 2);  // complete
  p.raw.write32(reg::cc, Cc{}.encode());
  run_a_while();
  p.raw.enable();
  CHECK(p.raw.admin(encode_identify(cns::identify_controller)) != status::internal_error);
  p.bad_doorbell();
  CHECK(p.settle().empty());  // the requests are gone
  CHECK(p.ask(60).size() == 1);
}

TEST_CASE("the error log has the last 64 errors, the newest first") {
  Logged p;
  CHECK(p.log<ErrorLogEntry>(log_page::error_information).error_count == 0);
  CHECK(p.block(nvm_opcode::read, 0x1'0000'0007, 2).code() == status::lba_out_of_range);
  ErrorLogEntry entry = p.log<ErrorLogEntry>(log_page::error_information);
  CHECK(entry.error_count == 1);
  CHECK(entry.sqid == 1);
  CHECK(entry.cid == 77);
  CHECK(entry.status >> 1 == status::lba_out_of_range.value());
  CHECK(entry.lba == 0x1'0000'0007);
  CHECK(entry.nsid == 1);
  CHECK(entry.parameter_error == 0xFFFF);
  for (int i = 0; i < 70; ++i) CHECK_FALSE(p.raw.admin({.opcode = 0x55, .nsid = static_cast<std::uint32_t>(i)}).ok());
  entry = p.log<ErrorLogEntry>(log_page::error_information);
  CHECK(entry.error_count == 71);
  CHECK(entry.sqid == 0);
  CHECK(entry.nsid == 69);
  entry = p.log<ErrorLogEntry>(log_page::error_information, false, 62);
  CHECK(entry.error_count == 71 - 62);
  CHECK(p.log<SmartLog>(log_page::smart).error_entries.value == 71);
}

TEST_CASE("SMART counts block commands and tells of worn flash once") {
  Logged p;
  CHECK(p.block(nvm_opcode::write, 0, 2).code().ok());
  CHECK(p.block(nvm_opcode::read, 0, 2).code().ok());
  CHECK(p.block(nvm_opcode::read, 0, 1).code().ok());
  SmartLog smart = p.log<SmartLog>(log_page::smart);
  CHECK(smart.host_reads.value == 2);
  CHECK(smart.host_writes.value == 1);
  CHECK(smart.data_units_read.value == 1);  // 24 blocks of 512 bytes
  CHECK(smart.critical_warning == 0);
  CHECK(smart.available_spare == 100);
  CHECK(smart.percentage_used == 0);

  p.handler.flash = {.spare = 0.05, .used = 1.234, .read_only = true};
  smart = p.log<SmartLog>(log_page::smart);
  CHECK(smart.critical_warning == (critical_warning::spare_below_threshold | critical_warning::read_only));
  CHECK(smart.available_spare == 5);
  CHECK(smart.percentage_used == 123);
  CHECK(p.ask(10).empty());  // no event is enabled
  REQUIRE(p.raw.admin(encode_set_features(feature::async_event_configuration, critical_warning::read_only)).ok());
  const auto done = p.ask(11);
  REQUIRE(done.size() == 1);
  CHECK(done[0].dw0 == (1u | 0u << 8 | 2u << 16));
  p.log<SmartLog>(log_page::smart);
  CHECK(p.ask(12).empty());  // told once
}

TEST_CASE("the log pages that there are, and what is refused") {
  Logged p;
  const auto slots = p.log<FirmwareSlots>(log_page::firmware_slots);
  CHECK(slots.active == 1);
  CHECK(std::string(slots.slot_1.data(), 3) == "1.0");
  CHECK(p.raw.admin(p.log_command(0x05, 64)) == status::invalid_log_page);
  SubmissionEntry command = p.log_command(log_page::smart, 512);
  command.cdw12 = 64;  // an offset
  CHECK(p.raw.admin(command) == status::invalid_field);
  command = p.log_command(log_page::smart, 512);
  command.nsid = 1;
  CHECK(p.raw.admin(command) == status::invalid_field);
  CHECK(p.raw.admin(p.log_command(log_page::smart, 4u << 20)) == status::invalid_field);  // beyond mdts
}

TEST_CASE("a register access whose streaming width is below its length is a burst error") {
  Logged p;
  std::uint64_t value = 0;
  tlm::tlm_generic_payload access;
  access.set_command(tlm::TLM_READ_COMMAND);
  access.set_address(reg::cap);
  access.set_data_ptr(reinterpret_cast<unsigned char*>(&value));
  access.set_data_length(8);
  access.set_streaming_width(4);
  sc_core::sc_time delay;
  p.raw.bar->b_transport(access, delay);
  CHECK(access.get_response_status() == tlm::TLM_BURST_ERROR_RESPONSE);
  access.set_streaming_width(8);
  p.raw.bar->b_transport(access, delay);
  CHECK(access.get_response_status() == tlm::TLM_OK_RESPONSE);
}

}  // namespace test_log_pages
