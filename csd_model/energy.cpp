#include "csd_model/energy.h"

#include <numeric>

namespace csdsim::csd_model {

EnergyBreakdown energy(const EnergyConfig& config, const EnergyParts& parts, const DriveWork& work) {
  const double t = work.elapsed;
  const double channel_bytes = work.channel_bytes + work.retry_bytes;
  const auto bits = [](double bytes) { return 8 * bytes; };
  EnergyBreakdown joules{};
  const auto set = [&](EnergyComponent c, double value) { joules[static_cast<std::size_t>(c)] = value; };
  set(EnergyComponent::array_read, config.read_power.watts() * work.read_busy);
  set(EnergyComponent::array_program, config.program_power.watts() * work.program_busy);
  set(EnergyComponent::array_erase, config.erase_power.watts() * work.erase_busy);
  set(EnergyComponent::array_standby, config.die_standby.watts() * parts.dies * t);
  set(EnergyComponent::channel, config.channel_bit.joules() * bits(channel_bytes));
  set(EnergyComponent::ecc, config.ecc_bit.joules() * bits(channel_bytes));
  set(EnergyComponent::dram,
      config.dram_byte.joules() * work.dram_bytes + config.dram_gib.watts() * parts.dram_gib * t);
  set(EnergyComponent::engine, parts.engine ? config.mac.joules() * work.macs + config.engine_idle.watts() * t : 0.0);
  set(EnergyComponent::link, config.link_bit.joules() * bits(work.link_bytes) + config.link_idle.watts() * t);
  set(EnergyComponent::controller, config.controller.watts() * t);
  return joules;
}

double total(const EnergyBreakdown& breakdown) { return std::accumulate(breakdown.begin(), breakdown.end(), 0.0); }

}  // namespace csdsim::csd_model
