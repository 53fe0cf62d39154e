#include "csd_model/energy.h"

#include <numeric>

#include "csd_model/firmware/dram_port.h"

namespace csdsim::csd_model {

EnergyInputs operator-(EnergyInputs a, const EnergyInputs& b) {
  a.drive_seconds -= b.drive_seconds;
  a.read_s -= b.read_s;
  a.program_s -= b.program_s;
  a.erase_s -= b.erase_s;
  a.channel_bytes -= b.channel_bytes;
  a.dram_bytes -= b.dram_bytes;
  a.macs -= b.macs;
  a.link_bytes -= b.link_bytes;
  return a;
}

EnergyInputs energy_inputs(const Drive& drive) {
  EnergyInputs in;
  const nfc::FlashStatistics& flash = drive.flash_statistics();
  const auto array_time = [&](PageOpKind kind) { return flash.array_time[static_cast<std::size_t>(kind)].seconds(); };
  in.read_s = array_time(PageOpKind::read);
  in.program_s = array_time(PageOpKind::program);
  in.erase_s = array_time(PageOpKind::erase);
  const DriveCounters counters = drive.counters();
  in.channel_bytes = static_cast<double>(counters.flash_channel_bytes) +
                     static_cast<double>(flash.retries) * static_cast<double>(drive.config().geometry.page_size.value);
  in.link_bytes = static_cast<double>(counters.link_payload_bytes);
  if (const DramPort& port = drive.dram_port(); port.limited()) {
    for (std::size_t t = 0; t < kDramTraffics; ++t)
      in.dram_bytes += static_cast<double>(port.bytes(static_cast<DramTraffic>(t)).value);
  } else {
    in.dram_bytes = 2 * in.link_bytes;
    for (const std::uint64_t bytes : flash.bytes[static_cast<std::size_t>(OpClass::gc)])
      in.dram_bytes += static_cast<double>(bytes);
  }
  if (const engine::EngineStats* stats = drive.engine_stats()) in.macs = static_cast<double>(stats->macs);
  return in;
}

EnergyBreakdown energy(const EnergyConfig& config, const EnergyParts& parts, const EnergyInputs& in) {
  const double t = in.drive_seconds;
  const auto bits = [](double bytes) { return 8 * bytes; };
  EnergyBreakdown joules{};
  const auto set = [&](EnergyComponent c, double value) { joules[static_cast<std::size_t>(c)] = value; };
  set(EnergyComponent::array_read, config.read_power.watts() * in.read_s);
  set(EnergyComponent::array_program, config.program_power.watts() * in.program_s);
  set(EnergyComponent::array_erase, config.erase_power.watts() * in.erase_s);
  set(EnergyComponent::array_standby, config.die_standby.watts() * parts.dies * t);
  set(EnergyComponent::channel, config.channel_bit.joules() * bits(in.channel_bytes));
  set(EnergyComponent::ecc, config.ecc_bit.joules() * bits(in.channel_bytes));
  set(EnergyComponent::dram, config.dram_byte.joules() * in.dram_bytes + config.dram_gib.watts() * parts.dram_gib * t);
  set(EnergyComponent::engine, parts.engine ? config.mac.joules() * in.macs + config.engine_idle.watts() * t : 0.0);
  set(EnergyComponent::link, config.link_bit.joules() * bits(in.link_bytes) + config.link_idle.watts() * t);
  set(EnergyComponent::controller, config.controller.watts() * t);
  return joules;
}

double total(const EnergyBreakdown& breakdown) { return std::accumulate(breakdown.begin(), breakdown.end(), 0.0); }

}  // namespace csdsim::csd_model
