// Map lookups of feed_forward commands: each page once, shared by the cores, ahead of the reads.
#include <catch2/catch.hpp>

#include "csd_model/firmware/firmware_cores.h"
#include "tests/drive/record_host.h"

namespace test_record_lookups {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

TEST_CASE("each page of a command is looked up once, by the firmware") {
  auto config = tiny_drive();
  config.lookup_time = SimTime::microseconds(10);
  RecordHost host(config);
  host.write_records(0, 64 << 10);
  FeedForwardCall call = host.call(1, 64, {bundled(0, 100, 64, 256)});
  const SimTime before = host.drive().lookup_cores().busy();
  REQUIRE(host.run_call(call) == status::success);
  CHECK(host.drive().lookup_cores().busy() - before == SimTime::microseconds(250));
}

TEST_CASE("a command that is looked up for longer than it reads takes its lookups over the cores, and one page more") {
  SimTime taken[2][4];
  for (const csd_model::Fidelity fidelity : {csd_model::Fidelity::fast, csd_model::Fidelity::at})
    for (const std::uint32_t cores : {1u, 2u, 3u}) {
      auto config = timing_record_drive();
      config.fidelity = fidelity;
      config.lookup_time = SimTime::microseconds(20);
      config.lookup_cores = cores;
      RecordHost host(config);
      host.write_records(0, 32 << 20);
      FeedForwardCall call = host.call(1, 4096, {bundled(0, 2000, 4096, 16384)});
      const std::uint64_t before = host.drive().engine_stats()->record_pages;
      const SimTime start = nvme::sim_now();
      host.send_call(call);
      // The first pages are read while others are looked up.
      while (host.drive().flash_statistics().ops[0][0] == 0) DriveHost::run_for(SimTime::microseconds(1));
      CHECK(nvme::sim_now() - start < SimTime::microseconds(200));
      DriveHost::settle();
      REQUIRE(call.sent->status == status::success);
      const SimTime time = taken[fidelity == csd_model::Fidelity::at][cores] = call.sent->at - start;
      const auto pages = static_cast<std::int64_t>(host.drive().engine_stats()->record_pages - before);
      const SimTime lookups = config.lookup_time * ((pages + cores - 1) / cores);
      CAPTURE(cores, pages, time.seconds(), lookups.seconds());
      CHECK(pages == 2000);
      CHECK(time >= lookups + config.flash.read_latency);
      CHECK(time.seconds() < lookups.seconds() * 1.015);
    }
  for (const std::uint32_t cores : {1u, 2u, 3u}) CHECK(taken[0][cores] == taken[1][cores]);
}

}  // namespace test_record_lookups
