// What a drive has counted: the statistics of its parts, and totals.
#include <array>

#include "attention_engine/sysc/attention_engine.h"
#include "csd_model/drive.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "csd_model/firmware/internal_link.h"
#include "csd_model/firmware/peer_reads.h"
#include "csd_model/passed_heads.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

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
    if (c.flash.page_buffers > 0) {
      s.busy[page_buffers] = held.seconds() / (double(c.flash.page_buffers) * c.geometry.channels);
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
    const std::uint64_t data = config().flash.codeword_bytes, parity = config().flash.parity_bytes;
    for (const std::uint64_t bytes : flash.bytes[static_cast<std::size_t>(OpClass::gc)])
      t.dram_bytes += parity == 0 ? bytes : bytes / (data + parity) * data;
  }
  t.host_pages_written = block_ftl().stats().host_pages_written;
  t.gc_pages_moved = block_ftl().stats().gc_pages_moved;
  return t;
}

}  // namespace csdsim::csd_model
