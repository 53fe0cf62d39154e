#include "csd_model/drive_config_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/error.h"

namespace csdsim::csd_model {
namespace {

void require(bool condition, std::string_view field, std::string_view why) {
  if (!condition) throw UserError(fmt::format("drive: {} {}", field, why));
}

void require_not_negative(SimTime time, std::string_view field) {
  require(time.ps >= 0, field, fmt::format("is {} ps: it must not be negative", time.ps));
}

void check_pages(const DriveConfig& c) {
  const Bytes page = c.geometry.page_size;
  require(page.value % 512 == 0, "geometry.page_size",
          fmt::format("is {} B, which are not whole sectors of 512 B", page.value));
  const Bytes unit = c.mapping_unit;
  require(unit.value == 0 || page.value % unit.value == 0, "mapping_unit",
          fmt::format("is {} B, which does not divide a page of {} B", unit.value, page.value));
  const Bytes block = c.nvme.controller.block_size;
  require(unit.value % block.value == 0, "mapping_unit",
          fmt::format("is {} B, which is no multiple of the logical block of {} B", unit.value, block.value));
  const Bytes codeword = c.block.codeword;
  require(codeword.value == 0 || page.value % codeword.value == 0, "block.codeword",
          fmt::format("is {} B, which does not divide a page of {} B", codeword.value, page.value));
  require(codeword.value == 0 || unit.value % codeword.value == 0, "mapping_unit",
          fmt::format("is {} B, which is no multiple of a codeword of {} B", unit.value, codeword.value));
  require(c.kv.codeword == codeword || c.kv_share == 0, "kv.codeword",
          "is not block.codeword: a flash has one size of codewords");
  require(codeword.value == 0 || c.filter != nfc::FilterLocation::die, "filter",
          "is die: a die that passes single rows cannot pass codewords");
  require(!c.flash.filter_bandwidth || (c.filter == nfc::FilterLocation::nfc && !c.peer_reads),
          "flash.filter_bandwidth",
          "is set: only a filter in the flash controllers, and in the path of pages, has one");
}

void check_peer_reads(const DriveConfig& c) {
  if (!c.peer_reads) return;
  require(c.filter != nfc::FilterLocation::die, "filter", "is die: an engine behind the switch reads whole pages");
  require(c.engine.intake != engine::Intake::page && c.engine.intake != engine::Intake::arrival, "engine.intake",
          "is page or arrival: pages come to an engine behind the switch in requests");
  const Bytes piece = c.peer_piece();
  require(
      c.peer_reads->request_size.value > 0 && c.peer_reads->request_size.value % piece.value == 0,
      "peer_reads.request_size",
      fmt::format("is not a multiple of a {} of {} B", c.block.codeword.value > 0 ? "codeword" : "page", piece.value));
  require(c.peer_reads->request_bandwidth <= c.peer_reads->bandwidth, "peer_reads.request_bandwidth",
          "exceeds the bandwidth of the link");
}

void check_memory(const DriveConfig& c) {
  require(c.engine.buffer >= c.geometry.page_size, "engine.buffer",
          fmt::format("of {} B does not hold a page of {} B", c.engine.buffer.value, c.geometry.page_size.value));
  require(!c.dram_bandwidth || c.dram_bandwidth->bytes_per_second > 0, "dram_bandwidth", "is 0: leave it unset");
  require(c.write_buffer < c.dram || c.write_buffer.value == 0, "write_buffer",
          fmt::format("of {} B does not fit in controller DRAM of {} B", c.write_buffer.value, c.dram.value));
}

void check_power_loss(const DriveConfig& c) {
  if (!c.may_lose_power) return;
  require(c.data == ftl::DataMode::carried, "data",
          "is timing: without bytes nothing can be found after a loss of power");
  require(c.fidelity == Fidelity::fast, "fidelity", "is at: its modules cannot lose power");
  require(!c.peer_reads, "peer_reads", "is set: an engine behind the switch cannot lose power");
  require(c.kv_share == 0 || c.power_loss.capacitors() != nullptr, "power_loss.protection",
          "is none: K and V that fill no page are in controller DRAM, and only capacitors save them");
}

}  // namespace

void validate(const DriveConfig& c) {
  nfc::validate(c.geometry);
  nfc::validate(c.flash);
  engine::EngineConfig of_engine = c.engine;
  if (!c.peer_reads) of_engine.page_buffers = c.flash.buffer_limit();
  of_engine.validate();
  require(c.kv_share >= 0 && c.kv_share <= 1, "kv_share", fmt::format("is {}: it is a share, 0 to 1", c.kv_share));
  require(c.lookup_cores > 0, "lookup_cores", "is 0: the firmware needs a core");
  require(std::has_single_bit(c.nvme.controller.block_size.value), "nvme.controller.block_size",
          fmt::format("is {} B, which is not a power of two", c.nvme.controller.block_size.value));
  require_not_negative(c.lookup_time, "lookup_time");
  require_not_negative(c.pipeline_time, "pipeline_time");
  require_not_negative(c.firmware.append, "firmware.append");
  require_not_negative(c.firmware.flush, "firmware.flush");
  require_not_negative(c.firmware.transpose, "firmware.transpose");
  require_not_negative(c.firmware.collect, "firmware.collect");
  require_not_negative(c.firmware.fetch, "firmware.fetch");
  require(c.block.background_free_blocks == 0 || c.block.background_free_blocks > c.block.gc_free_blocks,
          "block.background_free_blocks",
          fmt::format("is {}: the background never comes before the writes, which collect at {} free blocks",
                      c.block.background_free_blocks, c.block.gc_free_blocks));
  ftl::StripeOrder order = c.block.stripe_order;
  std::ranges::sort(order);
  require(std::ranges::adjacent_find(order) == order.end(), "block.stripe_order", "names a level twice");
  check_pages(c);
  check_peer_reads(c);
  check_memory(c);
  check_power_loss(c);
}

}  // namespace csdsim::csd_model
