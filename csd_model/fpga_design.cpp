#include "csd_model/fpga_design.h"

namespace csdsim::csd_model {

engine::FpgaDesign fpga_design(const DeviceConfig& device) {
  const DeviceEngineConfig& e = device.engine;
  return {.kernels = e.kernels,
          .macs_per_cycle = e.macs_per_cycle,
          .softmax_per_cycle = e.softmax_per_cycle,
          .argtopk_units = e.argtopk_units,
          .argtopk_per_cycle = e.argtopk_per_cycle,
          .jobs_in_flight = e.jobs_in_flight,
          .buffer = e.buffer_memory == engine::EngineMemory::sram ? e.buffer : Bytes{},
          .scoring = e.scoring,
          .page_size = device.flash.geometry.page_size,
          .channels = device.flash.geometry.channels,
          .page_buffers = device.flash.page_buffers,
          .link = device.link.raw_bandwidth(),
          .behind_switch = e.behind_switch()};
}

const engine::Fpga& fpga_of(const DeviceConfig& device) {
  return engine::fpga_of(device.engine.fpga, device.engine.behind_switch());
}

}  // namespace csdsim::csd_model
