// Reads of an engine behind a PCIe switch.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace csdsim {
class ParamVisitor;
}

namespace csdsim::csd_model {

/// How an engine behind the switch reads pages: as requests to the SSD controller, whose data cross the controller's
/// link to the FPGA's DRAM.
struct PeerReadConfig {
  Bytes request_size = Bytes::mib(1);               ///< largest request
  SimTime command_time = SimTime::microseconds(5);  ///< per request, before the SSD controller reads its first page
  std::uint32_t outstanding = 32;                   ///< requests between start and end
  Bandwidth bandwidth{3'200'000'000};               ///< rate of the link, for all requests and the host's data together
  Bandwidth request_bandwidth{2'400'000'000};       ///< rate of one request
  Bandwidth dram_bandwidth{19'200'000'000};         ///< rate of the FPGA's DRAM, reads and writes together
};

void describe(ParamVisitor& v, PeerReadConfig& c);

}  // namespace csdsim::csd_model
