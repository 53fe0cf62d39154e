// Energy per operation of the parts of a drive, and power that they draw all the time.
#pragma once

#include "base/param.h"
#include "base/quantity.h"

namespace csdsim::csd_model {

struct EnergyConfig {
  Power read_power{82'500'000};     ///< per plane that senses a page
  Power program_power{82'500'000};  ///< per plane that programs a page
  Power erase_power{82'500'000};    ///< per plane that erases a block
  Power die_standby{33'000};        ///< per die, all the time
  Energy channel_bit{11'000};       ///< over a flash channel
  Energy ecc_bit{5'000};            ///< encoded or decoded
  Energy dram_byte{160'000};        ///< read or written in controller DRAM
  Power dram_gib{37'500'000};       ///< a GiB of controller DRAM, all the time
  Energy mac{21'000};               ///< multiply-accumulate of the attention engine
  Power engine_idle{500'000'000};   ///< attention engine, all the time
  Energy link_bit{6'000};           ///< over the PCIe link, at the drive
  Power link_idle{300'000'000};     ///< the drive's end of the link, all the time
  Power controller{1'500'000'000};  ///< processors, front end and flash controllers, all the time
};

void describe(ParamVisitor& v, EnergyConfig& c);

}  // namespace csdsim::csd_model
