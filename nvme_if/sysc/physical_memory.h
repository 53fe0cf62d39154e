// Byte-addressed memory behind a TLM-2.0 target socket.
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <cstddef>
#include <span>
#include <systemc>
#include <tlm>

#include "base/units.h"

namespace csdsim::nvme {

/// Memory of any size. Only touched pages take space; untouched memory reads as zeros. Answers at once (latency belongs
/// to the links and to the user's own memory models) and grants DMI for all of it. Addresses start at 0 here.
class PhysicalMemory : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<PhysicalMemory> target;

  /// UserError if the address space for it cannot be reserved.
  PhysicalMemory(const sc_core::sc_module_name& name, Bytes size);
  ~PhysicalMemory() override;

  Bytes size() const { return size_; }
  /// The whole memory, for a host program that uses it directly.
  std::span<std::byte> bytes() { return {data_, size_.value}; }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  tlm::tlm_response_status access(tlm::tlm_generic_payload& trans);

  Bytes size_;
  std::byte* data_ = nullptr;
};

}  // namespace csdsim::nvme
