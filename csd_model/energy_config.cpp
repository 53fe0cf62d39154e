#include "csd_model/energy_config.h"

namespace csdsim::csd_model {

void describe(ParamVisitor& v, EnergyConfig& c) {
  const Range<Power> power{Power{}, Power{1'000'000'000'000}};
  const Range<Energy> energy{Energy{}, Energy{1'000'000'000'000}};
  const Cite array = datasheet("Micron MT29F4G08: 25 mA at 3.3 V, typical; ONFI 5.0 limits ICC1 to ICC3 to 100 mA");
  v.param("read_power", c.read_power, power, "Of a plane while it senses: 4.1 uJ a page at a tR of 50 us.", array);
  v.param("program_power", c.program_power, power, "Of a plane while it programs: 50 uJ a page at a tPROG of 600 us.",
          array);
  v.param("erase_power", c.erase_power, power, "Of a plane while it erases: 248 uJ a block at a tBERS of 3 ms.", array);
  v.param("die_standby", c.die_standby, power, "Of each die, all the time.",
          datasheet("Micron MT29F4G08: ISB 10 uA at 3.3 V, typical; ONFI 5.0 allows 100 uA"));
  v.param("channel_bit", c.channel_bit, energy, "A bit over a flash channel, both ends together.",
          assumed("30 pF of bus and eight dies, switched through 1.2 V every other bit: C V^2 / 4"));
  v.param("ecc_bit", c.ecc_bit, energy, "A bit encoded or decoded.",
          assumed("of the order of published LDPC decoders, a few pJ a bit"));
  v.param("dram_byte", c.dram_byte, energy, "A byte read or written in controller DRAM.",
          paper("Horowitz, ISSCC 2014: 1.3 to 2.6 nJ for 64 bits, the lower end"));
  v.param("dram_gib", c.dram_gib, power, "Of each GiB of controller DRAM, all the time: standby and refresh.",
          assumed("of the order of DDR4 data sheets: some 20 mA at 1.2 V a device of 8 Gbit, and refresh"));
  v.param("mac", c.mac, energy, "A multiply-accumulate in FP16 of the attention engine.",
          paper("Horowitz, ISSCC 2014: 1.5 pJ in 45 nm; times 14 in an FPGA (Kuon, Rose, TCAD 2007)"));
  v.param("engine_idle", c.engine_idle, power, "Of the attention engine, all the time.",
          assumed("static power of an FPGA of the Zynq-7045's size"));
  v.param("link_bit", c.link_bit, energy, "A payload bit over the PCIe link, at the drive's end.",
          assumed("of the order of published serial transceivers, 5 to 10 pJ a bit"));
  v.param("link_idle", c.link_idle, power, "Of the drive's end of the PCIe link, all the time.",
          assumed("four lanes in L0 at 75 mW"));
  v.param("controller", c.controller, power, "Of processors, front end and flash controllers, all the time.",
          assumed("client drives draw 1 to 2 W awake and idle, data-centre drives about 5 W"));
}

}  // namespace csdsim::csd_model
