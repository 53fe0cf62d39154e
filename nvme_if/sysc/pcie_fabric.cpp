#include "nvme_if/sysc/pcie_fabric.h"

#include <algorithm>

namespace csdsim::nvme {
namespace {

Segment accessed(const tlm::tlm_generic_payload& trans) {
  return {PhysicalAddress{trans.get_address()}, Bytes{trans.get_data_length()}};
}

}  // namespace

PcieFabric::PcieFabric(const sc_core::sc_module_name& name, const MemoryMap& map)
    : sc_module(name), target("target"), map_(map) {
  target.register_b_transport(this, &PcieFabric::b_transport);
  target.register_transport_dbg(this, &PcieFabric::transport_dbg);
  target.register_get_direct_mem_ptr(this, &PcieFabric::get_direct_mem_ptr);
  for (std::size_t i = 0; i < map.regions().size(); ++i) {
    auto& socket = regions_.emplace_back(std::make_unique<RegionSocket>(sc_core::sc_gen_unique_name("region")));
    socket->register_invalidate_direct_mem_ptr(this, &PcieFabric::invalidate, static_cast<int>(i));
  }
}

void PcieFabric::b_transport(int /*id*/, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  const std::optional<RegionId> region = map_.find(accessed(trans));
  if (!region) {
    trans.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
    return;
  }
  const sc_dt::uint64 address = trans.get_address();
  trans.set_address(address - map_.region(*region).base.value);
  (*regions_[region->value])->b_transport(trans, delay);
  trans.set_address(address);
}

unsigned PcieFabric::transport_dbg(int /*id*/, tlm::tlm_generic_payload& trans) {
  const std::optional<RegionId> region = map_.find(accessed(trans));
  if (!region) return 0;
  const sc_dt::uint64 address = trans.get_address();
  trans.set_address(address - map_.region(*region).base.value);
  const unsigned moved = (*regions_[region->value])->transport_dbg(trans);
  trans.set_address(address);
  return moved;
}

bool PcieFabric::get_direct_mem_ptr(int /*id*/, tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  const std::optional<RegionId> id = map_.find({PhysicalAddress{trans.get_address()}, Bytes{1}});
  if (!id) return false;
  const MemoryRegion& region = map_.region(*id);
  const sc_dt::uint64 address = trans.get_address();
  trans.set_address(address - region.base.value);
  const bool granted = (*regions_[id->value])->get_direct_mem_ptr(trans, dmi);
  trans.set_address(address);
  // A refusal also names the range for which it holds.
  const sc_dt::uint64 last = region.size.value - 1;
  dmi.set_start_address(region.base.value + std::min<sc_dt::uint64>(dmi.get_start_address(), last));
  dmi.set_end_address(region.base.value + std::min<sc_dt::uint64>(dmi.get_end_address(), last));
  return granted;
}

void PcieFabric::invalidate(int region, sc_dt::uint64 begin, sc_dt::uint64 end) {
  const MemoryRegion& r = map_.region(RegionId{static_cast<std::uint32_t>(region)});
  const sc_dt::uint64 last = r.base.value + std::min<sc_dt::uint64>(end, r.size.value - 1);
  for (unsigned i = 0; i < target.size(); ++i)
    target[static_cast<int>(i)]->invalidate_direct_mem_ptr(r.base.value + begin, last);
}

}  // namespace csdsim::nvme
