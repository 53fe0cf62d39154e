#include "csd_model/drive_peaks.h"

#include <algorithm>
#include <cmath>

namespace csdsim::csd_model {

namespace {

double per_second(Bandwidth rate) { return static_cast<double>(rate.bytes_per_second); }
double ceil_divide(Bytes a, Bytes b) { return std::ceil(static_cast<double>(a.value) / static_cast<double>(b.value)); }
double seconds_of(Bytes size, Bandwidth rate) { return static_cast<double>(size.value) / per_second(rate); }

/// Seconds that one request keeps each part busy, over the number of its units.
using Busy = PerStation<double>;

/// Sensing by planes, and data-out on channels.
void add_reads(const DeviceConfig& device, const BlockLoad& load, Busy& busy) {
  const nfc::FlashConfig& flash = device.flash;
  const Bytes page = flash.geometry.page_size;
  const double whole_pages = static_cast<double>(load.size.value) / static_cast<double>(page.value);
  // A register that is read again needs neither a command nor a sense.
  const bool sensed_once = load.sequential && flash.reuse_register;
  const double sensed = sensed_once ? whole_pages : std::ceil(whole_pages);
  Bytes on_bus = page * static_cast<std::uint64_t>(std::ceil(whole_pages));
  if (flash.codewords)
    on_bus = (flash.codewords->size + flash.codewords->parity) *
             static_cast<std::uint64_t>(ceil_divide(load.size, flash.codewords->size));
  const double channel =
      sensed * (flash.command_time + flash.data_out_setup).seconds() + seconds_of(on_bus, flash.channel_bandwidth);
  busy[DriveStation::flash_arrays] += load.reads * (sensed * flash.read_latency.seconds() / flash.geometry.planes());
  busy[DriveStation::flash_channels] += load.reads * (channel / flash.geometry.channels);
  busy[DriveStation::link_to_host] += load.reads * seconds_of(load.size, device.link.payload_bandwidth());
}

/// Programming by planes, and data-in on channels.
void add_writes(const DeviceConfig& device, const BlockLoad& load, Busy& busy) {
  const nfc::FlashConfig& flash = device.flash;
  const double writes = 1 - load.reads;
  busy[DriveStation::link_to_drive] += writes * seconds_of(load.size, device.link.payload_bandwidth());
  if (load.buffered) return;
  const Bytes programmed = load.sequential ? load.size : programmed_by_write(device, load.size);
  const double pages = load.write_amplification * static_cast<double>(programmed.value) /
                       static_cast<double>(flash.geometry.page_size.value);
  Bytes on_bus = flash.geometry.page_size;
  if (flash.codewords) on_bus += flash.codewords->parity_of(flash.geometry.page_size);
  busy[DriveStation::flash_arrays] +=
      writes * (pages / flash.word_line_pages * flash.program_latency.seconds() / flash.geometry.planes());
  busy[DriveStation::flash_channels] +=
      writes * (pages * seconds_of(on_bus, flash.channel_bandwidth) / flash.geometry.channels);
}

}  // namespace

DrivePeaks drive_peaks(const DeviceConfig& device) {
  const engine::EngineConfig& engine = device.engine;
  const double kernels = static_cast<double>(engine.clock.hertz) * engine.kernels;
  DrivePeaks peaks{.channels = per_second(device.flash.channel_bandwidth) * device.flash.geometry.channels,
                   .multiply_accumulates = kernels * engine.macs_per_cycle,
                   .dequantised = kernels * engine.dequantised_per_cycle,
                   .scores = {kernels * engine.macs_per_cycle},  // fp16, unless a unit scores
                   .fetch = device.flash.geometry.page_size};
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4})
    if (const auto& lanes = engine.scoring.lanes(precision))
      peaks.scores[static_cast<std::size_t>(precision)] = static_cast<double>(engine.clock.hertz) * *lanes;
  const ftl::KvMapping* const mapping = ftl::kv_mapping(device.ftl.mapping);
  if (device.flash.codewords && mapping != nullptr)
    peaks.fetch = std::min(peaks.fetch, device.flash.codewords->size * mapping->group_codewords);
  return peaks;
}

double peak_reads(const DeviceConfig& device, Bytes of_page) {
  const nfc::FlashConfig& flash = device.flash;
  const double bytes = static_cast<double>(of_page.value);
  Bytes on_bus = of_page;
  if (flash.codewords)
    on_bus += flash.codewords->parity * static_cast<std::uint64_t>(ceil_divide(of_page, flash.codewords->size));
  double carrying = (flash.command_time + flash.data_out_setup).seconds() + seconds_of(on_bus, flash.channel_bandwidth);
  if (flash.filter_bandwidth) carrying = std::max(carrying, bytes / per_second(*flash.filter_bandwidth));
  double reads = std::min(flash.geometry.channels * bytes / carrying,
                          flash.geometry.planes() * bytes / (flash.read_latency.seconds() + carrying));
  // Each page is written to the FPGA's DRAM and read from it.
  if (const auto* const behind = std::get_if<SwitchPlacement>(&device.engine.placement))
    reads = std::min({reads, per_second(behind->bandwidth), per_second(behind->dram_bandwidth) / 2});
  return reads;
}

Bytes programmed_by_write(const DeviceConfig& device, Bytes size) {
  const Bytes unit = device.ftl.mapping_unit.value_or(device.flash.geometry.page_size);
  return unit * static_cast<std::uint64_t>(ceil_divide(size, unit));
}

BlockPeak block_peak(const DeviceConfig& device, const BlockLoad& load) {
  Busy busy;
  busy[DriveStation::controller] = device.nvme.firmware_time.seconds() / device.nvme.firmware_cores;
  add_reads(device, load, busy);
  add_writes(device, load, busy);
  const auto most = std::ranges::max_element(busy.values);
  return {.requests_per_s = 1 / *most, .binds = static_cast<DriveStation>(most - busy.values.begin())};
}

}  // namespace csdsim::csd_model
