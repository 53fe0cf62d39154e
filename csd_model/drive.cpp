#include "csd_model/drive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "attention_engine/core/head_work.h"
#include "attention_engine/sysc/attention_engine.h"
#include "base/error.h"
#include "csd_model/drive_config_check.h"
#include "csd_model/drive_units.h"
#include "csd_model/firmware/block_service.h"
#include "csd_model/firmware/controller_dram.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/engine_io.h"
#include "csd_model/firmware/feed_forward_service.h"
#include "csd_model/firmware/firmware_cores.h"
#include "csd_model/firmware/flash_frontend.h"
#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/internal_link.h"
#include "csd_model/firmware/kv_lookup.h"
#include "csd_model/firmware/kv_service.h"
#include "csd_model/firmware/peer_reads.h"
#include "csd_model/firmware/placement_service.h"
#include "csd_model/firmware/timed_work.h"
#include "csd_model/mapping_units.h"
#include "csd_model/media_model.h"
#include "csd_model/passed_heads.h"
#include "csd_model/unit_activity.h"
#include "ftl/policies/instinfer.h"
#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"
#include "nvme_if/sysc/pcie_dma.h"
#include "nvme_if/sysc/stated_memory.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

namespace {

std::unique_ptr<nfc::FlashTarget> make_flash(const DriveConfig& config, const UnitMaker& make_unit) {
  if (config.fidelity == Fidelity::at)
    return std::make_unique<nfc::AtFlash>("flash", config.geometry, config.flash, make_unit.filters());
  return std::make_unique<nfc::FastFlash>("flash", config.geometry, config.flash);
}

std::unique_ptr<engine::HeadWork> make_work(const DriveConfig& config, const engine::KvSource& kv,
                                            engine::SelectionSource& fallback) {
  if (config.data == ftl::DataMode::carried)
    return std::make_unique<engine::CarriedWork>(kv, config.engine.jobs_in_flight);
  return std::make_unique<engine::TimingWork>(config.selection != nullptr ? *config.selection : fallback);
}

/// Codewords are passed on as they come through the channel, or through a decoder that takes time.
PeerReads::Pieces peer_pieces(const DriveConfig& config) {
  const nfc::FlashTiming& flash = config.flash;
  const auto size = static_cast<std::uint32_t>(config.peer_piece().value);
  const Bandwidth rate = flash.ecc_bandwidth.value_or(flash.channel_bandwidth);
  return {Bytes{size}, transfer_time(Bytes{nfc::bus_bytes(flash, size)}, rate)};
}

nvme::NvmeControllerParams controller_params(const DriveConfig& config, Bytes exported, bool feed_forward) {
  nvme::NvmeControllerParams params = config.nvme;
  params.controller.feed_forward = feed_forward;
  params.controller.namespace_blocks = exported.value / params.controller.block_size.value;
  if (config.fdp) {
    const FlashGeometry flash = reclaim_flash(config).geometry;
    params.controller.fdp = nvme::FdpParams{
        .enabled = config.fdp->enabled,
        .persistently_isolated = config.block.isolation == ftl::Isolation::persistently,
        .reclaim_groups = flash.planes(),
        .handles = static_cast<std::uint16_t>(config.block.handles),
        .unit = flash.page_size * flash.pages_per_block,
        .placement_handles = {config.fdp->placement_handles.begin(), config.fdp->placement_handles.end()}};
  }
  params.controller.volatile_cache = config.write_buffer.value > 0 && config.power_loss.capacitors() == nullptr;
  if (params.controller.namespace_blocks == 0)
    throw UserError("drive: the block namespace does not hold one logical block");
  return params;
}

}  // namespace

std::unique_ptr<ftl::KvMappingPolicy> make_mapping(const DriveConfig& config) {
  if (config.mapping == nullptr) return std::make_unique<ftl::InstinferPolicy>(config.geometry);
  return config.mapping(config.geometry);
}

/// Passes each decoded command to the service that executes it.
struct Firmware final : nvme::CommandHandler {
  BlockService& block;
  PlacementService& placement;
  FeedForwardService& neurons;
  KvService& kv;
  DriveActivity& activity;
  SimTime pipeline_time;
  bool own_engine;
  std::function<nvme::DriveHealth()> health_of_flash;
  std::optional<TimedWork> pipeline;

  Firmware(BlockService& block_service, PlacementService& placement_service, FeedForwardService& neuron_service,
           KvService& kv_service, DriveActivity& drive_activity, SimTime time, bool engine_is_own,
           std::function<nvme::DriveHealth()> of_flash)
      : block(block_service),
        placement(placement_service),
        neurons(neuron_service),
        kv(kv_service),
        activity(drive_activity),
        pipeline_time(time),
        own_engine(engine_is_own),
        health_of_flash(std::move(of_flash)) {
    if (pipeline_time.ps > 0) pipeline.emplace();
  }

  void execute(nvme::CommandPtr command) override { pipeline ? enter_pipeline(command) : start(command); }

  nvme::DriveHealth health() const override { return health_of_flash(); }
  nvme::FdpCounts placement_counts() const override { return placement.counts(); }

  void erase_namespace(Callback<void()> done) override {
    const auto shared = std::make_shared<Callback<void()>>(std::move(done));
    placement.erase_namespace([shared] { (*shared)(); });
  }

  void drain(Callback<void()> done) override {
    const auto shared = std::make_shared<Callback<void()>>(std::move(done));
    block.drain([this, shared] { kv.when_drained([shared] { (*shared)(); }); });
  }

  /// Commands of the NVM command set involve only modules of the event loop. The vendor commands reach the attention
  /// engine, which may be a user's module.
  bool runs_ahead(const nvme::IoCommand& command) const override {
    return own_engine || command.operation.index() <= kLastBlockCommand;
  }

 private:
  static constexpr std::size_t kLastBlockCommand = 3;
  static_assert(
      std::is_same_v<std::variant_alternative_t<kLastBlockCommand, nvme::IoOperation>, nvme::DatasetManagement> &&
      std::is_same_v<std::variant_alternative_t<kLastBlockCommand + 1, nvme::IoOperation>, nvme::KvCreate>);

  [[gnu::noinline]] void enter_pipeline(nvme::CommandPtr command) {
    // Any number of commands may be in the pipeline: it holds up nothing that others work on meanwhile.
    activity.begin(DriveStation::controller, {}, 1, sim_time_now());
    pipeline->at(sim_time_now() + pipeline_time, [this, command] {
      activity.end(DriveStation::controller, sim_time_now());
      if (RequestStages* const stages = command->stages()) stages->mark(RequestStage::firmware, sim_time_now());
      start(command);
    });
  }

  void start(nvme::CommandPtr command) {
    if (const auto* const read = command->as<nvme::BlockRead>()) return block.read(*command, *read);
    std::visit([&](const auto& op) { run(*command, op); }, command->io().operation);
  }
  void run(nvme::Command& c, const nvme::Flush&) { block.flush(c); }
  void run(nvme::Command& c, const nvme::BlockRead& op) { block.read(c, op); }
  void run(nvme::Command& c, const nvme::BlockWrite& op) { block.write(c, op); }
  void run(nvme::Command& c, const nvme::DatasetManagement& op) { block.deallocate(c, op); }
  void run(nvme::Command& c, const nvme::ReclaimUnitStatus& op) { placement.status(c, op); }
  void run(nvme::Command& c, const nvme::ReclaimUnitUpdate& op) { placement.update(c, op); }
  void run(nvme::Command& c, const nvme::FeedForward& op) { neurons.feed_forward(c, op); }
  void run(nvme::Command& c, const nvme::KvCreate& op) { kv.create(c, op); }
  void run(nvme::Command& c, const nvme::KvFree& op) { kv.free(c, op); }
  void run(nvme::Command& c, const nvme::KvFork& op) { kv.fork(c, op); }
  void run(nvme::Command& c, const nvme::KvAppend& op) { kv.append(c, op); }
  void run(nvme::Command& c, const nvme::KvRewrite& op) { kv.rewrite(c, op); }
  void run(nvme::Command& c, const nvme::KvAttend& op) { kv.attend(c, op); }
  void run(nvme::Command& c, const nvme::KvScore& op) { kv.score(c, op); }
  void run(nvme::Command& c, const nvme::KvFetch& op) { kv.fetch(c, op); }
};

struct Drive::Parts {
  DriveConfig config;
  DriveActivity activity;
  UnitActivity units;
  ftl::BackingStore store;     ///< data of the block namespace, in mapping units
  ftl::BackingStore kv_store;  ///< data of the KV namespace, in pages
  ftl::BlockManager blocks;
  std::optional<MediaModel> media;
  ftl::DramBudget dram;
  ftl::BlockFtl block_ftl;
  ftl::KvFtl kv_ftl;
  KvLookup lookup;
  engine::ClusteredSelection fallback_selection;
  std::unique_ptr<engine::HeadWork> work;

  /// Inputs and outputs of all commands that the controller can hold.
  std::unique_ptr<nvme::PhysicalMemory> dram_memory;
  ControllerDram controller_dram;  ///< declared before all members that may hold its buffers
  DramPort dram_port;
  WriteBuffer write_buffer;
  FirmwareCores cores;
  MapLookups map_lookups;
  FlashIo flash_io;
  EngineIo engine_io;
  FlashFrontend flash_frontend;
  InternalLink internal_link;
  std::unique_ptr<PeerReads> peer_reads;  ///< null: the engine is beside the flash controllers
  std::unique_ptr<nfc::FlashTarget> flash;
  engine::AttentionEngine* own_engine = nullptr;  ///< declared before `engine`, whose construction sets it
  EngineParts engine;
  BlockService block_service;
  PlacementService placement_service;
  FeedForwardService feed_forward_service;
  KvService kv_service;
  Firmware firmware;
  nvme::PcieDma dma;
  nvme::NvmeController controller;
  PowerSwitch power;
  std::optional<PassedHeads> passed_heads;
  std::optional<engine::HeadSampler> head_sampler;

  Parts(const DriveConfig& c, nvme::MemoryMap* map, const EngineFactory& make_engine, const UnitMaker& make_unit)
      : config(c),
        activity(demand(c)),
        units(activity, c.engine),
        store(reclaim_flash(c).geometry, c.data),
        kv_store(kv_geometry(c), c.data),
        blocks(reclaim_flash(c).geometry, reclaim_flash(c).quota, c.blocks),
        media(c.reliability ? std::make_optional<MediaModel>(*c.reliability) : std::nullopt),
        dram(c.dram),
        block_ftl(block_config(c), blocks, store, faults()),
        kv_ftl(c.kv, blocks, kv_store, dram, make_mapping(c), faults()),
        lookup(kv_ftl, c.geometry, c.peer_reads ? nfc::FilterLocation::none : c.filter),
        fallback_selection(0.25, c.flash.seed),
        work(make_work(c, lookup, fallback_selection)),
        dram_memory(nvme::make_memory("dram", c.nvme.controller.mdts * (2 * std::uint64_t{c.nvme.command_slots}),
                                      "platform.device.nvme.mdts")),
        controller_dram("dram_access"),
        dram_port("dram_port", c.dram_bandwidth, make_unit.dram_port()),
        write_buffer(c.write_buffer),
        cores("firmware_cores", c.lookup_cores, make_unit.lookup_cores()),
        map_lookups(c.lookup_time, cores, dram_port, activity),
        flash_io("flash_io", dram_port),
        engine_io("engine_io", activity),
        flash_frontend("flash_frontend", activity, map_lookups),
        internal_link("internal_link", c.peer_reads ? std::optional(c.peer_reads->bandwidth) : std::nullopt),
        peer_reads(c.peer_reads ? std::make_unique<PeerReads>("peer_reads", *c.peer_reads, peer_pieces(c), flash_io,
                                                              internal_link, map_lookups, activity)
                                : nullptr),
        flash(make_flash(c, make_unit)),
        engine(make_engine ? checked(make_engine(lookup)) : own(make_unit)),
        block_service(block_service_config(c), block_ftl, dram, flash_io, map_lookups, dram_port, internal_link,
                      controller_dram, write_buffer, store.carried()),
        placement_service(block_ftl, block_service, c.nvme.controller.block_size, reclaim_flash(c).geometry),
        feed_forward_service({.page_size = c.geometry.page_size,
                              .carried = store.carried(),
                              .engine_in_dram = c.engine_buffer_in_dram()},
                             block_ftl, block_service, engine_io, map_lookups, controller_dram, dram_port),
        kv_service({.carried = store.carried(),
                    .engine_in_dram = c.engine_buffer_in_dram(),
                    .geometry = kv_geometry(c),
                    .firmware = c.firmware},
                   kv_ftl, lookup, flash_io, peer_reads.get(), internal_link, engine_io, map_lookups, controller_dram,
                   dram_port, write_buffer),
        firmware(block_service, placement_service, feed_forward_service, kv_service, activity, c.pipeline_time,
                 own_engine != nullptr, [this] { return health(); }),
        dma("dma_engine", c.link, map),
        controller("controller", controller_params(c, block_ftl.capacity(), engine.feed_forward), dma, firmware,
                   make_unit.command_cores()),
        power(config, power_parts()) {
    if (!dram.fits(c.map_cache)) throw UserError("drive: the map cache does not fit in controller DRAM");
    dram.charge(ftl::DramUse::map, c.map_cache);
    if (c.engine_buffer_in_dram()) {
      if (!dram.fits(c.engine.buffer)) throw UserError("drive: the engine's buffer does not fit in controller DRAM");
      dram.charge(ftl::DramUse::engine_buffer, c.engine.buffer);
    }
    controller_dram.socket.bind(dram_memory->target);
    flash_io.socket.bind(flash_frontend.upstream);
    if (peer_reads) {
      engine.flash->bind(peer_reads->engine);
    } else {
      engine.flash->bind(flash_frontend.upstream);
    }
    flash_frontend.flash.bind(flash->socket);
    flash_io.go_directly_to(*flash);
    flash_frontend.go_directly_to(*flash);
    if (own_engine != nullptr && !peer_reads) own_engine->go_directly_to(flash_frontend);
    engine_io.socket.bind(*engine.attend);
    placement_service.report_to(controller.endurance_group());
    block_service.on_dram_released([this] { kv_service.retry_waiting(); },
                                   [this] { return kv_service.waits_for_dram(); });
    if (c.block.wear_spread > 0)
      kv_service.flushes().on_erased(
          [this](PhysicalPageAddress ppa) { block_service.level_wear(config.geometry.plane_of(ppa)); });
    watch_stations();
  }

  PowerSwitch::Parts power_parts() {
    return {.activity = activity,
            .store = store,
            .blocks = blocks,
            .ftl = block_ftl,
            .service = block_service,
            .kv_store = kv_store,
            .kv_ftl = kv_ftl,
            .kv_service = kv_service,
            .lookup = lookup,
            .feed_forward = feed_forward_service,
            .engine = own_engine,
            .engine_io = engine_io,
            .flash_frontend = flash_frontend,
            .dram_port = dram_port,
            .cores = cores,
            .flash_io = flash_io,
            .flash = *flash,
            .pipeline = firmware.pipeline ? &*firmware.pipeline : nullptr,
            .dma = dma,
            .controller = controller};
  }

  static FlashDemand demand(const DriveConfig& c) {
    return {.sense = c.flash.read_latency,
            .command = c.flash.command_time,
            .channel_bandwidth = c.flash.channel_bandwidth,
            .filter_bandwidth = c.flash.filter_bandwidth.value_or(Bandwidth{}),
            .planes = c.geometry.planes(),
            .channels = c.geometry.channels,
            .page_buffers = c.peer_reads ? 0 : c.flash.buffer_limit(),
            .buffer_at_issue = !engine_config(c).by_arrival()};
  }

  /// Attention commands of `drive`, whose parts these are, pass over heads from now on.
  void sample_heads(const Drive& drive) {
    if (config.measured_heads == 0 || own_engine == nullptr) return;
    if (!config.samples_heads()) throw InternalError("this drive cannot pass over heads");
    passed_heads.emplace(drive, kv_service, *flash, cores, activity);
    own_engine->sample_heads(head_sampler.emplace(*passed_heads, config.measured_heads,
                                                  own_engine->config().jobs_in_flight, config.geometry.planes()));
  }

  void watch_stations() {
    activity.watch(DriveStation::controller, controller.firmware_busy(), config.nvme.firmware_cores);
    if (dram_port.limited()) activity.watch(DriveStation::dram, dram_port.busy());
    for (const nvme::LinkDirection d : {nvme::LinkDirection::to_host, nvme::LinkDirection::to_drive}) {
      const bool out = d == nvme::LinkDirection::to_host;
      activity.watch(out ? DriveStation::link_to_host : DriveStation::link_to_drive, dma.link().stats(d).busy);
      activity.watch(DriveStation::shared_links, dma.link().stats(d).waited);
      if (internal_link.present())
        activity.watch(out ? DriveStation::from_controller : DriveStation::to_controller, internal_link.stats(d).busy);
    }
    if (peer_reads) activity.watch(DriveStation::fpga_dram, peer_reads->dram_stats().busy);
  }

  nvme::DriveHealth health() const {
    nvme::DriveHealth health{.read_only = blocks.read_only()};
    const double spares = config.blocks.spare_blocks;
    for (std::uint32_t plane = 0; spares > 0 && plane < config.geometry.planes(); ++plane)
      health.spare = std::min(health.spare, blocks.spare_blocks_left(PlaneId{plane}) / spares);
    const ftl::BlockFtlStats& block = block_ftl.stats();
    const double erases = double(kv_ftl.stats().erases + block.gc_erases + block.wear_erases + block.refreshed_blocks) /
                          double(config.geometry.blocks());
    health.used = config.reliability ? (config.reliability->initial_cycles + erases) / config.reliability->rated_cycles
                                     : erases / config.rated_cycles;
    return health;
  }

  ftl::MediaFaults* faults() { return media ? &*media : config.faults; }

  static EngineParts checked(EngineParts parts) {
    if (parts.module == nullptr || parts.attend == nullptr || parts.flash == nullptr)
      throw UserError("drive: an EngineFactory must fill module, attend and flash of the EngineParts");
    return parts;
  }

  static engine::EngineConfig engine_config(const DriveConfig& c) {
    engine::EngineConfig of_engine = c.engine;
    of_engine.page_buffers = c.flash.buffer_limit();
    if (c.peer_reads) {
      // Pages come in requests, and lie in the FPGA's DRAM.
      of_engine.page_buffers = 0;
      of_engine.intake = engine::Intake::phase;
    }
    of_engine.geometry = c.geometry;
    of_engine.filtered = c.filter != nfc::FilterLocation::none;
    return of_engine;
  }

  EngineParts own(const UnitMaker& make_unit) {
    auto module =
        std::make_unique<engine::AttentionEngine>("engine", engine_config(config), lookup, *work, make_unit.engine());
    own_engine = module.get();
    own_engine->set_observer(&units);
    EngineParts parts;
    parts.attend = &module->attend_socket;
    parts.flash = &module->flash_socket;
    parts.feed_forward = true;
    parts.module = std::move(module);
    return parts;
  }
};

Drive::Drive(const sc_core::sc_module_name& name, const DriveConfig& config, nvme::MemoryMap* map,
             const EngineFactory& engine, const DriveUnitFactory& units)
    : sc_module(name) {
  validate(config);
  parts_ = std::make_unique<Parts>(config, map, engine, UnitMaker(config, units));
  bar.bind(parts_->controller.bar);
  parts_->dma.memory.bind(dma);
  parts_->controller.interrupt.bind(interrupt);
  parts_->sample_heads(*this);
}

Drive::~Drive() = default;

const DriveConfig& Drive::config() const { return parts_->config; }
ftl::KvFtl& Drive::kv_ftl() { return parts_->kv_ftl; }
const ftl::KvFtl& Drive::kv_ftl() const { return parts_->kv_ftl; }
ftl::BlockFtl& Drive::block_ftl() { return parts_->block_ftl; }
const ftl::BlockFtl& Drive::block_ftl() const { return parts_->block_ftl; }
const ftl::BlockManager& Drive::block_manager() const { return parts_->blocks; }
ftl::BackingStore& Drive::backing_store() { return parts_->store; }
ftl::BackingStore& Drive::kv_backing_store() { return parts_->kv_store; }
nvme::NvmeController& Drive::controller() { return parts_->controller; }
const nvme::NvmeController& Drive::controller() const { return parts_->controller; }
const nfc::FlashStatistics& Drive::flash_statistics() const { return parts_->flash->statistics(); }
const nvme::PcieLink& Drive::link() const { return parts_->dma.link(); }
const engine::EngineStats* Drive::engine_stats() const {
  return parts_->own_engine == nullptr ? nullptr : &parts_->own_engine->stats();
}
const engine::AttentionEngine* Drive::own_engine() const { return parts_->own_engine; }
const ftl::DramBudget& Drive::dram() const { return parts_->dram; }
const PeerReads* Drive::peer_reads() const { return parts_->peer_reads.get(); }
const InternalLink& Drive::internal_link() const { return parts_->internal_link; }
const DramPort& Drive::dram_port() const { return parts_->dram_port; }
const nfc::KvFilter& Drive::filter() const { return parts_->lookup.filter(); }
const FirmwareCores& Drive::lookup_cores() const { return parts_->cores; }
ActivitySplit Drive::activity(SimTime now) { return parts_->activity.until(now); }
const PassedHeads* Drive::passed_heads() const { return parts_->passed_heads ? &*parts_->passed_heads : nullptr; }
SimTime Drive::flash_time(SimTime now) const { return parts_->flash->own_time(now); }
DriveActivity& Drive::activity_of_stations() const { return parts_->activity; }
void Drive::when_drained(std::function<void()> callback) { parts_->kv_service.when_drained(std::move(callback)); }

void Drive::power_off() { parts_->power.off(); }
void Drive::power_on(std::function<void()> ready) { parts_->power.on(std::move(ready)); }
const PowerLosses& Drive::power_losses() const { return parts_->power.losses(); }

bool Drive::observe(const DriveObservers& observers) {
  Parts& p = *parts_;
  p.controller.observe_work(observers.queues, observers.controller_cores);
  p.cores.observe(observers.lookup_cores);
  p.dram_port.observe(observers.dram);
  p.write_buffer.observe(observers.write_buffer);
  p.dma.observe_link(observers.link);
  if (p.own_engine != nullptr) p.own_engine->observe_work(observers.engine);
  p.internal_link.observe(observers.internal_link);
  return p.flash->observe(observers.flash);
}

void Drive::trace(sc_core::sc_trace_file* file) const {
  parts_->flash->trace(file);
  parts_->engine.module->trace(file);
  parts_->cores.trace(file);
  parts_->controller.trace(file);
  parts_->dram_port.trace(file);
}

void Drive::materialise(SequenceId sequence, LayerId layer, HeadRange heads, std::uint32_t tokens) {
  ftl::KvFtl& kv = kv_ftl();
  const std::uint32_t have = kv.tokens({sequence, layer, heads.first});
  if (tokens <= have) return;
  const ftl::AppendResult result = kv.append(sequence, layer, TokenIndex{have}, tokens - have, heads);
  if (result.status != ftl::KvStatus::ok)
    throw UserError(fmt::format("the drive cannot hold {} tokens of sequence {}, layer {}: {}", tokens, sequence.value,
                                layer.value, ftl::to_string(result.status)));
  for (const ftl::FlushJob& job : result.jobs)
    if (!kv.flush_done(job.id).empty()) throw InternalError("materialising a sequence made an erase possible");
}

void Drive::register_statistics(Statistics& statistics) const {
  Statistics& flash = statistics.child("flash");
  flash.before_dump([this] { flash_statistics(); });
  nfc::register_statistics(flash, flash_statistics());
  filter().register_statistics(statistics.child_if_any("filters"));
  if (const engine::EngineStats* e = engine_stats()) engine::register_statistics(statistics.child("engine"), *e);
  ftl::register_statistics(statistics.child("kv_ftl"), kv_ftl().stats());
  Statistics& block = statistics.child("block_ftl");
  ftl::register_statistics(block, block_ftl().stats());
  block_manager().register_statistics(block);
  dram().register_statistics(statistics.child("dram"));
  if (dram_port().limited()) dram_port().register_statistics(statistics.child("dram_port"));
  if (const PeerReads* reads = peer_reads()) reads->register_statistics(statistics.child("peer_reads"));
  if (internal_link().present()) internal_link().register_statistics(statistics.child("internal_link"));
  lookup_cores().register_statistics(statistics.child_if_any("firmware"));
  nvme::register_statistics(statistics.child("link"), link());
}

StationTimes Drive::station_times() const {
  StationTimes times = simulated_station_times();
  if (const PassedHeads* const passed = passed_heads()) times += passed->stations(sim_time_now());
  return times;
}

DriveTotals Drive::totals() const {
  DriveTotals t = simulated_totals();
  if (const PassedHeads* const passed = passed_heads()) t += passed->work(t.elapsed);
  return t;
}

StationTimes Drive::simulated_station_times() const {
  using enum DriveStation;
  const DriveTotals t = simulated_totals();
  StationTimes s;
  const auto set = [&s](DriveStation station, SimTime busy, double units, SimTime waited) {
    s.busy[station] = busy.seconds() / units;
    s.waited[station] = waited.seconds();
  };
  const DriveConfig& c = config();
  const SimTime now = t.elapsed;
  const FirmwareCores& cores = this->lookup_cores();
  set(controller, this->controller().firmware_done(), c.nvme.firmware_cores, this->controller().firmware_waited());
  set(lookup_cores, cores.busy_until(now), cores.count(), cores.waited());
  set(dram, dram_port().busy_until(now), 1, dram_port().waited());
  constexpr std::array kOwn{link_to_host, link_to_drive}, kInternal{from_controller, to_controller};
  for (const nvme::LinkDirection d : {nvme::LinkDirection::to_host, nvme::LinkDirection::to_drive}) {
    const auto i = static_cast<std::size_t>(d);
    set(kOwn[i], link().busy_until(d, now), 1, link().stats(d).queued);
    set(kInternal[i], internal_link().busy_until(d, now), 1, internal_link().stats(d).waited);
  }
  if (const PeerReads* reads = peer_reads()) set(fpga_dram, reads->dram_busy_until(now), 1, reads->dram_stats().waited);
  DriveActivity& activity = activity_of_stations();
  const SimTime held = activity.buffers_held(t.elapsed);
  const PerStation<SimTime>& waited = activity.waited();
  set(flash_arrays, t.array_busy(), c.geometry.planes(), waited[flash_arrays]);
  set(flash_channels, t.channel_busy, c.geometry.channels, waited[flash_channels]);
  const nfc::FlashStatistics& flash = flash_statistics();
  set(filters, flash.filter_busy_until(flash_time(now)), c.geometry.channels, flash.filter_waited);
  if (const engine::EngineStats* e = engine_stats()) {
    if (c.flash.buffer_limit() > 0) {
      s.busy[page_buffers] = held.seconds() / (double(c.flash.buffer_limit()) * c.geometry.channels);
      s.waited[page_buffers] = e->buffer_waited.seconds();
    }
    // Products and exponentials of a page wait together.
    const auto set_unit = [&](DriveStation station, engine::EngineUnit unit, double part, SimTime busy, double units,
                              const engine::DurationSum& queued) {
      s.busy[station] = part * (busy - own_engine()->work_ahead(unit, now)).seconds() / units;
      s.waited[station] = part * queued.seconds();
    };
    const double exponentials = e->kernel_busy.ps == 0 ? 0 : e->softmax_busy.seconds() / e->kernel_busy.seconds();
    using engine::EngineUnit;
    set_unit(kernels, EngineUnit::kernels, 1 - exponentials, e->kernel_busy, c.engine.kernels, e->kernel_waited);
    set_unit(softmax, EngineUnit::kernels, exponentials, e->kernel_busy, c.engine.kernels, e->kernel_waited);
    set_unit(scoring, EngineUnit::scoring, 1, e->scoring_busy, 1, e->scoring_waited);
    set_unit(argtopk, EngineUnit::argtopk, 1, e->argtopk_busy, c.engine.argtopk_units, e->argtopk_waited);
  }
  return s;
}

DriveTotals Drive::simulated_totals() const {
  DriveTotals t;
  t.elapsed = sim_time_now();
  const nfc::FlashStatistics& flash = flash_statistics();
  const auto array_time = [&](PageOpKind kind) { return flash.array_time_until(flash_time(t.elapsed), kind); };
  t.read_busy = array_time(PageOpKind::read);
  t.program_busy = array_time(PageOpKind::program);
  t.erase_busy = array_time(PageOpKind::erase);
  for (const nfc::ChannelBusy& channel : flash.channels) t.channel_busy += channel.total();
  t.page_ops = flash.total_ops();
  t.channel_bytes = flash.total_bytes().value;
  t.retry_bytes = flash.retry_bytes;
  for (const auto& by_kind : flash.bytes) t.programmed_bytes += by_kind[static_cast<std::size_t>(PageOpKind::program)];
  const nvme::LinkStats& to_host = link().stats(nvme::LinkDirection::to_host);
  const nvme::LinkStats& to_drive = link().stats(nvme::LinkDirection::to_drive);
  t.link_bytes = to_host.payload_bytes + to_drive.payload_bytes;
  t.to_host_busy = to_host.busy;
  t.to_drive_busy = to_drive.busy;
  const nvme::SharedLinkStats& from_controller = internal_link().stats(nvme::LinkDirection::to_host);
  const nvme::SharedLinkStats& to_controller = internal_link().stats(nvme::LinkDirection::to_drive);
  t.internal_link_bytes = from_controller.bytes + to_controller.bytes;
  t.from_controller_busy = from_controller.busy;
  t.to_controller_busy = to_controller.busy;
  if (const PeerReads* reads = peer_reads()) t.fpga_dram_busy = reads->dram_stats().busy;
  if (const engine::EngineStats* stats = engine_stats()) {
    t.engine_bytes = stats->engine_bytes.value;
    t.macs = stats->macs;
    t.neurons = stats->neurons;
  }
  if (dram_port().limited()) {
    t.dram_bytes = dram_port().total_bytes().value;
  } else {
    t.dram_bytes = 2 * t.link_bytes;
    // Parity stays in the flash controllers.
    const auto& words = config().flash.codewords;
    const std::uint64_t data = words ? words->size.value : 0, parity = words ? words->parity.value : 0;
    for (const std::uint64_t bytes : flash.bytes[static_cast<std::size_t>(OpClass::gc)])
      t.dram_bytes += parity == 0 ? bytes : bytes / (data + parity) * data;
  }
  return t;
}

}  // namespace csdsim::csd_model
