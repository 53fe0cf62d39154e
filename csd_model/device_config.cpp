#include "csd_model/device_config.h"

#include <algorithm>

#include "csd_model/power_loss_dump.h"

namespace csdsim::csd_model {

std::uint32_t DeviceConfig::reclaim_groups() const {
  const std::uint32_t planes = flash.geometry.planes() / (ftl.superblocks ? flash.geometry.planes_per_die : 1);
  return planes / std::min(planes, ftl.reclaim_unit_blocks);
}

void describe(ParamVisitor& v, DramConfig& c) {
  v.param("capacity", c.capacity, {Bytes::mib(1), Bytes::gib(1024)},
          "Controller DRAM for group buffers, maps and the write buffer.", assumed("the prototype has 2 GB"));
  v.optional("bandwidth", c.bandwidth, "unlimited", {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
             "What host data, flash data, mapping entries and unflushed K and V share.",
             assumed("unlimited: no paper states it"));
}

void describe(ParamVisitor&, ImmediateFlush&) {}

void describe(ParamVisitor& v, ThresholdFlush& c) {
  v.param("fill", c.fill, {Ratio::of(1, 1000), Ratio{1, 1}}, "Share of the capacity.", assumed("half full"));
}

void describe(ParamVisitor& v, IdleFlush& c) {
  v.param("delay", c.delay, {SimTime{1}, SimTime::milliseconds(10'000)},
          "From the last block command on. A write that finds no room, and NVMe Flush, end the wait.",
          assumed("longer than a read"));
}

void describe(ParamVisitor& v, WriteBufferConfig& c) {
  v.param("capacity", c.capacity, {Bytes{0}, Bytes::gib(1024)},
          "DRAM in which block writes complete; 0 B: every write reaches flash first.", assumed("the slow, safe case"));
  v.choice("flush", c.flush,
           "When buffered block writes go to flash; groups of the KV cache go as soon as they are full.",
           assumed("keeps the buffer empty"));
}

void describe(ParamVisitor&, ControllersPlacement&) {}

void describe(ParamVisitor& v, SwitchPlacement& c) { describe(v, static_cast<PeerReadConfig&>(c)); }

void describe(ParamVisitor& v, DeviceEngineConfig& c) {
  describe(v, static_cast<engine::EngineConfig&>(c));
  v.choice("placement", c.placement, "Where the engine is, and so how pages reach it.", paper("InstInfer IV-B"));
}

void describe(ParamVisitor& v, DriveFtlConfig& c) {
  v.choice("mapping", c.mapping, "How data is addressed in flash.", paper("InstInfer IV-C"));
  describe(v, static_cast<ftl::FtlConfig&>(c));
}

void describe(ParamVisitor& v, DeviceConfig& c) {
  v.preset("device", c.preset);
  v.param("count", c.count, {1, 64},
          "Drives of this kind; K and V are divided over them by KV head, or by token (system.shard).",
          assumed("the smallest system"));
  v.param("fidelity", c.fidelity, "How flash, units of the engine and firmware are simulated; times are the same.",
          assumed("speed"));
  v.optional("capacity", c.capacity, "of the flash", {Bytes::mib(1), Bytes::gib(1'048'576)},
             "Capacity that the host sees, as the drive is sold (1 TB): without a KV cache the drive exports at least "
             "it, with the largest over_provisioning that allows it; where blocks_per_plane is not given, with the "
             "fewest blocks that allow it beside over_provisioning. All three may be given where they agree to 0.6 % "
             "of the flash, as shares in whole percent do.",
             assumed("unset: geometry and over_provisioning state it"));
  v.section("flash", c.flash, "The flash array and its channels.");
  v.section("engine", c.engine, "The attention engine in the drive.");
  v.section("nvme", c.nvme, "The NVMe front end and how the host uses it.");
  v.section("link", c.link, "The PCIe link: generation and lanes, or bandwidth.");
  v.section("dram", c.dram, "Controller DRAM.");
  v.section("write_buffer", c.write_buffer, "Writes and KV appends complete in it.");
  v.section("power_loss", c.power_loss, "What becomes of data in controller DRAM when the power fails.");
  v.section("ftl", c.ftl, "The flash translation layer.");
  v.section("energy", c.energy, "What the parts of the drive draw. GPU and host are not modelled.");
}

namespace {

FlushConfig flush_config(const WriteBufferConfig& buffer) {
  FlushConfig flush{.policy = std::visit([](const auto& f) { return f.kPolicy; }, buffer.flush)};
  if (const auto* threshold = std::get_if<ThresholdFlush>(&buffer.flush)) {
    flush.threshold = Bytes{threshold->fill.floor_of(buffer.capacity.value)};
  } else if (const auto* idle = std::get_if<IdleFlush>(&buffer.flush)) {
    flush.idle_time = idle->delay;
  }
  return flush;
}

}  // namespace

DriveConfig drive_config(const DeviceConfig& device, std::uint64_t seed) {
  const nfc::FlashConfig& flash = device.flash;
  DriveConfig config;
  config.geometry = flash.geometry;
  config.flash = nfc::flash_timing(flash, seed);
  config.rated_cycles = flash.endurance_cycles();
  if (flash.reliability)
    config.reliability = nfc::reliability_params(*flash.reliability, flash.geometry, config.rated_cycles, seed);
  config.fidelity = device.fidelity;
  config.filter = flash.filter_location;
  config.engine = device.engine;
  if (const auto* placement = std::get_if<SwitchPlacement>(&device.engine.placement)) config.peer_reads = *placement;
  config.link = device.link;
  config.nvme = nvme::controller_params(device.nvme);
  config.pipeline_time = device.nvme.pipeline_time;
  config.dram = device.dram.capacity;
  config.dram_bandwidth = device.dram.bandwidth;
  config.write_buffer = device.write_buffer.capacity;
  config.flush = flush_config(device.write_buffer);
  config.power_loss = device.power_loss;
  config.may_lose_power = device.nvme.power.has_value();
  config.dump = [device](Bytes size) { return power_loss_dump(device, size); };
  if (const ftl::KvMapping* mapping = ftl::kv_mapping(device.ftl.mapping)) {
    config.kv.tail = mapping->tail;
    config.kv.group_codewords = mapping->group_codewords;
    config.kv.tail_rewrites = mapping->tail_rewrites;
    config.kv.layout = mapping->layout_options();
    config.kv.read_reclaim = device.ftl.read_reclaim;
    config.kv.refresh_age = device.ftl.refresh_age.value_or(SimTime{});
    config.kv.wear_spread = device.ftl.wear_levelling.spread;
    config.mapping = [mapping_config = device.ftl.mapping](const FlashGeometry& geometry) {
      return ftl::make_policy(mapping_config, geometry);
    };
  }
  config.block = ftl::block_ftl_config(device.ftl);
  if (flash.codewords) config.block.codeword = config.kv.codeword = flash.codewords->size;
  config.mapping_unit = device.ftl.mapping_unit.value_or(Bytes{});
  config.superblocks = device.ftl.superblocks;
  config.reclaim_unit_blocks = device.ftl.reclaim_unit_blocks;
  config.fdp = device.nvme.fdp;
  config.blocks = ftl::block_manager_config(device.ftl, seed);
  if (const auto* cached = std::get_if<ftl::CachedMap>(&device.ftl.map)) config.map_cache = cached->capacity;
  config.lookup_time = device.ftl.lookup_time;
  config.lookup_cores = device.ftl.lookup_cores;
  config.firmware = device.ftl.firmware;
  return config;
}

}  // namespace csdsim::csd_model
