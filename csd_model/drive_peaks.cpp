#include "csd_model/drive_peaks.h"

#include <algorithm>

namespace csdsim::csd_model {

namespace {

double per_second(Bandwidth rate) { return static_cast<double>(rate.bytes_per_second); }

}  // namespace

DrivePeaks drive_peaks(const DeviceConfig& device) {
  const engine::EngineConfig& engine = device.engine;
  const double kernels = static_cast<double>(engine.clock.hertz) * engine.kernels;
  DrivePeaks peaks{.channels = per_second(device.flash.channel_bandwidth) * device.flash.geometry.channels,
                   .multiply_accumulates = kernels * engine.macs_per_cycle,
                   .dequantised = kernels * engine.dequantised_per_cycle,
                   .fetch = device.flash.geometry.page_size};
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4}) {
    const double lanes = engine.scoring.lanes(precision).value_or(0);
    peaks.scores[static_cast<std::size_t>(precision)] = lanes > 0 ? static_cast<double>(engine.clock.hertz) * lanes
                                                        : precision == ScorePrecision::fp16 ? peaks.multiply_accumulates
                                                                                            : 0;
  }
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
    on_bus +=
        flash.codewords->parity * ((of_page.value + flash.codewords->size.value - 1) / flash.codewords->size.value);
  double carrying = (flash.command_time + flash.data_out_setup).seconds() +
                    static_cast<double>(on_bus.value) / per_second(flash.channel_bandwidth);
  if (flash.filter_bandwidth) carrying = std::max(carrying, bytes / per_second(*flash.filter_bandwidth));
  double reads = std::min(flash.geometry.channels * bytes / carrying,
                          flash.geometry.planes() * bytes / (flash.read_latency.seconds() + carrying));
  // Each page is written to the FPGA's DRAM and read from it.
  if (const auto* const behind = std::get_if<SwitchPlacement>(&device.engine.placement))
    reads = std::min({reads, per_second(behind->bandwidth), per_second(behind->dram_bandwidth) / 2});
  return reads;
}

}  // namespace csdsim::csd_model
