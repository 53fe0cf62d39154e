#include "experiment/assemble.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

nfc::BusArbitration arbitration(scenario::BusArbitration a) {
  switch (a) {
    case scenario::BusArbitration::fifo:
      return nfc::BusArbitration::fifo;
    case scenario::BusArbitration::command_first:
      return nfc::BusArbitration::command_first;
    case scenario::BusArbitration::data_first:
      return nfc::BusArbitration::data_first;
  }
  throw InternalError("unknown bus arbitration");
}

nfc::Suspend suspend(scenario::Suspend s) {
  switch (s) {
    case scenario::Suspend::program:
      return nfc::Suspend::program;
    case scenario::Suspend::erase:
      return nfc::Suspend::erase;
    case scenario::Suspend::program_erase:
      return nfc::Suspend::program_erase;
  }
  throw InternalError("unknown suspension");
}

nfc::FlashTiming flash_timing(const scenario::FlashConfig& flash, std::uint64_t seed) {
  nfc::FlashTiming timing;
  timing.read_latency = flash.read_latency;
  timing.program_latency = flash.program_latency;
  timing.erase_latency = flash.erase_latency;
  timing.command_time = flash.command_time;
  timing.data_out_setup = flash.data_out_setup;
  timing.ecc_latency = flash.ecc_latency;
  timing.channel_bandwidth = flash.channel_bandwidth;
  timing.arbitration = arbitration(flash.bus_arbitration);
  timing.read_jitter = flash.read_jitter;
  timing.seed = seed;
  if (flash.page_types) {
    timing.page_read_latency = flash.page_types->read_latency;
    timing.page_program_latency = flash.page_types->program_latency;
  }
  timing.plane_mode =
      flash.plane_mode == scenario::PlaneMode::multi_plane ? nfc::PlaneMode::multi_plane : nfc::PlaneMode::independent;
  if (flash.cache) {
    timing.cache_read = flash.cache->read;
    timing.cache_program = flash.cache->program;
    timing.cache_busy_time = flash.cache->busy_time;
  }
  if (flash.suspend) {
    timing.suspend = suspend(flash.suspend->kinds);
    timing.suspend_latency = flash.suspend->latency;
    timing.resume_latency = flash.suspend->resume_latency;
    timing.max_suspends = flash.suspend->max;
  }
  timing.class_priority = flash.class_priority;
  timing.plane_order =
      flash.plane_order == scenario::PlaneOrder::reads_first ? nfc::PlaneOrder::reads_first : nfc::PlaneOrder::arrival;
  timing.status_time = flash.status_time;
  if (flash.packages) {
    timing.dies_per_package = flash.packages->dies;
    timing.package_select_time = flash.packages->select_time;
  }
  timing.ecc_bandwidth = flash.ecc_bandwidth.value_or(Bandwidth{});
  timing.page_buffers = flash.page_buffers.value_or(0);
  if (flash.reliability) timing.retry_latency = flash.reliability->retry_latency;
  return timing;
}

nfc::RberCoefficients cell_rber(scenario::CellType cell) {
  switch (cell) {
    case scenario::CellType::slc:
      return nfc::slc_rber();
    case scenario::CellType::mlc:
      return nfc::mlc_rber();
    case scenario::CellType::tlc:
      return nfc::tlc_rber();
    case scenario::CellType::qlc:
      return nfc::qlc_rber();
  }
  throw InternalError("unknown cell");
}

nfc::ReliabilityConfig reliability(const scenario::ReliabilityConfig& model, const FlashGeometry& geometry,
                                   std::uint64_t seed) {
  nfc::ReliabilityConfig config;
  config.rber = cell_rber(model.cell);
  const auto given = [](double& coefficient, const std::optional<Ratio>& value) {
    if (value) coefficient = value->value();
  };
  given(config.rber.base, model.base);
  given(config.rber.wear, model.wear);
  given(config.rber.wear_exponent, model.wear_exponent);
  given(config.rber.retention, model.retention);
  given(config.rber.retention_wear_exponent, model.retention_wear_exponent);
  given(config.rber.retention_exponent, model.retention_exponent);
  given(config.rber.disturb, model.disturb);
  given(config.rber.disturb_wear_exponent, model.disturb_wear_exponent);
  given(config.rber.disturb_exponent, model.disturb_exponent);
  config.initial_cycles = model.pe_cycles;
  config.retention_days = model.retention_days.value();
  config.pages_per_block = geometry.pages_per_block;
  config.codewords = static_cast<std::uint32_t>(geometry.page_size.value / model.codeword.value);
  // A BCH code over GF(2^m) takes m parity bits for each bit that it corrects.
  const auto data_bits = static_cast<std::uint32_t>(8 * model.codeword.value);
  config.codeword_bits = data_bits + model.correctable_bits * static_cast<std::uint32_t>(std::bit_width(data_bits));
  config.correctable_bits = model.correctable_bits;
  config.retry_factor = model.retry_factor.value();
  config.max_retries = model.max_retries;
  config.program_failure = model.program_failure.value();
  config.erase_failure = model.erase_failure.value();
  config.rated_cycles = model.rated_cycles;
  config.failure_exponent = model.failure_exponent.value();
  config.seed = seed;
  return config;
}

ftl::StripeOrder stripe_order(const std::vector<scenario::StripeLevel>& levels) {
  ftl::StripeOrder order{};
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = levels.at(i) == scenario::StripeLevel::channel ? ftl::StripeLevel::channel
               : levels.at(i) == scenario::StripeLevel::die   ? ftl::StripeLevel::die
                                                              : ftl::StripeLevel::plane;
  return order;
}

ftl::VictimPolicy victim_policy(const scenario::GcConfig& gc, std::uint64_t seed) {
  ftl::VictimPolicy policy{.seed = seed};
  if (const auto* random = std::get_if<scenario::RandomGreedyGc>(&gc.policy)) {
    policy.kind = ftl::GcPolicy::random_greedy;
    policy.choices = random->choices;
  } else if (std::holds_alternative<scenario::CostBenefitGc>(gc.policy)) {
    policy.kind = ftl::GcPolicy::cost_benefit;
  } else if (std::holds_alternative<scenario::FifoGc>(gc.policy)) {
    policy.kind = ftl::GcPolicy::fifo;
  }
  return policy;
}

csd_model::FlushConfig flush_config(const scenario::WriteBufferConfig& buffer) {
  csd_model::FlushConfig flush;
  if (const auto* threshold = std::get_if<scenario::ThresholdFlush>(&buffer.flush)) {
    flush.policy = csd_model::FlushPolicy::threshold;
    flush.threshold = Bytes{threshold->fill.floor_of(buffer.capacity.value)};
  } else if (const auto* idle = std::get_if<scenario::IdleFlush>(&buffer.flush)) {
    flush.policy = csd_model::FlushPolicy::idle;
    flush.idle_time = idle->delay;
  }
  return flush;
}

void set_block_management(const Scenario& s, csd_model::DriveConfig& config) {
  const scenario::FtlConfig& ftl = s.platform.device.ftl;
  config.block.over_provisioning = ftl.over_provisioning.value();
  config.block.gc_free_blocks = ftl.gc_free_blocks;
  config.block.stripe_order = stripe_order(ftl.stripe_order);
  config.block.allocation =
      ftl.allocation == scenario::PageAllocation::fixed ? ftl::PageAllocation::fixed : ftl::PageAllocation::dynamic;
  if (ftl.gc.background) {
    config.block.background_free_blocks = ftl.gc.background->free_blocks;
    config.block.gc_step_pages = ftl.gc.background->step_pages;
  }
  if (const auto* cached = std::get_if<scenario::CachedMap>(&ftl.map)) config.map_cache = cached->capacity;
  config.block.wear_spread = ftl.wear_levelling.spread;
  config.blocks.gc = victim_policy(ftl.gc, s.seed);
  config.blocks.free_block = ftl.wear_levelling.free_block == scenario::FreeBlockChoice::least_worn
                                 ? ftl::FreeBlockChoice::least_worn
                                 : ftl::FreeBlockChoice::oldest;
  config.blocks.spare_blocks = ftl.spare_blocks;
  config.blocks.factory_bad_blocks = ftl.factory_bad_blocks.value();
  config.blocks.seed = s.seed;
}

nvme::PcieLinkParams link_params(const scenario::LinkConfig& link) {
  nvme::PcieLinkParams params;
  params.max_payload = link.max_payload;
  params.max_read_request = link.max_read_request;
  params.outstanding_reads = link.outstanding_reads.value_or(0);
  params.tlp_overhead = link.tlp_overhead;
  params.dllp_overhead = link.dllp_overhead;
  params.latency = link.latency;
  if (link.bandwidth) {
    params.effective_bandwidth = *link.bandwidth;
  } else {
    params.generation = link.generation.value();
    params.lanes = link.lanes.value();
  }
  return params;
}

/// A namespace that a workload does not use keeps what its FTL needs to exist.
double kv_share(const Scenario& s) { return s.platform.device.has_engine() ? s.workload->kv_share() : 0; }

}  // namespace

csd_model::DriveConfig drive_config(const Scenario& s) {
  const scenario::DeviceConfig& device = s.platform.device;
  const scenario::FlashConfig& flash = device.flash;
  csd_model::DriveConfig config;
  config.geometry = flash.geometry;
  config.flash = flash_timing(flash, s.seed);
  if (flash.reliability) config.reliability = reliability(*flash.reliability, flash.geometry, s.seed);
  config.fidelity = device.fidelity == scenario::Fidelity::at ? csd_model::Fidelity::at : csd_model::Fidelity::fast;
  config.filter =
      flash.filter_location == scenario::FilterLocation::die ? nfc::FilterLocation::die : nfc::FilterLocation::nfc;
  config.engine.clock = device.engine.clock;
  config.engine.kernels = device.engine.kernels;
  config.engine.macs_per_cycle = device.engine.macs_per_cycle;
  config.engine.softmax_per_cycle = device.engine.softmax_per_cycle;
  config.engine.argtopk_per_cycle = device.engine.argtopk_per_cycle;
  config.engine.jobs_in_flight = device.engine.jobs_in_flight;
  config.engine.buffer = device.engine.buffer;
  if (device.engine.intake == scenario::Intake::page) config.engine.intake = engine::Intake::page;
  config.link = link_params(device.link);
  config.nvme.controller.io_queues = static_cast<std::uint16_t>(device.nvme.queues);
  config.nvme.controller.queue_depth = device.nvme.queue_depth;
  config.nvme.controller.mdts = device.nvme.mdts;
  config.nvme.controller.block_size = device.nvme.block_size;
  config.nvme.firmware_time = device.nvme.firmware_time;
  config.pipeline_time = device.nvme.pipeline_time;
  config.nvme.firmware_cores = device.nvme.firmware_cores;
  config.dram = device.dram.capacity;
  config.dram_bandwidth = device.dram.bandwidth;
  config.write_buffer = device.write_buffer.capacity;
  config.flush = flush_config(device.write_buffer);
  if (const scenario::KvMapping* mapping = scenario::kv_mapping(device.ftl.mapping)) {
    config.kv.tail = mapping->tail;
    config.kv.tail_rewrites = mapping->tail_rewrites;
    config.kv.layout = mapping->layout_options();
    config.mapping = [mapping = device.ftl.mapping](const FlashGeometry& geometry) {
      return scenario::make_policy(mapping, geometry);
    };
  }
  set_block_management(s, config);
  config.kv_share = kv_share(s);
  config.engine_buffer_in_dram = device.engine.buffer_memory == scenario::EngineMemory::dram && config.kv_share > 0;
  config.lookup_time = device.ftl.lookup_time;
  config.lookup_cores = device.ftl.lookup_cores;
  config.data = s.simulation.data == scenario::DataMode::carried ? ftl::DataMode::carried : ftl::DataMode::timing;
  return config;
}

platform::PlatformConfig platform_config(const Scenario& s) {
  const scenario::PlatformConfig& platform = s.platform;
  platform::PlatformConfig config;
  config.drive = drive_config(s);
  config.drives = platform.device.count;
  config.host_memory = platform.host.memory;
  config.gpu_memory = platform.gpu.memory;
  config.io_overhead = platform.host.io_overhead;
  config.cores = platform.host.cores;
  config.queues = static_cast<std::uint16_t>(platform.device.nvme.queues);
  config.queue_depth = platform.device.nvme.queue_depth;
  if (const auto* coalesced = std::get_if<scenario::CoalescedInterrupts>(&platform.device.nvme.interrupts))
    config.coalescing = {coalesced->completions, coalesced->time};
  return config;
}

host::GpuParameters gpu_parameters(const scenario::GpuConfig& gpu) {
  host::GpuParameters p;
  p.name = gpu.preset;
  p.peak_flops = gpu.fp16_rate.flop_per_second;
  p.memory = gpu.memory_bandwidth;
  p.memory_capacity = gpu.memory;
  p.source = "scenario";
  const scenario::GpuEfficiency& e = gpu.efficiency;
  const auto set = [&](host::OperatorClass op, double compute, double memory) {
    p.efficiency[static_cast<std::size_t>(op)] = {
        .compute = compute, .memory = memory, .launch = gpu.kernel_launch, .source = "scenario"};
  };
  set(host::OperatorClass::gemm, e.gemm.value(), e.gemv.value());
  set(host::OperatorClass::attention, e.attention_prefill.value(), e.attention_decode.value());
  set(host::OperatorClass::elementwise, e.elementwise.value(), e.elementwise.value());
  return p;
}

}  // namespace csdsim::experiment
