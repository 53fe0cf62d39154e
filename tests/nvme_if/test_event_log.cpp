#include <catch2/catch.hpp>
#include <cstring>

#include "nvme_if/core/event_log.h"

namespace test_event_log {

using namespace csdsim;
using namespace csdsim::nvme;

namespace {
SmartLog smart_of(EventLog& log, const DriveHealth& health, SimTime now) {
  const auto page = log.read(log_page::smart, sizeof(SmartLog) / 4, true, health, now);
  REQUIRE(page);
  REQUIRE(page->size() == sizeof(SmartLog));
  SmartLog smart;
  std::memcpy(&smart, page->data(), sizeof smart);
  return smart;
}
}  // namespace

TEST_CASE("the health page counts whole hours, units of 1,000 blocks of 512 B rounded up, and commands") {
  EventLog log("1");
  log.note_blocks(false, Bytes{512'000});
  log.note_blocks(false, Bytes{512});
  log.note_blocks(true, Bytes{512'000});
  const SimTime hour = SimTime::milliseconds(3'600'000);
  SmartLog smart = smart_of(log, {}, SimTime{hour.ps * 2 - 1});
  CHECK(smart.power_on_hours.value == 1);
  CHECK(smart.data_units_read.value == 2);
  CHECK(smart.data_units_written.value == 1);
  CHECK(smart.host_reads.value == 2);
  CHECK(smart.host_writes.value == 1);
  smart = smart_of(log, {.spare = 0.5, .used = 3}, hour * 2);
  CHECK(smart.power_on_hours.value == 2);
  CHECK(smart.available_spare == 50);
  CHECK(smart.percentage_used == 255);
}

TEST_CASE("an error of a read or a write names its first block, other errors name none") {
  EventLog log("1");
  const auto note = [&](std::uint8_t opcode, std::uint16_t queue) {
    SubmissionEntry sqe;
    sqe.opcode = opcode;
    sqe.cdw10 = 0x1234'5678;
    sqe.cdw11 = 0x9A;
    log.note_error(sqe, queue, status::lba_out_of_range);
    const auto page = log.read(log_page::error_information, sizeof(ErrorLogEntry) / 4, true, {}, {});
    REQUIRE(page);
    ErrorLogEntry latest;
    std::memcpy(&latest, page->data(), sizeof latest);
    CHECK(latest.sqid == queue);
    return latest.lba;
  };
  constexpr std::uint64_t kFirst = 0x9A'1234'5678;
  CHECK(note(nvm_opcode::read, 1) == kFirst);
  CHECK(note(nvm_opcode::write, 3) == kFirst);
  CHECK(note(nvm_opcode::flush, 1) == 0);
  CHECK(note(nvm_opcode::dataset_management, 1) == 0);
  // In the admin queue, 1 and 2 are opcodes of other commands.
  CHECK(note(nvm_opcode::read, 0) == 0);
  CHECK(note(nvm_opcode::write, 0) == 0);
}

}  // namespace test_event_log
