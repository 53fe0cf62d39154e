// Configurations that a scenario would refuse, made without a scenario.
#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

#include "csd_model/drive_config_check.h"
#include "csd_model/power_loss_dump.h"
#include "tests/drive/drive_host.h"

namespace test_drive_config {

using namespace csdsim;
using namespace csdsim::test;
using csd_model::DriveConfig;

struct Broken {
  std::function<void(DriveConfig&)> change;
  std::string expected;
};

const csd_model::PeerReadConfig kPeerReads{};

const std::vector<Broken> kBroken{
    {[](auto& c) { c.geometry.page_size = Bytes{1000}; }, "drive: geometry.page_size is 1000 B"},
    {[](auto& c) { c.geometry.channels = 0; }, "channels"},
    {[](auto& c) { c.flash.channel_bandwidth = {0}; }, "channel_bandwidth"},
    {[](auto& c) { c.engine.kernels = 0; }, "engine.kernels is 0"},
    {[](auto& c) { c.kv_share = 1.5; }, "drive: kv_share is 1.5: it is a share, 0 to 1"},
    {[](auto& c) { c.kv_share = -0.5; }, "drive: kv_share is -0.5"},
    {[](auto& c) { c.lookup_cores = 0; }, "drive: lookup_cores is 0"},
    {[](auto& c) { c.lookup_time = SimTime{-1}; }, "drive: lookup_time is -1 ps: it must not be negative"},
    {[](auto& c) { c.pipeline_time = SimTime{-2}; }, "drive: pipeline_time is -2 ps"},
    {[](auto& c) { c.firmware.append = SimTime{-1}; }, "drive: firmware.append"},
    {[](auto& c) { c.firmware.flush = SimTime{-1}; }, "drive: firmware.flush"},
    {[](auto& c) { c.firmware.transpose = SimTime{-1}; }, "drive: firmware.transpose"},
    {[](auto& c) { c.firmware.collect = SimTime{-1}; }, "drive: firmware.collect"},
    {[](auto& c) { c.firmware.fetch = SimTime{-1}; }, "drive: firmware.fetch"},
    {[](auto& c) { c.nvme.controller.block_size = Bytes{3000}; },
     "drive: nvme.controller.block_size is 3000 B, which is not a power of two"},
    {[](auto& c) { c.mapping_unit = Bytes{768}; }, "drive: mapping_unit is 768 B, which does not divide a page"},
    {[](auto& c) {
       c.nvme.controller.block_size = Bytes{1024};
       c.mapping_unit = Bytes{512};
     },
     "drive: mapping_unit is 512 B, which is no multiple of the logical block of 1024 B"},
    {[](auto& c) { c.block.codeword = c.kv.codeword = Bytes{300}; }, "drive: block.codeword is 300 B"},
    {[](auto& c) {
       c.nvme.controller.block_size = c.mapping_unit = Bytes{512};
       c.block.codeword = c.kv.codeword = Bytes{1024};
     },
     "drive: mapping_unit is 512 B, which is no multiple of a codeword of 1024 B"},
    {[](auto& c) { c.block.codeword = Bytes{512}; }, "drive: kv.codeword is not block.codeword"},
    {[](auto& c) {
       c.block.codeword = c.kv.codeword = Bytes{512};
       c.filter = nfc::FilterLocation::die;
     },
     "drive: filter is die: a die that passes single rows cannot pass codewords"},
    {[](auto& c) {
       c.peer_reads = kPeerReads;
       c.filter = nfc::FilterLocation::die;
     },
     "drive: filter is die: an engine behind the switch"},
    {[](auto& c) {
       c.peer_reads = kPeerReads;
       c.engine.intake = engine::Intake::page;
     },
     "drive: engine.intake is page or arrival"},
    {[](auto& c) {
       c.peer_reads = kPeerReads;
       c.peer_reads->request_size = Bytes{1536};
     },
     "drive: peer_reads.request_size is not a multiple of a page of 1024 B"},
    {[](auto& c) {
       c.peer_reads = kPeerReads;
       c.block.codeword = c.kv.codeword = Bytes{512};
       c.peer_reads->request_size = Bytes{768};
     },
     "drive: peer_reads.request_size is not a multiple of a codeword of 512 B"},
    {[](auto& c) {
       c.peer_reads = kPeerReads;
       c.peer_reads->request_bandwidth = {c.peer_reads->bandwidth.bytes_per_second + 1};
     },
     "drive: peer_reads.request_bandwidth exceeds"},
    {[](auto& c) {
       c.flash.filter_bandwidth = Bandwidth{1'000'000'000};
       c.filter = nfc::FilterLocation::die;
     },
     "drive: flash.filter_bandwidth is set: only a filter in the flash controllers"},
    {[](auto& c) {
       c.flash.filter_bandwidth = Bandwidth{1'000'000'000};
       c.peer_reads = kPeerReads;
     },
     "drive: flash.filter_bandwidth is set"},
    {[](auto& c) { c.engine.buffer = Bytes{1023}; }, "drive: engine.buffer of 1023 B does not hold a page of 1024 B"},
    {[](auto& c) { c.block.background_free_blocks = c.block.gc_free_blocks; },
     "drive: block.background_free_blocks is 2: the background never comes before the writes"},
    {[](auto& c) {
       c.block.stripe_order = {ftl::StripeLevel::plane, ftl::StripeLevel::die, ftl::StripeLevel::plane};
     },
     "drive: block.stripe_order names a level twice"},
    {[](auto& c) { c.dram_bandwidth = Bandwidth{0}; }, "drive: dram_bandwidth is 0"},
    {[](auto& c) { c.write_buffer = c.dram; }, "drive: write_buffer of 67108864 B does not fit in controller DRAM"},
};

TEST_CASE("a drive refuses a configuration that a scenario would refuse, and names the field") {
  CHECK_NOTHROW(csd_model::validate(tiny_drive()));
  for (const Broken& broken : kBroken) {
    DriveConfig config = tiny_drive();
    broken.change(config);
    CAPTURE(broken.expected);
    const SyscFixture context;
    CHECK_THROWS_WITH(csd_model::Drive("drive", config), Catch::Matchers::Contains(broken.expected));
  }
}

TEST_CASE("limited page buffers are refused with an intake that needs more") {
  const SyscFixture context;
  DriveConfig config = tiny_drive();
  config.flash.page_buffers = 4;
  config.engine.intake = engine::Intake::phase;
  CHECK_THROWS_WITH(csd_model::Drive("drive", config), Catch::Matchers::Contains("engine.intake is phase"));
  config.engine.intake = engine::Intake::arrival;
  config.engine.overlap_flash = false;
  CHECK_THROWS_WITH(csd_model::Drive("drive", config), Catch::Matchers::Contains("engine.intake is arrival"));
}

TEST_CASE("the dump of a loss of power takes whole word lines, on channels and planes side by side") {
  csd_model::DeviceConfig device;
  device.flash.geometry = {.channels = 4,
                           .dies_per_channel = 2,
                           .planes_per_die = 2,
                           .blocks_per_plane = 8,
                           .pages_per_block = 24,
                           .page_size = Bytes::kib(16)};
  device.flash.word_line_pages = 3;
  const Bytes line = Bytes::kib(48);
  const auto seconds = [&](std::uint64_t on_channel, std::int64_t rounds) {
    return transfer_time(line * on_channel, device.flash.channel_bandwidth) +
           SimTime{device.flash.program_latency.ps * rounds};
  };
  const auto dump = [&](Bytes size) { return power_loss_dump(device, size); };
  CHECK(dump(Bytes{}).time == SimTime{});
  CHECK(dump(Bytes{1}).time == seconds(1, 1));
  CHECK(dump(line * 4).time == seconds(1, 1));
  CHECK(dump(line * 4 + Bytes{1}).time == seconds(2, 1));
  CHECK(dump(line * 16).time == seconds(4, 1));
  CHECK(dump(line * 17).time == seconds(5, 2));
  for (const std::uint64_t lines : {1U, 4U, 5U, 16U, 17U, 100U}) {
    CAPTURE(lines);
    const auto enough = Energy{static_cast<std::uint64_t>(dump(line * lines).joules * 1e15) + 1};
    CHECK(bytes_dumped(device, enough, line * 1000) == line * lines);
    CHECK(bytes_dumped(device, Energy{enough.femtojoules - 1000}, line * 1000) == line * (lines - 1));
    CHECK(bytes_dumped(device, enough, Bytes{5000}) == Bytes{5000});
  }
}

}  // namespace test_drive_config
