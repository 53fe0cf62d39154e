// Statistics are live: registered once, they show what the drive has done whenever they are written. Totals are sums.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "base/statistics.h"
#include "csd_model/drive_totals.h"
#include "csd_model/firmware/firmware_cores.h"
#include "nfc/core/flash_statistics.h"
#include "tests/drive/drive_host.h"

namespace test_drive_statistics {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

TEST_CASE("statistics that were registered before the first command show what came later") {
  auto config = tiny_drive();
  config.fidelity = GENERATE(csd_model::Fidelity::fast, csd_model::Fidelity::at);
  config.lookup_time = SimTime::nanoseconds(100);
  config.map_cache = Bytes::kib(1);
  DriveHost host(config);
  Statistics statistics;
  host.drive().register_statistics(statistics);
  const auto before = statistics.dump();
  CHECK_FALSE(before.contains("firmware"));
  CHECK(before["block_ftl"].empty());
  CHECK_FALSE(before["kv_ftl"].contains("erases"));

  REQUIRE(host.run(host.send_write(0, 4, std::byte{1})) == status::success);
  REQUIRE(host.run(host.send_read(0, 4)) == status::success);
  REQUIRE(host.create(1, 1, 2) == status::success);
  REQUIRE(host.append(1, 0, 0, 2048, 0, 2) == status::success);
  REQUIRE(host.free(1) == status::success);
  DriveHost::settle();

  const auto after = statistics.dump();
  const auto value = [&](const char* node, const char* name) {
    return after.at(node).at(name).at("value").get<double>();
  };
  CHECK(value("firmware", "lookup_busy") == host.drive().lookup_cores().busy().seconds());
  const ftl::BlockFtlStats& block = host.drive().block_ftl().stats();
  REQUIRE(block.host_pages_written > 0);
  CHECK(value("block_ftl", "host_pages_written") == static_cast<double>(block.host_pages_written));
  REQUIRE(block.map_hits > 0);
  CHECK(value("block_ftl", "map_hit_rate") ==
        static_cast<double>(block.map_hits) / static_cast<double>(block.map_hits + block.map_misses));
  const ftl::KvFtlStats& kv = host.drive().kv_ftl().stats();
  REQUIRE(kv.erases > 0);
  CHECK(value("kv_ftl", "erases") == static_cast<double>(kv.erases));
  CHECK(value("block_ftl", "erases_max") >= 1);
  CHECK(value("flash", "host_program_ops") > 0);
  const nfc::FlashStatistics& flash = host.drive().flash_statistics();
  SimTime read, written;
  for (std::size_t c = 0; c < flash.channels.size(); ++c) {
    CAPTURE(c);
    const auto& channel = after.at("flash").at("channel_" + std::to_string(c));
    const auto seconds = [&](const char* name) { return channel.at(name).at("value").get<double>(); };
    CHECK(seconds("command") == flash.channels[c].command.seconds());
    CHECK(seconds("data_out") == flash.channels[c].data_out.seconds());
    CHECK(seconds("data_in") == flash.channels[c].data_in.seconds());
    read += flash.channels[c].data_out;
    written += flash.channels[c].data_in;
  }
  CHECK((read.ps > 0 && written > read));
}

TEST_CASE("a phase is the difference of two totals, and totals of drives add up") {
  DriveHost host;
  REQUIRE(host.run(host.send_write(0, 4, std::byte{1})) == status::success);
  const csd_model::DriveTotals start = host.drive().totals();
  REQUIRE(host.run(host.send_read(0, 4)) == status::success);
  const csd_model::DriveTotals end = host.drive().totals();
  const csd_model::DriveTotals phase = end - start;
  // Both parts have work of every kind that they can have.
  const std::uint64_t bytes = host.driver().block_size().value * 4;
  CHECK(start.programmed_bytes == bytes);
  CHECK(start.program_busy.ps > 0);
  CHECK(start.channel_busy.ps > 0);
  CHECK(phase.programmed_bytes == 0);
  CHECK(phase.channel_bytes == bytes);
  CHECK(phase.channel_busy.ps > 0);
  const nvme::LinkStats& to_host = host.drive().link().stats(nvme::LinkDirection::to_host);
  const nvme::LinkStats& to_drive = host.drive().link().stats(nvme::LinkDirection::to_drive);
  CHECK(end.link_bytes == to_host.payload_bytes + to_drive.payload_bytes);
  CHECK(start.link_bytes > bytes);  // what is written travels to the drive
  CHECK(phase.elapsed == end.elapsed - start.elapsed);
  CHECK(phase.page_ops == end.page_ops - start.page_ops);
  CHECK(phase.read_busy.ps > 0);
  CHECK(phase.program_busy.ps == 0);
  CHECK(phase.link_bytes >= host.driver().block_size().value * 4);
  CHECK(phase.dram_bytes == 2 * phase.link_bytes);  // no garbage collection, no bandwidth
  const csd_model::DriveTotals both = phase + phase;
  CHECK(both.page_ops == 2 * phase.page_ops);
  CHECK(both.array_busy() == phase.read_busy * 2);
  const csd_model::DriveWork work = work_of(both);
  CHECK(work.elapsed == both.elapsed.seconds());
  CHECK(work.link_bytes == static_cast<double>(both.link_bytes));
  CHECK(work.array_busy() == both.read_busy.seconds());
}

TEST_CASE("arrays are never busy for longer than time has passed, also while they program") {
  auto config = tiny_drive();
  config.fidelity = GENERATE(csd_model::Fidelity::fast, csd_model::Fidelity::at);
  DriveHost host(config);
  const csd_model::DriveTotals start = host.drive().totals();
  const SimTime planes_time = SimTime{host.drive().config().geometry.planes()};
  const auto write = host.send_write(0, 16, std::byte{1});
  for (int step = 0; step < 100; ++step) {
    DriveHost::run_for(SimTime::microseconds(10));
    const csd_model::DriveTotals now = host.drive().totals() - start;
    INFO("after " << now.elapsed.ps << " ps");
    REQUIRE(now.array_busy().ps <= now.elapsed.ps * planes_time.ps);
  }
  REQUIRE(host.run(write) == status::success);
  CHECK((host.drive().totals() - start).program_busy.ps > 0);
}

}  // namespace test_drive_statistics
