// Routes physical addresses to the memories of a platform.
#pragma once

#include <tlm_utils/multi_passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>

#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "nvme_if/core/memory_map.h"

namespace csdsim::nvme {

/// A switch without timing of its own: the links that meet in it have timing. Any number of initiators bind to
/// `target`; each region of the memory map has its own initiator socket, on which addresses are relative to the
/// region's base. An access that no region holds completely gets an address error.
class PcieFabric : public sc_core::sc_module {
 public:
  using RegionSocket = tlm_utils::simple_initiator_socket_tagged<PcieFabric>;

  tlm_utils::multi_passthrough_target_socket<PcieFabric> target;

  /// Connects the regions that `map` has now; `map` must outlive the fabric.
  PcieFabric(const sc_core::sc_module_name& name, const MemoryMap& map);

  RegionSocket& region(RegionId id) { return *regions_.at(id.value); }

 private:
  void b_transport(int id, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(int id, tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(int id, tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  void invalidate(int region, sc_dt::uint64 begin, sc_dt::uint64 end);

  const MemoryMap& map_;
  std::vector<std::unique_ptr<RegionSocket>> regions_;
};

}  // namespace csdsim::nvme
