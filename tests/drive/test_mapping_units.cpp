// Mapping units smaller than a page: when they are programmed, and from where they are read.
#include <catch2/catch.hpp>

#include "tests/drive/drive_host.h"

namespace test_mapping_units {

using namespace csdsim;
using namespace csdsim::test;

TEST_CASE("without a buffer a command programs the units that it writes; the rest of their page stays empty") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(16);
  config.mapping_unit = Bytes::kib(4);
  config.kv_share = 0;
  DriveHost host(config);
  const auto programs = [&] {
    std::uint64_t sum = 0;
    for (const auto& of_class : host.drive().flash_statistics().ops)
      sum += of_class[static_cast<std::size_t>(PageOpKind::program)];
    return sum;
  };
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Bytes before = host.drive().flash_statistics().total_bytes();
    const SentPtr write = host.send_write(100 * i, 1, std::byte(i + 1));
    const SimTime start = nvme::sim_now();
    REQUIRE(host.run(write).ok());
    CHECK(write->at - start > config.flash.program_latency);
    CHECK(programs() == i + 1);
    CHECK(host.drive().flash_statistics().total_bytes() - before == Bytes::kib(4));
  }
  for (std::uint32_t i = 0; i < 3; ++i) {
    const SentPtr read = host.send_read(100 * i, 1);
    REQUIRE(host.run(read).ok());
    CHECK(*host.at(read->buffer.address) == std::byte(i + 1));
  }
  // Six units are a page and a half.
  REQUIRE(host.run(host.send_write(8, 6, std::byte{9})).ok());
  CHECK(programs() == 5);
}

TEST_CASE("units wait in the buffer until their page is full, and are read from there; the last one programs it") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(16);
  config.mapping_unit = Bytes::kib(4);
  config.kv_share = 0;
  config.write_buffer = Bytes::kib(64);
  DriveHost host(config);
  const auto ops = [&](PageOpKind kind) {
    std::uint64_t sum = 0;
    for (const auto& of_class : host.drive().flash_statistics().ops) sum += of_class[static_cast<std::size_t>(kind)];
    return sum;
  };
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(host.run(host.send_write(100 * i, 1, std::byte(i + 1))).ok());
  CHECK(ops(PageOpKind::program) == 0);
  CHECK(host.drive().dram().used() == Bytes::kib(12));
  const SentPtr buffered = host.send_read(100, 1);
  REQUIRE(host.run(buffered).ok());
  CHECK(*host.at(buffered->buffer.address) == std::byte{2});
  CHECK(ops(PageOpKind::read) == 0);
  REQUIRE(host.run(host.send_write(300, 1, std::byte{4})).ok());
  CHECK(ops(PageOpKind::program) == 1);
  CHECK(host.drive().dram().used() == Bytes{});
  // Now one sense for each unit, and one for two units that lie side by side.
  for (std::uint32_t i = 0; i < 4; ++i) {
    const SentPtr read = host.send_read(100 * i, 1);
    REQUIRE(host.run(read).ok());
    CHECK(*host.at(read->buffer.address) == std::byte(i + 1));
  }
  CHECK(ops(PageOpKind::read) == 4);
  REQUIRE(host.run(host.send_write(8, 4, std::byte{9})).ok());
  CHECK(ops(PageOpKind::program) == 2);
  REQUIRE(host.run(host.send_read(9, 2)).ok());
  CHECK(ops(PageOpKind::read) == 5);
}

}  // namespace test_mapping_units
